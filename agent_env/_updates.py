"""Asks an episode's workflow for something, however often it takes to hear the answer."""

from __future__ import annotations

import asyncio
from typing import Any, TypeVar

from pydantic import BaseModel
from temporalio.client import (
    WorkflowHandle,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from agent_env.errors import UnavailableError, error_of

_T = TypeVar("_T")

_AGAIN_S = 0.2
_SLOWLY_S = 2.0
_AGAIN = (RPCStatusCode.ABORTED, RPCStatusCode.RESOURCE_EXHAUSTED)
"""Its execution goes on in a new one, or has as many updates in flight as it takes."""
_CLOSED = "AcceptedUpdateCompletedWorkflow"
"""What the engine answers when the workflow closed before the update was done."""


class OverError(Exception):
    """The workflow has closed."""


async def asked(
    handle: WorkflowHandle[Any, Any], update: str, order: BaseModel, *, id: str, answer: type[_T]
) -> _T:
    """The answer of an update. Asked again under the same id, it acts once.

    Canceling this call cancels nothing in the episode.

    Raises:
        OverError: the workflow has closed, or there is none.
        AgentEnvError: what it was refused with.
        UnavailableError: Temporal has not answered for minutes. Safe to retry.
    """
    pause_s = _AGAIN_S
    while True:
        try:
            return await handle.execute_update(update, order, id=id, result_type=answer)
        except WorkflowUpdateRPCTimeoutOrCancelledError as error:
            if isinstance(error.__cause__, asyncio.CancelledError):
                raise asyncio.CancelledError from None
            await asyncio.sleep(pause_s)  # its worker is away
        except WorkflowUpdateFailedError as failure:
            cause = failure.cause
            if (
                isinstance(cause, ApplicationError)
                and cause.type != "AcceptedUpdateCompletedWorkflow"
            ):
                raise error_of(cause.type or "", cause.message) from None
            raise OverError from None
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                raise OverError from None
            if error.status not in _AGAIN:
                raise UnavailableError(
                    f"Temporal does not answer for {handle.id!r}: {error.message}; try again"
                ) from error
            await asyncio.sleep(pause_s)
            pause_s = min(2 * pause_s, _SLOWLY_S)
