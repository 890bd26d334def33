"""Decides which step of a segment starts, and which is stopped, as the others end."""

import asyncio
from collections.abc import Callable, Iterable, Sequence
from datetime import datetime
from functools import partial
from typing import Any, NamedTuple

from pydantic import JsonValue

from agent_env.errors import OutputTooLargeError, StepInterruptedError
from agent_env.plan import PlannedStep
from agent_env.results import StepReport
from agent_env.specs import RunSteps, StepProgress, StepsDone
from agent_env.status import StepStatus
from agent_env.steps._attempt import failure
from agent_env.steps._output import brief_detail, output_bytes
from agent_env.steps.base import MAX_EPISODE_OUTPUT_BYTES
from agent_env.task import StepSpec

_ENDED = (StepStatus.COMPLETED, StepStatus.FAILED)


class Started(NamedTuple):
    """A step under way."""

    stop: Callable[[], None]
    """Makes it end soon, with a report that says CANCELED."""
    task: asyncio.Task[StepReport]


Start = Callable[[StepSpec, Sequence[StepReport], Callable[[JsonValue], None]], Started | None]
"""Starts a step, given the reports that it may see and whom it tells how far it is. None: it was
started by a process that is dead now, and must not be started again."""


class SegmentRun:
    """One segment on its way. To be driven from one event loop."""

    def __init__(
        self,
        order: RunSteps,
        earlier: StepProgress,
        *,
        start: Start,
        on_change: Callable[[StepProgress], None],
        now: Callable[[], datetime],
    ) -> None:
        self._order = order
        self._start = start
        self._on_change = on_change
        self._now = now
        self._loop = asyncio.get_running_loop()
        self._planned = {planned.spec.id: planned for planned in order.segment.steps}
        self._before = _before(order.segment.steps)
        self._running: dict[str, Started] = {}
        self._details: dict[str, JsonValue] = {}
        self._stopped: set[str] = set()
        self._reports: dict[str, StepReport] = {}
        self._output_bytes = sum(output_bytes(report.output) for report in order.reports)
        for report in earlier.reports:
            if report.step_id in self._planned and report.epoch == order.epoch:
                self._record(report)
        # Under way when an earlier attempt died, and not started again yet.
        self._cut_off = [name for name in earlier.running if name in self._planned]
        # The next heartbeat must not say less than the last one of the attempt that died.
        self._changed()

    async def run(self, interrupt: asyncio.Event) -> StepsDone:
        """Start what can start until all has ended, or until ``interrupt`` is set."""
        while not interrupt.is_set():
            self._start_ready()
            self._changed()
            if not self._running:
                break
            await one_done([started.task for started in self._running.values()], interrupt)
            self._collect()
        await self._stop_running()
        self._collect()
        self._changed()
        return StepsDone(reports=(*self._reports.values(), *self._not_run()))

    async def close(self) -> None:
        """Stop what still runs because ``run`` was left early.

        What is stopped here is not over: it stays under way, so that a later attempt takes it up.
        """
        if self._running:
            await self._stop_running()
            self._collect(leave=StepStatus.CANCELED)
            self._changed()

    async def _stop_running(self) -> None:
        for started in self._running.values():
            started.stop()
        if self._running:
            await asyncio.wait([started.task for started in self._running.values()])

    def _start_ready(self) -> None:
        for name, planned in self._planned.items():
            is_new = name not in self._reports and name not in self._running
            if is_new and name not in self._stopped and all(map(self._has_ended, planned.after)):
                self._start_one(planned.spec)

    def _has_ended(self, name: str) -> bool:
        return name in self._reports and self._reports[name].status in _ENDED

    def _start_one(self, spec: StepSpec) -> None:
        started = None
        if spec.rerun or spec.id not in self._cut_off:
            seen = [self._reports[name] for name in self._planned if name in self._before[spec.id]]
            progress = partial(self._progressed, spec.id)
            started = self._start(spec, (*self._order.reports, *seen), progress)
        if started is not None:
            self._running[spec.id] = started
            return
        error = StepInterruptedError(
            "its worker died while it ran, and `rerun: false` forbids to run it again"
        )
        end = {**failure(error), "finished_at": self._now()}
        self._record(self._report(spec, StepStatus.FAILED).model_copy(update=end))

    def _collect(self, *, leave: StepStatus | None = None) -> None:
        """Take the reports of those that have ended, but for those that say ``leave``."""
        ended = {n: s.task.result() for n, s in self._running.items() if s.task.done()}
        for name, report in ended.items():
            if report.status is not leave:
                del self._running[name]
                self._details.pop(name, None)
                self._record(report)

    def _record(self, report: StepReport) -> None:
        size = output_bytes(report.output)
        if self._output_bytes + size > MAX_EPISODE_OUTPUT_BYTES:
            error = OutputTooLargeError(
                f"with its output of {size:,} bytes those of this episode are over the limit of "
                f"{MAX_EPISODE_OUTPUT_BYTES:,} bytes as JSON; return less, or put it into an "
                "artifact and return where it is"
            )
            update = {**failure(error), "output": None, "score": None}
            report, size = report.model_copy(update=update), 0
        self._output_bytes += size
        self._reports[report.step_id] = report
        if report.status is StepStatus.FAILED:
            for name in self._planned[report.step_id].stops:
                self._stopped.add(name)
                if name in self._running:
                    self._running[name].stop()

    def _not_run(self) -> list[StepReport]:
        """Reports of the steps that did not start here; a dead worker may have started them."""
        return [
            self._report(
                planned.spec,
                StepStatus.CANCELED if name in self._cut_off else StepStatus.SKIPPED,
            )
            for name, planned in self._planned.items()
            if name not in self._reports
        ]

    def _report(self, spec: StepSpec, status: StepStatus) -> StepReport:
        return StepReport(step_id=spec.id, type=spec.type, epoch=self._order.epoch, status=status)

    def _progressed(self, name: str, detail: JsonValue) -> None:
        # A step may call this from a thread of its own.
        self._loop.call_soon_threadsafe(self._note, name, brief_detail(detail))

    def _note(self, name: str, detail: JsonValue) -> None:
        if name in self._running:
            self._details[name] = detail
            self._changed()

    def _changed(self) -> None:
        waiting = [name for name in self._cut_off if name not in self._reports]
        self._on_change(
            StepProgress(
                reports=tuple(self._reports.values()),
                running=tuple(dict.fromkeys([*self._running, *waiting])),
                detail=dict(self._details) or None,
            )
        )


async def one_done(tasks: Iterable[asyncio.Task[Any]], interrupt: asyncio.Event) -> None:
    """Wait until one of the tasks is done, or the event is set."""
    interrupted = asyncio.create_task(interrupt.wait())
    try:
        await asyncio.wait((interrupted, *tasks), return_when=asyncio.FIRST_COMPLETED)
    finally:
        interrupted.cancel()


def _before(steps: Sequence[PlannedStep]) -> dict[str, frozenset[str]]:
    """For each step, those of the segment that it depends on, at any distance."""
    found: dict[str, frozenset[str]] = {}
    for planned in steps:
        after = frozenset(planned.after)
        found[planned.spec.id] = after.union(*(found[name] for name in after))
    return found
