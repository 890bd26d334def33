"""Tells Temporal and the run index how far a segment is, without getting in its way."""

import asyncio
import contextlib
from collections.abc import Callable
from types import TracebackType

from temporalio import activity

from agent_env.errors import RunIndexError
from agent_env.runs import RunIndex
from agent_env.specs import RunSteps, StepProgress

_HEARTBEATS_PER_S = 52
"""Most heartbeats a second of this process while nothing ends: each costs the server 1 to 2 ms."""
_MAX_INTERVAL_S = 9.6
"""Longest time between two, just under half of a segment's heartbeat timeout: the server's timer,
set from the last heartbeat each time it fires, fires twice as often when that is just over half."""
_MIN_INTERVAL_S = 0.5
"""Least time between two, and before the first: most segments are over before it is worth one. A
dead worker costs at most this much of finished steps, and what the engine's own throttle adds."""

_RETRY_S = 10.0
"""Until a write that failed is tried again, with what is known by then."""


def interval_among(segments: int) -> float:
    """Seconds from one heartbeat to the next of one of so many segments, while nothing ends."""
    return min(_MAX_INTERVAL_S, max(1.0, segments / _HEARTBEATS_PER_S))


class Progress:
    """While entered, heartbeats the last word of a segment and writes it to the row.

    Attributes:
        last: The last word.
    """

    def __init__(self, order: RunSteps, index: RunIndex, segments_here: Callable[[], int]) -> None:
        self._order = order
        self._index = index
        self._segments_here = segments_here
        self.last = StepProgress()
        self._ended = asyncio.Event()
        self._changed = asyncio.Event()
        self._tasks: list[asyncio.Task[None]] = []

    async def __aenter__(self) -> "Progress":
        self._tasks = [asyncio.create_task(self._heartbeat()), asyncio.create_task(self._write())]
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        for task in self._tasks:
            task.cancel()
        await asyncio.wait(self._tasks)

    def changed(self, progress: StepProgress) -> None:
        """Take the last word of the segment. Cheap, any rate."""
        if len(progress.reports) > len(self.last.reports):
            self._ended.set()
        self.last = progress
        self._changed.set()

    async def _heartbeat(self) -> None:
        while True:
            await asyncio.sleep(_MIN_INTERVAL_S)
            interval_s = interval_among(self._segments_here())
            with contextlib.suppress(TimeoutError):
                async with asyncio.timeout(interval_s - _MIN_INTERVAL_S):
                    await self._ended.wait()
            self._ended.clear()
            activity.heartbeat(self.last)

    async def _write(self) -> None:
        while True:
            await asyncio.sleep(_MIN_INTERVAL_S)
            await self._changed.wait()
            self._changed.clear()
            last = self.last
            try:
                await asyncio.to_thread(
                    self._index.record_steps,
                    self._order.run_id,
                    last.reports,
                    epoch=self._order.epoch,
                    steps_done=len(self._order.reports) + len(last.reports),
                    current_step=last.running[0] if last.running else None,
                )
            except RunIndexError as error:
                activity.logger.warning("progress not recorded yet: %s", error)
                self._changed.set()
                await asyncio.sleep(_RETRY_S)
