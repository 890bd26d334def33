"""The segments that run in this process: found again by an interrupt, and after a crash."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Generator, Iterator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from temporalio import activity

from agent_env._abandoned import HeldAttempt
from agent_env.specs import Interrupt


class Segments:
    """Which segments run here. An interrupt that arrives before its segment is kept for it.

    Args:
        attempts: Folder with a file for each attempt under way, so that a restarted worker can fail
            what its dead predecessor held instead of waiting for a heartbeat timeout.
    """

    def __init__(self, attempts: Path) -> None:
        self._attempts = attempts
        attempts.mkdir(parents=True, exist_ok=True)
        self._running: dict[int, tuple[str, int, frozenset[str], asyncio.Event]] = {}
        self._over: dict[int, asyncio.Event] = {}
        self._early: dict[str, list[Interrupt]] = {}
        self._next = 0
        self._stopped: dict[str, asyncio.Event] = {}

    def __len__(self) -> int:
        return len(self._running)

    @contextmanager
    def running(
        self, run_id: str, epoch: int, step_ids: tuple[str, ...], attempt: HeldAttempt
    ) -> Generator[asyncio.Event]:
        """Register a segment while it runs; the event is set when it is interrupted."""
        stop = asyncio.Event()
        steps = frozenset(step_ids)
        early = self._early.get(run_id, ())
        if run_id in self._stopped or any(_hits(order, epoch, steps) for order in early):
            stop.set()
        key, self._next = self._next, self._next + 1
        self._running[key] = (run_id, epoch, steps, stop)
        self._over[key] = asyncio.Event()
        try:
            with self.held(attempt):
                yield stop
        finally:
            del self._running[key]
            self._over.pop(key).set()

    @contextmanager
    def held(self, attempt: HeldAttempt) -> Generator[None]:
        """Note an attempt while it runs, for the worker that comes after this one."""
        note = self._attempts / hashlib.sha256("\0".join(attempt).encode()).hexdigest()
        note.write_text(json.dumps(attempt), encoding="utf-8")
        try:
            yield
        finally:
            note.unlink(missing_ok=True)

    def interrupt(self, order: Interrupt) -> None:
        """Stop matching segments, also one that has not arrived yet."""
        self._early.setdefault(order.run_id, []).append(order)
        if order.run_id in self._stopped:
            self._stopped[order.run_id].set()
        for run_id, epoch, steps, stop in self._running.values():
            if run_id == order.run_id and _hits(order, epoch, steps):
                stop.set()

    def stop_ahead(self, run_id: str) -> None:
        """Stop all segments of a run whose cancel is on its way, also those that are to come."""
        self._stopped.setdefault(run_id, asyncio.Event())
        for running, _, _, stop in self._running.values():
            if running == run_id:
                stop.set()

    async def cancel_heard(self, run_id: str) -> None:
        """Wait, if the run was stopped ahead, until its workflow has heard why.

        One that learned of stopped steps before would take them for failed.
        """
        if run_id in self._stopped:
            await self._stopped[run_id].wait()

    def forget(self, run_id: str) -> None:
        """The run has ended: stop whatever of it still runs, keep nothing."""
        self._early.pop(run_id, None)
        if stopped := self._stopped.pop(run_id, None):
            stopped.set()
        for running, _, _, stop in self._running.values():
            if running == run_id:
                stop.set()

    async def stopped(self, run_id: str, *, within: timedelta = timedelta(seconds=60)) -> None:
        """Forget the run, and wait until nothing of it runs here any more, or for so long.

        Only of a run whose workflow was ended from outside can there be something left.
        """
        self.forget(run_id)
        left = [self._over[key] for key, found in self._running.items() if found[0] == run_id]
        with contextlib.suppress(TimeoutError):
            async with asyncio.timeout(within.total_seconds()):
                for over in left:
                    await over.wait()

    def abandoned(self) -> Iterator[HeldAttempt]:
        """The attempts that a predecessor on this state folder left behind.

        Each is noted until the next is asked for: a worker that dies before it has given one back
        leaves it to its successor.
        """
        for note in [*self._attempts.iterdir()]:
            # One cut off while being written is left to its heartbeat timeout.
            with contextlib.suppress(ValueError, TypeError):
                yield HeldAttempt(*json.loads(note.read_text(encoding="utf-8")))
            note.unlink(missing_ok=True)


def this_attempt() -> HeldAttempt:
    """The activity attempt that is running."""
    info = activity.info()
    return HeldAttempt(info.workflow_id or "", info.workflow_run_id or "", info.activity_id)


def _hits(order: Interrupt, epoch: int, steps: frozenset[str]) -> bool:
    return epoch <= order.epoch and not steps.isdisjoint(order.step_ids)
