"""The segments that run in this process: found again by an interrupt, and after a crash."""

import asyncio
import contextlib
import hashlib
import json
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import NamedTuple

from agent_env.specs import Interrupt


class Attempt(NamedTuple):
    """What it takes to fail an activity attempt by id from another process."""

    workflow_id: str
    workflow_run_id: str
    activity_id: str


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
        self._early: dict[str, list[Interrupt]] = {}
        self._next = 0

    def __len__(self) -> int:
        return len(self._running)

    @contextmanager
    def running(
        self, run_id: str, epoch: int, step_ids: tuple[str, ...], attempt: Attempt
    ) -> Generator[asyncio.Event]:
        """Register a segment while it runs; the event is set when it is interrupted."""
        stop = asyncio.Event()
        steps = frozenset(step_ids)
        if any(_hits(interrupt, epoch, steps) for interrupt in self._early.get(run_id, ())):
            stop.set()
        key, self._next = self._next, self._next + 1
        self._running[key] = (run_id, epoch, steps, stop)
        note = self._attempts / hashlib.sha256("\0".join(attempt).encode()).hexdigest()
        note.write_text(json.dumps(attempt), encoding="utf-8")
        try:
            yield stop
        finally:
            note.unlink(missing_ok=True)
            del self._running[key]

    def interrupt(self, order: Interrupt) -> None:
        """Stop matching segments, also one that has not arrived yet."""
        self._early.setdefault(order.run_id, []).append(order)
        for run_id, epoch, steps, stop in self._running.values():
            if run_id == order.run_id and _hits(order, epoch, steps):
                stop.set()

    def forget(self, run_id: str) -> None:
        """The run has ended: stop whatever of it still runs, keep nothing."""
        self._early.pop(run_id, None)
        for running, _, _, stop in self._running.values():
            if running == run_id:
                stop.set()

    def abandoned(self) -> list[Attempt]:
        """Take the attempts that a predecessor on this state folder left behind."""
        found: list[Attempt] = []
        for note in self._attempts.iterdir():
            # One cut off while being written is left to its heartbeat timeout.
            with contextlib.suppress(ValueError, TypeError):
                found.append(Attempt(*json.loads(note.read_text(encoding="utf-8"))))
            note.unlink(missing_ok=True)
        return found


def _hits(order: Interrupt, epoch: int, steps: frozenset[str]) -> bool:
    return epoch <= order.epoch and not steps.isdisjoint(order.step_ids)
