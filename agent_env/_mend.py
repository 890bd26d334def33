"""Repairs that need no host: a run is listed again, a cancel is asked for again."""

from __future__ import annotations

import asyncio
from datetime import datetime

from temporalio.client import (
    Client,
    WorkflowUpdateFailedError,
    WorkflowUpdateRPCTimeoutOrCancelledError,
)
from temporalio.service import RPCError, RPCStatusCode

from agent_env import names
from agent_env._executions import described, started_with
from agent_env.disagreements import Disagreement
from agent_env.runs import RunIndex, new_run
from agent_env.specs import Placement

_LISTED_WITHIN_S = 10.0
"""How long an episode may take to say where it is, in seconds."""


async def restored(client: Client, index: RunIndex, found: Disagreement, *, at: datetime) -> bool:
    """List a run that is open and has no row. False if that could not be done, or is not needed."""
    start = await started_with(client, found.target, found.workflow_run_id)
    latest = await described(client, found.target, found.workflow_run_id)
    if start is None or latest is None:
        return False
    workflow = client.get_workflow_handle(found.target, run_id=latest.run_id)
    try:
        async with asyncio.timeout(_LISTED_WITHIN_S):
            # By id: asked again, it is the same question, however often it goes unanswered.
            place = await workflow.execute_update(
                names.LISTED, id="reconcile", result_type=Placement
            )
    except (TimeoutError, WorkflowUpdateFailedError, WorkflowUpdateRPCTimeoutOrCancelledError):
        return False
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    run = new_run(
        start,
        workflow_run_id=latest.run_id,
        namespace=client.namespace,
        created_at=latest.started_at,
    )
    return await asyncio.to_thread(index.restore_run, run, host=place.host, at=at)


async def canceled(client: Client, found: Disagreement) -> bool:
    """Ask Temporal for a cancel that did not reach it. False if the workflow is over by now."""
    workflow = client.get_workflow_handle(found.target, run_id=found.workflow_run_id)
    try:
        await workflow.cancel(reason=found.reason)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
        return False
    return True
