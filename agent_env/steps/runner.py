"""Runs the steps of one segment, concurrently where the DAG allows, and reports on each."""

import asyncio
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
from agent_env.steps._attempt import Attempt, Escaped, ForeignTasks, boundary
from agent_env.steps._segment import SegmentRun, Started, one_done
from agent_env.steps._work_dirs import WorkDirs
from agent_env.steps.base import StepContext
from agent_env.steps.catalog import Steps
from agent_env.task import StepSpec


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
        earlier: StepProgress | None,
        on_change: Callable[[StepProgress], None],
        interrupt: asyncio.Event,
    ) -> StepsDone:
        """Run a segment to its end, or until ``interrupt`` is set.

        Canceling this call stops the steps too, but reports none of them as canceled: a later
        attempt runs them again.

        Args:
            order: The segment and what came before it.
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
            earlier or StepProgress(),
            start=partial(self._start, order),
            on_change=on_change,
            now=self._now,
        )
        try:
            await self._destroy(order.destroy, interrupt)
            return await segment.run(interrupt)
        finally:
            await segment.close()

    def keep(self, order: RunSteps, done: StepsDone) -> None:
        """Keep on this host how a segment ended: its sandboxes are about to be destroyed."""
        self._dirs.keep(order.run_id, order.epoch, done.model_dump_json().encode())

    def kept(self, order: RunSteps) -> StepsDone | None:
        """How the segment ended, if a worker died after it had kept that."""
        word = self._dirs.kept(order.run_id, order.epoch)
        try:
            done = StepsDone.model_validate_json(word or b"")
        except ValidationError:
            return None  # or before it had: then nothing is destroyed yet
        return done if {r.step_id for r in done.reports} == set(order.segment.ids) else None

    async def clean(self, run_id: str) -> None:
        """Remove every folder that attempts of this run left on the host."""
        if self._dirs.has(run_id):  # seldom, and a thread costs more than to look
            await asyncio.to_thread(self._dirs.clean, run_id)

    def _start(
        self,
        order: RunSteps,
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
        return Started(attempt.stop, asyncio.create_task(self._play(attempt)))

    async def _play(self, attempt: Attempt) -> StepReport:
        try:
            return await attempt.run()
        finally:
            if "work_dir" in vars(attempt.ctx):
                await self._dirs.remove(attempt.ctx.work_dir)

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
