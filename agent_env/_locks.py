"""Locks between processes: held by an open file, so the kernel lets go when the holder dies."""

from __future__ import annotations

import asyncio
import fcntl
import os
import time
from datetime import timedelta
from pathlib import Path
from types import TracebackType

_RETRY_S = 0.01


class FileLock:
    """One holder's grip on a lock file, exclusive or shared with other shared holders.

    Two objects exclude each other in one process as they do in two. A child made with ``os.fork``
    shares its parent's grip: the lock is free when neither has it any more. The file is never
    removed, since a waiter may have it open.
    """

    def __init__(self, path: Path, *, shared: bool = False) -> None:
        self._path = path
        self._mode = fcntl.LOCK_SH if shared else fcntl.LOCK_EX
        self._file: int | None = None

    @property
    def is_held(self) -> bool:
        """Whether this object holds the lock."""
        return self._file is not None

    def try_acquire(self) -> bool:
        """Take the lock if nobody is in the way; True if it is held now."""
        if self._file is None:
            self._file = self._opened(self._mode | fcntl.LOCK_NB)
        return self._file is not None

    def acquire(self, *, within: timedelta | None = None) -> None:
        """Take the lock, waiting for those in the way. Blocks the thread.

        Args:
            within: Longest wait; None waits without end.

        Raises:
            TimeoutError: others still held it; names the file.
        """
        if within is None:
            self._file = self._file if self.is_held else self._opened(self._mode)
            return
        deadline = time.monotonic() + within.total_seconds()
        while not self.try_acquire():
            self._check(deadline, within)
            time.sleep(_RETRY_S)

    async def acquire_async(self, *, within: timedelta) -> None:
        """Take the lock as ``acquire`` does, leaving the event loop free. May be canceled.

        Raises:
            TimeoutError: others still held it; names the file.
        """
        deadline = time.monotonic() + within.total_seconds()
        while not self.try_acquire():
            self._check(deadline, within)
            await asyncio.sleep(_RETRY_S)

    def release(self) -> None:
        """Let go. Does nothing when the lock is not held."""
        if self._file is not None:
            file, self._file = self._file, None
            os.close(file)

    def __enter__(self) -> FileLock:
        self.acquire()
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.release()

    def _opened(self, operation: int) -> int | None:
        """The locked file, or None when ``operation`` does not wait and somebody is in the way."""
        self._path.parent.mkdir(parents=True, exist_ok=True)
        file = os.open(self._path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(file, operation)
        except BlockingIOError:
            os.close(file)
            return None
        except OSError:
            os.close(file)
            raise
        return file

    def _check(self, deadline: float, within: timedelta) -> None:
        if time.monotonic() >= deadline:
            raise TimeoutError(f"{self._path} is still locked after {within.total_seconds():g} s")
