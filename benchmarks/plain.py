"""The yardstick: an episode as a hand-written workflow, one plain activity for each thing done.

Same work as the product's own: the same steps in the same sandbox, the same two writes of the same
run index, the same teardown. It lacks what makes an episode durable; see benchmarks/episodes.py.
"""

import asyncio
from datetime import UTC, datetime, timedelta

from temporalio import activity, workflow

with workflow.unsafe.imports_passed_through():
    from activities.records import new_run
    from agent_env.outcome import outcome
    from agent_env.plan import PlannedStep, Segment
    from agent_env.results import StepReport
    from agent_env.runs import Finished
    from agent_env.specs import EpisodeStart, RunSteps
    from agent_env.steps.runner import SegmentRunner
    from agent_env.worker import Services

_TIMEOUT = timedelta(minutes=1)


class PlainActivities:
    """One activity for each thing done."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._runner = SegmentRunner(
            steps=services.steps,
            providers=services.providers,
            store=services.store,
            work_root=services.settings.state_dir / "work",
            cancel_grace=timedelta(seconds=30),
            now=lambda: datetime.now(UTC),
        )

    @activity.defn(name="plain.record_start")
    def record_start(self, start: EpisodeStart) -> None:
        """Write the RUNNING row."""
        run = new_run(
            start, workflow_run_id="plain", namespace="default", created_at=datetime.now(UTC)
        )
        self._services.index.open_run(run, host="plain", room=1_000_000, at=datetime.now(UTC))

    @activity.defn(name="plain.step")
    async def step(self, order: RunSteps) -> StepReport:
        """Run one step."""
        done = await self._runner.run(
            order,
            execution=activity.info().workflow_run_id or "",
            earlier=None,
            on_change=lambda _: None,
            interrupt=asyncio.Event(),
        )
        return done.reports[0]

    @activity.defn(name="plain.teardown")
    async def teardown(self, run_id: str) -> None:
        """Destroy the sandboxes."""
        await self._services.providers.destroy_owned(run_id)

    @activity.defn(name="plain.record_end")
    def record_end(self, start: EpisodeStart, reports: list[StepReport]) -> float | None:
        """Write the terminal row."""
        run = new_run(
            start, workflow_run_id="plain", namespace="default", created_at=datetime.now(UTC)
        )
        ended = outcome(start.task, reports)
        finished = Finished(run=run, epoch=1, outcome=ended, reports=tuple(reports))
        self._services.index.finish_run(finished, at=datetime.now(UTC))
        return ended.reward


@workflow.defn(name="plain.Episode")
class PlainWorkflow:
    """Record, each step, teardown, record."""

    @workflow.run
    async def run(self, start: EpisodeStart) -> float | None:
        """Play it; the reward."""
        await workflow.execute_activity_method(
            PlainActivities.record_start, start, start_to_close_timeout=_TIMEOUT
        )
        reports: list[StepReport] = []
        for step in start.task.steps:
            order = RunSteps(
                run_id=start.run_id,
                task_id=start.task.id,
                artifacts=start.task.artifacts,
                seed=start.seed,
                epoch=1,
                segment=Segment(steps=(PlannedStep(spec=step),)),
                reports=tuple(reports),
                steps_total=len(start.task.steps),
            )
            reports.append(
                await workflow.execute_activity_method(
                    PlainActivities.step, order, start_to_close_timeout=_TIMEOUT
                )
            )
        await workflow.execute_activity_method(
            PlainActivities.teardown, start.run_id, start_to_close_timeout=_TIMEOUT
        )
        return await workflow.execute_activity_method(
            PlainActivities.record_end, args=[start, reports], start_to_close_timeout=_TIMEOUT
        )
