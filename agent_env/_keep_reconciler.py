"""Sees to it that a namespace has its reconciler: one workflow, however many workers there are."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from temporalio.client import Client
from temporalio.common import WorkflowIDConflictPolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError

from agent_env import names
from agent_env._executions import has_listings
from agent_env.specs import Reconcile

_LOOK_AGAIN_S = 300.0
"""How soon a reconciler that somebody ended is started again, in seconds."""
_TRY_AGAIN_S = 30.0
_SUMMARY = "Ends the runs whose workflow could not: terminated, timed out or deleted ones."

logger = logging.getLogger(__name__)


@asynccontextmanager
async def reconciler_kept(client: Client) -> AsyncGenerator[None]:
    """While entered, start the namespace's reconciler whenever it does not run."""
    keeping = asyncio.create_task(_keep(client))
    try:
        yield
    finally:
        keeping.cancel()
        await asyncio.wait([keeping])


async def _keep(client: Client) -> None:
    while True:
        try:
            if not await has_listings(client):
                logger.info("this Temporal server can't list workflows: nothing is reconciled")
                return
            await _start(client)
        except RPCError as error:
            logger.warning("the reconciler is not started, trying again: %s", error.message)
            await asyncio.sleep(_TRY_AGAIN_S)
        else:
            await asyncio.sleep(_LOOK_AGAIN_S)


async def _start(client: Client) -> None:
    try:
        await client.start_workflow(
            names.RECONCILER,
            Reconcile(),
            id=names.RECONCILER_ID,
            task_queue=names.TASK_QUEUE,
            id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
            static_summary=_SUMMARY,
        )
    except WorkflowAlreadyStartedError:
        logger.debug("the reconciler runs already")
