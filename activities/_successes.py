"""Ends an episode with its last segment, where nothing else is left to decide."""

import asyncio
import time
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import activity

from activities._still_open import IsOpen
from agent_env.errors import RunIndexError, SandboxUnavailableError, error_text
from agent_env.outcome import success
from agent_env.results import used_types
from agent_env.runs import RunIndex, RunRecord, Succeeded
from agent_env.sandboxes import Providers
from agent_env.specs import Ending, RunSteps, StepsDone
from agent_env.steps.runner import SegmentRunner

_PATIENCE = timedelta(seconds=1)
"""With teardown, and then with the index. What takes longer is left to ``finish``: who waits for
the outcome alone shall have it soon."""


_UNNOTICED_S = 0.1
"""What teardown may take until the engine is asked whether the episode was terminated meanwhile."""


class Successes:
    """Tears a successful episode down and writes its row, so that it needs no ``finish``.

    That is a round trip through the engine less. Whatever stands in the way is no error: the
    workflow has it finished then, as it does for every other end.
    """

    def __init__(
        self,
        index: RunIndex,
        providers: Providers,
        runner: SegmentRunner,
        *,
        is_open: IsOpen,
        host: str,
        now: Callable[[], datetime],
    ) -> None:
        self._index = index
        self._providers = providers
        self._runner = runner
        self._is_open = is_open
        self._host = host
        self._now = now

    async def ended_before(self, order: RunSteps, ending: Ending) -> StepsDone | None:
        """What an attempt would have answered that died after it had ended the episode, if so.

        What it had kept of the steps is gone then, and they must not run again.
        """
        try:
            row = await asyncio.to_thread(self._index.get, order.run_id)
            if row.workflow_run_id != ending.workflow_run_id or not row.status.is_finished:
                return None
            steps = await asyncio.to_thread(self._index.steps, order.run_id)
        except RunIndexError:
            return None
        mine = {*order.segment.ids}
        reports = tuple(s for s in steps if s.step_id in mine and s.epoch == order.epoch)
        outcome = success(ending.steps, (*order.reports, *reports), reward=ending.reward)
        if outcome is None:
            return None
        return StepsDone(reports=reports, outcome=outcome, ended=row.result())

    async def ended(
        self, order: RunSteps, ending: Ending, done: StepsDone, *, execution: str
    ) -> StepsDone:
        """What ``run_steps`` answers: a success is decided, and ended if nothing is in the way."""
        outcome = success(ending.steps, (*order.reports, *done.reports), reward=ending.reward)
        if outcome is None:
            return done
        done = done.model_copy(update={"outcome": outcome})
        # Who comes after a death in the middle must not run the steps again, without a sandbox.
        kept = self._runner.kept(order.run_id, execution=execution, epoch=order.epoch)
        if not {report.step_id for report in kept}.issuperset(order.segment.ids):
            return done
        types = {*ending.sandbox_types, *used_types((*order.reports, *done.reports))}
        began = time.monotonic()
        if not await self._is_torn_down(order.run_id, types):
            return done
        if time.monotonic() - began > _UNNOTICED_S and not await self._is_open():
            return done
        succeeded = Succeeded(
            run_id=order.run_id,
            workflow_run_id=ending.workflow_run_id,
            host=self._host,
            epoch=order.epoch,
            outcome=outcome,
            reports=(*ending.retried, *order.reports, *done.reports),
        )
        row = await self._written(succeeded)
        if row is None:
            return done
        await self._runner.clean(order.run_id)
        return done.model_copy(update={"ended": row.result()})

    async def _is_torn_down(self, run_id: str, types: set[str]) -> bool:
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                return not await self._providers.destroy_owned(run_id, types=types)
        except (TimeoutError, SandboxUnavailableError):
            return False

    async def _written(self, succeeded: Succeeded) -> RunRecord | None:
        # A write that is given up may still be done later: it says what `finish` says.
        try:
            async with asyncio.timeout(_PATIENCE.total_seconds()):
                return await asyncio.to_thread(self._index.succeed_run, succeeded, at=self._now())
        except (TimeoutError, RunIndexError) as error:
            activity.logger.debug("its end is left to `finish`: %s", error_text(error))
            return None
