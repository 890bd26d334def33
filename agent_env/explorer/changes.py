"""What can be changed from the explorer: cancel, run again, force a stop that hangs."""

from __future__ import annotations

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio.service import RPCError, RPCStatusCode

from agent_env._executions import started_with
from agent_env.artifacts import ArtifactStore
from agent_env.episode import EpisodeSpec
from agent_env.errors import MoveRefusedError, RunNotFoundError, UnavailableError
from agent_env.explorer.temporal import Temporal
from agent_env.explorer.views import Changed
from agent_env.runs import RunIndex
from agent_env.runs.records import CancelState
from agent_env.trainer import Trainer

AGAIN_OF = "again_of"
"""Tag of a run that was started again: the id of the one before."""


class Changes:
    """Changes runs and groups in the name of a person.

    Args:
        index: Where requests are recorded.
        temporal: What is asked to act on them.
        store: Of artifacts.
        force_after: How long a cancel may take before it can be forced.
        now: The clock.
    """

    def __init__(
        self,
        index: RunIndex,
        temporal: Temporal,
        store: ArtifactStore,
        *,
        force_after: timedelta,
        now: Callable[[], datetime],
    ) -> None:
        self._index = index
        self._temporal = temporal
        self._store = store
        self._force_after = force_after
        self._now = now

    async def cancel_run(self, run_id: str, *, reason: str, by: str) -> Changed:
        """Ask a run to stop. Asking twice, or for one that has ended, says so.

        Raises:
            RunNotFoundError: there is no such run.
            UnavailableError: Temporal does not answer. The request is kept, and heard later.
        """
        reason = reason.strip() or f"canceled by {by}"
        try:
            trainer = await self._trainer()
        except UnavailableError as error:
            answer = await asyncio.to_thread(
                self._index.request_cancel, run_id, by=by, reason=reason, at=self._now()
            )
            if answer.state is CancelState.FINISHED:
                return Changed(
                    target=run_id, changed=False, detail=f"it ended before: {answer.run.status}"
                )
            return Changed(
                target=run_id,
                changed=answer.state is CancelState.ASKED,
                detail=f"the request is kept; it is heard once Temporal answers again: {error}",
            )
        answer = await trainer.attach(run_id).cancel(reason, by=by)
        match answer.state:
            case CancelState.ASKED:
                detail = "asked to stop; it ends CANCELED after teardown"
            case CancelState.ALREADY_ASKED:
                who = answer.run.cancel_requested_by or "somebody"
                detail = f"it was asked already, by {who}"
            case CancelState.FINISHED:
                detail = f"it ended before: {answer.run.status}"
        return Changed(target=run_id, changed=answer.state is CancelState.ASKED, detail=detail)

    async def cancel_group(self, run_group_id: str, *, reason: str, by: str) -> Changed:
        """Ask every live member of a group to stop.

        Raises:
            RunNotFoundError: there is no such group.
            UnavailableError: Temporal does not answer. Nothing was asked.
        """
        await asyncio.to_thread(self._index.group, run_group_id)
        trainer = await self._trainer()
        count = await trainer.attach_group(run_group_id).cancel(
            reason.strip() or f"canceled by {by}", by=by
        )
        detail = (
            f"{count} episode{'' if count == 1 else 's'} asked to stop"
            if count
            else "every member had ended before"
        )
        return Changed(target=run_group_id, changed=count > 0, detail=detail)

    async def run_again(self, run_id: str) -> Changed:
        """Start another run of the same task, with the same seed, tags and deadline.

        Raises:
            RunNotFoundError: there is no such run, or Temporal has lost what it was started with.
            UnavailableError: Temporal does not answer.
        """
        run = await asyncio.to_thread(self._index.get, run_id)
        trainer = await self._trainer()
        start = await self._temporal.asked(
            lambda client: started_with(client, run_id, run.workflow_run_id)
        )
        if start is None:
            raise RunNotFoundError(
                f"Temporal no longer has what {run_id!r} was started with; start it from its task"
            )
        spec = EpisodeSpec(start.task, start.seed, {**start.tags, AGAIN_OF: run_id}, start.deadline)
        episode = await trainer.start(spec)
        return Changed(
            target=run_id,
            changed=True,
            detail=f"started again as {episode.run_id}",
            run_id=episode.run_id,
        )

    async def terminate(self, run_id: str, *, reason: str, by: str) -> Changed:
        """Stop a run's workflow without its teardown, once a cancel has taken too long.

        A worker's reconciler then ends the row and removes what it can.

        Raises:
            RunNotFoundError: there is no such run.
            MoveRefusedError: it was not asked to stop, or not long enough ago.
            UnavailableError: Temporal does not answer.
        """
        run = await asyncio.to_thread(self._index.get, run_id)
        if run.status.is_finished:
            return Changed(target=run_id, changed=False, detail=f"it ended before: {run.status}")
        asked_at = run.cancel_requested_at
        if asked_at is None or self._now() - asked_at <= self._force_after:
            raise MoveRefusedError(
                f"{run_id!r} can't be forced: cancel it first, and wait for "
                f"{self._force_after.total_seconds():g} s"
            )
        why = f"forced by {by}: {reason.strip() or run.cancel_requested_reason or 'no reason'}"
        try:
            await self._temporal.asked(
                lambda client: client.get_workflow_handle(run_id).terminate(reason=why)
            )
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            detail = "its workflow is over; its row is ended at the next look of a worker"
            return Changed(target=run_id, changed=False, detail=detail)
        return Changed(
            target=run_id,
            changed=True,
            detail="stopped without its own teardown; a worker ends its row and cleans up after it",
        )

    async def _trainer(self) -> Trainer:
        # A question, since a client is there long after its server has gone.
        client = await self._temporal.client()
        await self._temporal.asked(lambda found: found.service_client.check_health())
        return Trainer(client, self._index, self._store)
