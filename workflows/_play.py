"""Plays the steps of one episode: starts what is ready, collects reports, stops what must stop."""

import asyncio
from collections.abc import Coroutine, Sequence
from typing import Any

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception

from activities.steps import StepActivities
from agent_env import names
from agent_env.errors import UserError, error_text, error_type
from agent_env.outcome import Outcome
from agent_env.plan import Segment, drop, is_fatal, next_retry, plan, stopped
from agent_env.results import EpisodeResult, SandboxRef, StepReport
from agent_env.seeds import wait_seconds
from agent_env.specs import Ending, EpisodeStart, Interrupt, RunSteps, StepsDone
from agent_env.status import StepStatus
from agent_env.task import StepSpec, sandbox_types
from agent_env.turns import STEP_TYPE
from workflows import _calls
from workflows._faults import is_host_lost, progress_of
from workflows._host import Host
from workflows._shield import shielded
from workflows.turns import Turns

Reports = tuple[StepReport, ...]

_TOLD = "what-a-cut-off-segment-had-told-stands"


class HostLostError(Exception):
    """Nobody polled the queue of the host that runs the episode."""


class HistoryFullError(Exception):
    """The episode is to go on in a new execution; nothing but turns was open."""


class Play:
    """The steps of one episode on one host. ``reports`` is the whole record so far."""

    def __init__(self, start: EpisodeStart, turns: Turns) -> None:
        resumed = start.resumed
        self.reports: Reports = resumed.reports if resumed else ()
        self.outcome: Outcome | None = None
        """Given once its last segment has decided it."""
        self.ended: EpisodeResult | None = None
        """Given if its host has ended it as well."""
        self.epoch = resumed.epoch if resumed else 1
        self.destroy: tuple[SandboxRef, ...] = resumed.destroy if resumed else ()
        """Sandboxes of a span that is being retried: gone before its first step starts."""
        self._start = start
        self._turns = turns
        self._on: Host | None = None
        self._in_flight: dict[asyncio.Task[Reports], tuple[str, ...]] = {}

    async def on(self, host: Host) -> None:
        """Play to the end, or to a fatal failure, on this host.

        Raises:
            asyncio.CancelledError: asked to cancel, or past the deadline.
            HostLostError: the host does not answer.
            FailureError: a segment could not be run at all.
            HistoryFullError: the turns that are open are to go on in a new execution.

        Whatever it raises, everything has stopped, and what was reported before is kept.
        """
        self._on = host
        try:
            while self._start_ready():
                await self._one_done()
                self._collect()
                if workflow.cancellation_reason() is not None:
                    # The engine may swallow a cancel that meets an activity's end.
                    raise asyncio.CancelledError
                await self._settle()
        except (asyncio.CancelledError, HostLostError, FailureError):
            await shielded(self._stop(list(self._in_flight)))
            raise

    async def _one_done(self) -> None:
        """Wait until something under way has ended.

        Raises:
            HistoryFullError: the turns that are open are to go on in a new execution.
        """
        flying = [step_id for ids in self._in_flight.values() for step_id in ids]
        types = {self._start.task.step(step_id).type for step_id in flying}
        self._turns.stand_alone = types == {STEP_TYPE}
        if STEP_TYPE not in types:
            await workflow.wait(list(self._in_flight), return_when=asyncio.FIRST_COMPLETED)
            return
        await workflow.wait_condition(
            lambda: self._turns.can_continue or any(task.done() for task in self._in_flight)
        )
        if self._turns.can_continue and workflow.cancellation_reason() is None:
            raise HistoryFullError

    def start_over(self) -> None:
        """Forget what ran: its host is lost, and the sandboxes with it."""
        ids = {report.step_id for report in self.reports}
        self.reports, _ = drop(self.reports, ids)
        self.destroy = ()
        self.epoch += 1

    @property
    def _host(self) -> Host:
        assert self._on is not None
        return self._on

    def _start_ready(self) -> bool:
        """Start what can start; False when nothing is under way."""
        if not is_fatal(self._start.task, self.reports):
            flying = [step_id for ids in self._in_flight.values() for step_id in ids]
            ready = plan(self._start.task, self.reports, flying)
            for step in ready.waits:
                self._launch(self._wait(step), (step.id,))
            for step in ready.turns:
                self._launch(self._turn(step), (step.id,))
            if ready.segment is not None:
                destroy, self.destroy = self.destroy, ()
                self._launch(self._segment(ready.segment, destroy), ready.segment.ids)
        return bool(self._in_flight)

    def _launch(self, coroutine: Coroutine[Any, Any, Reports], ids: tuple[str, ...]) -> None:
        self._in_flight[asyncio.create_task(coroutine)] = ids

    def _collect(self, *, stopping: bool = False) -> None:
        """Take the reports of what has ended.

        Raises:
            HostLostError, FailureError: a segment ended without reports, unless ``stopping``.
        """
        for task in [task for task in self._in_flight if task.done()]:
            ids = self._in_flight.pop(task)
            try:
                self.reports += task.result()
            except (FailureError, asyncio.CancelledError) as error:
                self.reports += self._cut_off(ids, error)
                if stopping or is_cancelled_exception(error):
                    continue
                if is_host_lost(error):
                    raise HostLostError from error
                raise

    async def _settle(self) -> None:
        """After reports came in: stop what a fatal failure or a retry stops."""
        task = self._start.task
        if is_fatal(task, self.reports):
            await self._stop(list(self._in_flight))
            return
        while retry := next_retry(task, self.reports):
            await self._stop([t for t, ids in self._in_flight.items() if retry.span & {*ids}])
            # What was only stopped with the span runs again, too.
            self.reports, dropped = drop(self.reports, retry.span | stopped(self.reports))
            self.destroy += dropped
            self.epoch += 1

    async def _stop(self, tasks: Sequence[asyncio.Task[Reports]]) -> None:
        """Stop these, and wait until they are over. Their reports are kept."""
        if tasks and self._host.policy.lands_first:
            # What ended in the same workflow task is no longer to be stopped: a cancel would drop
            # its result. A condition is looked at once all that has arrived is taken up.
            await workflow.wait_condition(lambda: True)
            tasks = [task for task in tasks if not task.done()]
            self._collect(stopping=True)
        if not tasks:
            return
        # An interrupt reaches a running segment at once; the cancel, by heartbeat, keeps a segment
        # whose worker died from running again.
        ids = tuple(step_id for task in tasks for step_id in self._in_flight[task])
        waiting: list[asyncio.Task[Any]] = [*tasks]
        if not self._turns.needs_no_interrupt.issuperset(ids):
            waiting.append(asyncio.create_task(self._interrupt(ids)))
        for task in tasks:
            task.cancel()
        await workflow.wait(waiting)
        self._collect(stopping=True)

    async def _interrupt(self, ids: tuple[str, ...]) -> None:
        try:
            await workflow.execute_activity_method(
                StepActivities.interrupt,
                Interrupt(run_id=self._start.run_id, epoch=self.epoch, step_ids=ids),
                **_calls.on(names.host_queue(self._host.name), _calls.INTERRUPT),
            )
        except FailureError as error:
            workflow.logger.debug("interrupt not delivered: %s", error)

    async def _segment(self, segment: Segment, destroy: tuple[SandboxRef, ...]) -> Reports:
        order = RunSteps(
            run_id=self._start.run_id,
            task_id=self._start.task.id,
            artifacts=self._start.task.artifacts,
            seed=self._start.seed,
            epoch=self.epoch,
            segment=segment,
            reports=tuple(report for report in self.reports if not report.retried),
            destroy=destroy,
            steps_total=len(self._start.task.steps),
            ending=self._ending(segment),
        )
        done: StepsDone = await self._host.call(StepActivities.run_steps, order, _calls.RUN_STEPS)
        self.outcome, self.ended = done.outcome, done.ended
        return done.reports

    def _ending(self, segment: Segment) -> Ending | None:
        """What it takes to end the episode with this segment; None if more is to be done then."""
        task = self._start.task
        counted = [report for report in self.reports if not report.retried]
        if len(counted) + len(segment.ids) != len(task.steps):
            return None
        return Ending(
            workflow_run_id=workflow.info().first_execution_run_id,
            steps=tuple(step.id for step in task.steps),
            reward=task.reward,
            retried=tuple(report for report in self.reports if report.retried),
            sandbox_types=tuple(sorted(sandbox_types(task))),
        )

    async def _turn(self, step: StepSpec) -> Reports:
        standing = tuple(report for report in self.reports if not report.retried)
        return (await self._turns.play(step, self.epoch, standing, self._host),)

    async def _wait(self, step: StepSpec) -> Reports:
        report = StepReport(
            step_id=step.id,
            type=step.type,
            epoch=self.epoch,
            status=StepStatus.COMPLETED,
            started_at=workflow.now(),
        )
        changes: dict[str, object] = {}
        try:
            await asyncio.sleep(wait_seconds(step, self._start.seed))
        except asyncio.CancelledError:
            changes = {"status": StepStatus.CANCELED}
        except UserError as error:
            changes = {
                "status": StepStatus.FAILED,
                "error_type": error_type(error),
                "error": error_text(error),
            }
        return (report.model_copy(update={**changes, "finished_at": workflow.now()}),)

    def _cut_off(self, ids: tuple[str, ...], error: BaseException) -> Reports:
        """Reports of steps whose activity ended without saying how: what it had told stands."""
        types = {step_id: self._start.task.step(step_id).type for step_id in ids}
        told: dict[str, StepReport] = {}
        if STEP_TYPE not in types.values():  # a turn's heartbeats say something else
            progress = progress_of(error)
            if progress is not None and workflow.patched(_TOLD):
                told = {report.step_id: report for report in progress.reports}
        return tuple(
            told.get(step_id)
            or StepReport(step_id=step_id, type=type, epoch=self.epoch, status=StepStatus.CANCELED)
            for step_id, type in types.items()
        )
