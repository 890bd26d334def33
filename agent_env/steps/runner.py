"""Runs the steps of one segment, concurrently where the DAG allows, and reports on each."""

import asyncio
import contextlib
import logging
from collections.abc import Callable, Sequence
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

from pydantic import JsonValue, ValidationError

from agent_env.artifacts import ArtifactStore
from agent_env.errors import AgentEnvError, SandboxUnavailableError, error_text, error_type
from agent_env.results import SandboxRef, StepReport
from agent_env.sandboxes import Providers
from agent_env.specs import RunSteps, StepProgress, StepsDone
from agent_env.status import StepStatus
from agent_env.steps._attempt import Attempt, Escaped, ForeignTasks, boundary
from agent_env.steps._segment import SegmentRun, Started, one_done
from agent_env.steps._work_dirs import WorkDirs
from agent_env.steps.base import StepContext
from agent_env.steps.catalog import Steps
from agent_env.task import StepSpec

logger = logging.getLogger(__name__)


class SegmentRunner:
    """Knows nothing of Temporal: the activity around it heartbeats what ``on_change`` gets.

    Args:
        steps: The step types.
        providers: The sandbox providers.
        store: The artifacts.
        work_root: Where attempts have their folders.
        cancel_grace: How long a canceled step may take to end; then it is left behind.
        now: The clock that reports are timed by.
    """

    def __init__(
        self,
        *,
        steps: Steps,
        providers: Providers,
        store: ArtifactStore,
        work_root: Path,
        cancel_grace: timedelta,
        now: Callable[[], datetime],
    ) -> None:
        self._steps = steps
        self._providers = providers
        self._store = store
        self._dirs = WorkDirs(work_root)
        self._grace = cancel_grace
        self._now = now
        self._tasks = ForeignTasks()

    async def run(
        self,
        order: RunSteps,
        *,
        execution: str,
        earlier: StepProgress | None,
        on_change: Callable[[StepProgress], None],
        interrupt: asyncio.Event,
    ) -> StepsDone:
        """Run a segment to its end, or until ``interrupt`` is set.

        Canceling this call stops the steps too, but reports none of them as canceled: a later
        attempt runs them again.

        Args:
            order: The segment and what came before it.
            execution: Which workflow execution it is of. What an attempt for it that died here has
                kept stands; another execution may have had the same ``run_id``.
            earlier: The last word of an attempt that was cut off: its reports stand.
            on_change: Called with everything so far whenever a step starts, progresses or ends.
            interrupt: Set when the episode was canceled or its deadline passed.

        Returns:
            A report for each step of the segment, also for those stopped or never started. They
            are in the order in which the steps ended.

        Raises:
            SandboxUnavailableError: a sandbox in ``order.destroy`` is still up. Safe to retry.
        """
        segment = SegmentRun(
            order,
            self._with_kept(earlier or StepProgress(), order, execution),
            start=partial(self._start, order, execution),
            on_change=on_change,
            now=self._now,
        )
        try:
            await self._destroy(order.destroy, interrupt)
            return await segment.run(interrupt)
        finally:
            await segment.close()

    def kept(self, run_id: str, *, execution: str, epoch: int) -> tuple[StepReport, ...]:
        """Reports of an epoch that are kept on this host, in the order of the steps' ends."""
        found: list[StepReport] = []
        for line in self._dirs.kept(run_id, execution, epoch):
            with contextlib.suppress(ValidationError):  # cut off
                found.append(StepReport.model_validate_json(line))
        return tuple(found)

    async def clean(self, run_id: str) -> None:
        """Remove every folder that attempts of this run left on the host."""
        if self._dirs.has(run_id):  # seldom, and a thread costs more than to look
            await asyncio.to_thread(self._dirs.clean, run_id)

    def _start(
        self,
        order: RunSteps,
        execution: str,
        spec: StepSpec,
        reports: Sequence[StepReport],
        on_progress: Callable[[JsonValue], None],
    ) -> Started | None:
        key = (order.run_id, spec.id, order.epoch)
        # A heartbeat says only some time later which steps have started; this says it at once.
        if not spec.rerun and not self._dirs.mark_started(*key):
            return None
        ctx = StepContext(
            run_id=order.run_id,
            step_id=spec.id,
            epoch=order.epoch,
            seed=order.seed,
            artifacts=order.artifacts,
            reports=reports,
            providers=self._providers,
            store=self._store,
            make_work_dir=lambda: self._dirs.make(*key),
            on_progress=on_progress,
        )
        attempt = Attempt(spec, ctx, self._steps, self._tasks, self._grace, self._now)
        return Started(attempt.stop, asyncio.create_task(self._play(attempt, execution)))

    async def _play(self, attempt: Attempt, execution: str) -> StepReport:
        try:
            report = await attempt.run()
            self._keep(attempt.ctx.run_id, execution, report)
            return report
        finally:
            if "work_dir" in vars(attempt.ctx):
                await self._dirs.remove(attempt.ctx.work_dir)

    def _keep(self, run_id: str, execution: str, report: StepReport) -> None:
        """Keep how a step ended: a heartbeat tells of it later, or never if this process dies."""
        if report.status not in (StepStatus.COMPLETED, StepStatus.FAILED):
            return
        try:
            line = report.model_dump_json().encode()
            self._dirs.keep(run_id, execution, report.epoch, line)
        except OSError as error:
            logger.warning("step %r of %s is not kept: %s", report.step_id, run_id, error)

    def _with_kept(self, earlier: StepProgress, order: RunSteps, execution: str) -> StepProgress:
        kept = self.kept(order.run_id, execution=execution, epoch=order.epoch)
        found = {report.step_id: report for report in kept}
        found |= {report.step_id: report for report in earlier.reports}
        return earlier.model_copy(update={"reports": tuple(found.values())})

    async def _destroy(self, refs: Sequence[SandboxRef], interrupt: asyncio.Event) -> None:
        """Remove the sandboxes of a retried span. An interrupt leaves that to teardown."""
        tasks = [asyncio.create_task(self._destroy_one(ref)) for ref in refs]
        for task in tasks:
            self._tasks.add(task)
        try:
            while not interrupt.is_set() and not all(task.done() for task in tasks):
                await one_done([task for task in tasks if not task.done()], interrupt)
        finally:
            for task in tasks:
                task.cancel()  # no effect on one that is done
        if interrupt.is_set():
            return
        for task in tasks:
            if task.cancelled():
                raise SandboxUnavailableError("a sandbox's provider gave up destroying it")
            if error := task.result():
                raise error

    async def _destroy_one(self, ref: SandboxRef) -> AgentEnvError | None:
        """What kept it from being destroyed."""
        try:
            with boundary():
                await self._providers.open(ref.type).destroy(ref)
        except Escaped as escaped:
            error = escaped.error
            if isinstance(error, AgentEnvError):
                return error
            return SandboxUnavailableError(
                f"sandbox {ref.name!r} can't be destroyed: {error_type(error)}: {error_text(error)}"
            )
        return None
