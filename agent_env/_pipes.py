"""Reads a pipe on the event loop, and awaits what must not be cut off."""

import asyncio
import os
from collections.abc import Callable, Coroutine, Sequence
from typing import Any

_READ_BYTES = 256 * 1024

Feed = Callable[[bytes], None]


class PipeReader:
    """Gives what arrives on a pipe to functions, on the event loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        fd: int,
        feeds: Sequence[Feed],
        on_error: Callable[[Exception], None],
    ) -> None:
        self._loop = loop
        self._fd = fd
        self._feeds = feeds
        self._on_error = on_error
        self.closed: asyncio.Future[None] = loop.create_future()
        """Done once nobody can write any more and all was read."""
        os.set_blocking(fd, False)
        loop.add_reader(fd, self._read)

    def drain(self, most: int) -> None:
        """Take what is there now, up to about ``most`` bytes."""
        while most > 0 and (taken := self._read()):
            most -= taken

    def close(self) -> None:
        """Read no more."""
        if self._fd != -1:
            self._loop.remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _read(self) -> int:
        if self._fd == -1:
            return 0
        try:
            data = os.read(self._fd, _READ_BYTES)
        except BlockingIOError:
            return 0
        if not data:
            self.close()
            settle(self.closed)
        try:
            for feed in self._feeds if data else ():
                feed(data)
        except Exception as error:
            self._on_error(error)
        return len(data)


def settle(future: asyncio.Future[None]) -> None:
    """Mark a future as done, if it is not."""
    if not future.done():
        future.set_result(None)


async def to_its_end(work: Coroutine[Any, Any, object]) -> None:
    """Await, whatever is canceled meanwhile; the cancellation is raised afterwards."""
    task = asyncio.ensure_future(work)
    canceled: asyncio.CancelledError | None = None
    while not task.done():
        try:
            await asyncio.wait([task])
        except asyncio.CancelledError as error:
            canceled = error
    task.result()
    if canceled is not None:
        raise canceled
