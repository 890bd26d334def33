"""Starts a workflow under an id of its own, and hears whether it was listed."""

from __future__ import annotations

import asyncio
from contextlib import suppress
from typing import Any

from temporalio.client import (
    Client,
    WorkflowExecutionStatus,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import (
    ApplicationError,
    TerminatedError,
    WorkflowAlreadyStartedError,
)
from temporalio.service import RPCError, RPCStatusCode

from agent_env import names
from agent_env.errors import (
    ConflictError,
    IndexUnavailableError,
    RunNotFoundError,
    UnavailableError,
    error_of,
)
from agent_env.runs import RunIndex
from agent_env.specs import EpisodeStart, GroupStart

_ROW_PAUSES_S = (0.005, 0.01, 0.02, 0.04, 0.08, 0.16, 0.32)
"""How a row that is about to be written is waited for, in seconds."""


class Starter:
    """Starts episodes and groups in one namespace, listed in one index."""

    def __init__(self, client: Client, index: RunIndex) -> None:
        self._client = client
        self._index = index

    async def begun(
        self,
        workflow: str,
        workflow_id: str,
        start: EpisodeStart | GroupStart,
        result: type,
        *,
        reuse: WorkflowIDReusePolicy = WorkflowIDReusePolicy.REJECT_DUPLICATE,
    ) -> WorkflowHandle[Any, Any]:
        """Start a workflow, unless its id is taken by one that was ever listed."""
        try:
            return await self._client.start_workflow(
                workflow,
                start,
                id=workflow_id,
                task_queue=names.TASK_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                id_reuse_policy=reuse,
                result_type=result,
                request_eager_start=True,
            )
        except WorkflowAlreadyStartedError:
            if reuse is WorkflowIDReusePolicy.REJECT_DUPLICATE and await self._was_never_listed(
                workflow_id
            ):
                again = WorkflowIDReusePolicy.ALLOW_DUPLICATE_FAILED_ONLY
                return await self.begun(workflow, workflow_id, start, result, reuse=again)
            raise await self._conflict(workflow_id) from None
        except RPCError as error:
            raise UnavailableError(
                f"Temporal did not take {workflow_id!r}: {error.message}; try again"
            ) from error

    async def has_row(self, run_id: str, workflow_run_id: str | None) -> bool:
        """Whether the row of this workflow appears soon. False says nothing: ask the workflow."""
        for pause_s in _ROW_PAUSES_S:
            await asyncio.sleep(pause_s)
            try:
                row = await asyncio.to_thread(self._index.get, run_id)
            except RunNotFoundError:
                continue
            except IndexUnavailableError:
                return False
            return row.workflow_run_id == workflow_run_id
        return False

    async def listed(self, handle: WorkflowHandle[Any, Any], answer: type) -> None:
        """Wait until the workflow has listed what it stands for, or hear why it can't."""
        try:
            await handle.execute_update(names.LISTED, result_type=answer)
        except WorkflowUpdateFailedError as failure:
            raise refusal(failure.cause) from None
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise UnavailableError(
                    f"Temporal does not say whether {handle.id!r} was listed: {error.message}; "
                    "attach to it, or try again with its id"
                ) from error
            await self._refused_already(handle)

    async def _refused_already(self, handle: WorkflowHandle[Any, Any]) -> None:
        """The workflow has closed: raise what kept it from being listed, if anything did."""
        try:
            await handle.result()
        except WorkflowFailureError as failure:
            if isinstance(failure.cause, ApplicationError) and not failure.cause.details:
                raise refusal(failure.cause) from None
            if isinstance(failure.cause, TerminatedError) and not await self._is_listed(handle.id):
                raise UnavailableError(
                    f"{handle.id!r} was terminated in Temporal before a worker could list it: "
                    f"{failure.cause.message}; start it again under another id"
                ) from None

    async def _is_listed(self, workflow_id: str) -> bool:
        """Whether there is a run or a group of this id."""
        with suppress(RunNotFoundError):
            await asyncio.to_thread(self._index.get, workflow_id)
            return True
        with suppress(RunNotFoundError):
            await asyncio.to_thread(self._index.group, workflow_id)
            return True
        return False

    async def _was_never_listed(self, workflow_id: str) -> bool:
        """Whether the closed workflow of this id is one that could not be listed: no run has it."""
        handle = self._client.get_workflow_handle(workflow_id)
        if (await handle.describe()).status is not WorkflowExecutionStatus.FAILED:
            return False
        try:
            await handle.result()
        except WorkflowFailureError as failure:
            cause = failure.cause
            return isinstance(cause, ApplicationError) and not cause.details
        return False

    async def _conflict(self, workflow_id: str) -> ConflictError:
        found = await self._client.get_workflow_handle(workflow_id).describe()
        status = found.status.name if found.status is not None else "of unknown status"
        return ConflictError(
            f"the id {workflow_id!r} is taken by {found.workflow_type} started at "
            f"{found.start_time:%Y-%m-%d %H:%M:%S} UTC, {status}; attach to it, or use another id"
        )


def refusal(cause: BaseException) -> BaseException:
    """What kept a run or a group from being listed, as the error it was where it happened."""
    if isinstance(cause, ApplicationError):
        return error_of(cause.type or "", cause.message)
    return cause
