"""Ends an episode: tear down all it owns, then write how it ended."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from temporalio import activity

from activities._heartbeat import heartbeating
from activities._segments import Segments, this_attempt
from activities._still_open import IsOpen
from activities._translate import refuse_elsewhere, translating, workflow_is_over
from agent_env import names
from agent_env.disagreements import scored
from agent_env.results import EpisodeResult, SandboxRef, StepReport, used_types
from agent_env.runs import Ended, Finished, RunIndex, new_run
from agent_env.sandboxes import Providers
from agent_env.specs import Finish, Repair, Repaired
from agent_env.status import StepStatus
from agent_env.steps.runner import SegmentRunner
from agent_env.task import sandbox_types
from agent_env.turn_runner import TurnRunner


class FinishActivities:
    """Safe to run any number of times, on any worker: the first end that was written stands."""

    def __init__(
        self,
        index: RunIndex,
        providers: Providers,
        segments: Segments,
        runner: SegmentRunner,
        turn_runner: TurnRunner,
        *,
        is_open: IsOpen,
        host: str,
        now: Callable[[], datetime],
    ) -> None:
        self._index = index
        self._providers = providers
        self._segments = segments
        self._runner = runner
        self._turn_runner = turn_runner
        self._is_open = is_open
        self._host = host
        self._now = now

    @activity.defn(name=names.FINISH)
    async def finish(self, order: Finish) -> EpisodeResult:
        """Tear down by owner, then the terminal row. Answers with the row as it now is.

        A workflow that was terminated meanwhile has another end, and the reconciler writes it.
        """
        run_id = order.start.run_id
        async with heartbeating():
            with translating(), self._segments.held(this_attempt()):
                refuse_elsewhere(order.host, self._host)
                reports = self._with_kept(order)  # which teardown removes
                outcome = order.outcome
                if reports != order.reports:
                    outcome = scored(outcome, reports, order.start.task.reward)
                types = sandbox_types(order.start.task) | used_types(reports)
                still_up = await self._torn_down(run_id, types)
                if not await self._is_open():
                    raise workflow_is_over()
                finished = Finished(
                    run=new_run(
                        order.start,
                        workflow_run_id=order.workflow_run_id,
                        namespace=order.namespace,
                        created_at=order.created_at,
                    ),
                    epoch=order.epoch,
                    outcome=outcome,
                    reports=reports,
                    still_up=still_up,
                )
                row, moved = await asyncio.to_thread(
                    self._index.finish_run, finished, at=self._now()
                )
        if not moved:
            activity.logger.info("already ended as %s", row.status, extra={"run_id": row.run_id})
        return row.result()

    @activity.defn(name=names.REPAIR)
    async def repair(self, order: Repair) -> Repaired:
        """End a run whose workflow is over: stop what of it runs here, tear down, then the row.

        A row may have ended meanwhile, or before: the end that came from outside stands.
        """
        async with heartbeating():
            with translating():
                steps = await asyncio.to_thread(self._index.steps, order.run_id)
                still_up = await self._torn_down(
                    order.run_id, {*order.sandbox_types, *used_types(steps)}
                )
                ended = Ended(
                    run_id=order.run_id,
                    workflow_run_id=order.workflow_run_id,
                    outcome=order.outcome,
                    is_own=order.is_own,
                    reward_step=order.reward_step,
                    still_up=still_up,
                    overrules=order.overrules,
                )
                row, moved = await asyncio.to_thread(self._index.end_run, ended, at=self._now())
        detail = f"{row.status} {row.error or ''}".rstrip()
        activity.logger.info("ended from outside: %s", detail, extra={"run_id": row.run_id})
        return Repaired(target=order.run_id, changed=moved, detail=detail)

    def _with_kept(self, order: Finish) -> tuple[StepReport, ...]:
        """The reports, with those of steps that ended here and died with their worker untold."""
        kept = self._runner.kept(
            order.start.run_id, execution=order.workflow_run_id, epoch=order.epoch
        )
        ends = {(report.step_id, report.epoch): report for report in kept}
        return tuple(
            ends.get((each.step_id, each.epoch), each)
            if each.status is StepStatus.CANCELED and not each.retried
            else each
            for each in order.reports
        )

    async def _torn_down(self, run_id: str, types: set[str]) -> tuple[SandboxRef, ...]:
        """Stop and remove everything of the run that this host can reach; what is still up."""
        await self._segments.stopped(run_id)
        await self._turn_runner.close(run_id)
        still_up = await self._providers.destroy_owned(run_id, types=types)
        await self._runner.clean(run_id)
        return tuple(still_up)
