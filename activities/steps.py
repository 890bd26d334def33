"""Runs a segment of an episode's steps, and stops one where it runs."""

import asyncio

from temporalio import activity

from activities._progress import Progress
from activities._segments import Segments, this_attempt
from activities._successes import Successes
from activities._translate import refuse_elsewhere, translating, worker_stops
from agent_env import names
from agent_env.runs import RunIndex
from agent_env.specs import CancelMembers, Interrupt, RunSteps, StepProgress, StepsDone
from agent_env.steps.runner import SegmentRunner


class StepActivities:
    """Steps on this host. A later attempt goes on after what was heartbeat, or kept on the host."""

    def __init__(
        self,
        runner: SegmentRunner,
        segments: Segments,
        index: RunIndex,
        *,
        successes: Successes,
        host: str,
    ) -> None:
        self._runner = runner
        self._segments = segments
        self._index = index
        self._successes = successes
        self._host = host

    @activity.defn(name=names.RUN_STEPS)
    async def run_steps(self, order: RunSteps) -> StepsDone:
        """Run the segment; how each step ended is in its report, never an exception.

        An episode that it brings to a success is ended here, too.
        """
        earlier = _earlier(activity.info()) or order.earlier
        with translating():
            refuse_elsewhere(order.host, self._host)
        with (
            translating(),
            self._segments.running(
                order.run_id, order.epoch, order.segment.ids, this_attempt()
            ) as interrupted,
        ):
            async with Progress(order, self._index, lambda: len(self._segments)) as progress:
                running = asyncio.create_task(self._run(order, earlier, progress, interrupted))
                try:
                    done = await asyncio.shield(running)
                    if done.outcome is None:
                        await self._segments.cancel_heard(order.run_id)
                    return done
                except asyncio.CancelledError:
                    details = activity.cancellation_details()
                    if details is not None and details.cancel_requested:
                        interrupted.set()  # stop the steps and say how each stood
                        return await running
                    running.cancel()  # this worker stops, or the attempt is not ours any more
                    await asyncio.wait([running])
                    # The engine keeps no details of a failure that it tries again itself.
                    activity.heartbeat(progress.last)
                    raise worker_stops(progress.last) from None

    async def _run(
        self,
        order: RunSteps,
        earlier: StepProgress | None,
        progress: Progress,
        interrupted: asyncio.Event,
    ) -> StepsDone:
        info = activity.info()
        if order.ending is not None and not _is_first(order, info):
            before = await self._successes.ended_before(order, order.ending)
            if before is not None:
                return before
        execution = info.workflow_run_id or ""
        done = await self._runner.run(
            order,
            execution=execution,
            earlier=earlier,
            on_change=progress.changed,
            interrupt=interrupted,
        )
        if order.ending is None or interrupted.is_set():
            return done
        return await self._successes.ended(order, order.ending, done, execution=execution)

    @activity.defn(name=names.INTERRUPT)
    async def interrupt(self, order: Interrupt) -> None:
        """Stop segments at once: a heartbeat would tell them only seconds later."""
        self._segments.interrupt(order)

    @activity.defn(name=names.INTERRUPT_GROUP)
    async def interrupt_group(self, order: CancelMembers) -> None:
        """Stop all that runs here of a group that is being canceled: its cancels take longer."""
        with translating():
            members = await asyncio.to_thread(self._index.running_members, order.run_group_id)
        for run_id, host in members.items():
            if host == self._host:
                self._segments.stop_ahead(run_id)


def _is_first(order: RunSteps, info: activity.Info) -> bool:
    """Whether none can have been before: what is handed over without a queue is tried once."""
    return order.host is not None and info.attempt == 1


def _earlier(info: activity.Info) -> StepProgress | None:
    if not info.heartbeat_details:
        return None
    return StepProgress.model_validate(info.heartbeat_details[0])
