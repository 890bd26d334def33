"""Ends an episode: tear down all it owns, then write how it ended."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from temporalio import activity

from activities._heartbeat import heartbeating
from activities._segments import Segments
from activities._translate import translating
from activities.records import new_run
from agent_env import names
from agent_env.results import EpisodeResult
from agent_env.runs import Finished, RunIndex
from agent_env.sandboxes import Providers
from agent_env.specs import Finish
from agent_env.steps.runner import SegmentRunner


class FinishActivities:
    """Safe to run any number of times, on any worker: the first end that was written stands."""

    def __init__(
        self,
        index: RunIndex,
        providers: Providers,
        segments: Segments,
        runner: SegmentRunner,
        *,
        now: Callable[[], datetime],
    ) -> None:
        self._index = index
        self._providers = providers
        self._segments = segments
        self._runner = runner
        self._now = now

    @activity.defn(name=names.FINISH)
    async def finish(self, order: Finish) -> EpisodeResult:
        """Tear down by owner, then the terminal row. Answers with the row as it now is."""
        async with heartbeating():
            with translating():
                self._segments.forget(order.start.run_id)
                still_up = await self._providers.destroy_owned(
                    order.start.run_id, types=_sandbox_types(order)
                )
                await asyncio.to_thread(self._runner.clean, order.start.run_id)
                finished = Finished(
                    run=new_run(
                        order.start,
                        workflow_run_id=order.workflow_run_id,
                        namespace=order.namespace,
                        created_at=order.created_at,
                    ),
                    epoch=order.epoch,
                    outcome=order.outcome,
                    reports=order.reports,
                    still_up=tuple(still_up),
                )
                row, moved = await asyncio.to_thread(
                    self._index.finish_run, finished, at=self._now()
                )
        if not moved:
            activity.logger.info("already ended as %s", row.status, extra={"run_id": row.run_id})
        return row.result()


def _sandbox_types(order: Finish) -> set[str]:
    """Providers the episode may have used, also in a step whose worker was killed."""
    asked = [step.params.get("sandbox_type") for step in order.start.task.steps]
    used = {ref.type for report in order.reports for ref in report.sandboxes}
    return used | {type for type in asked if isinstance(type, str)}
