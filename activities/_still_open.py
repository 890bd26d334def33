"""Whether the workflow that an activity works for is still there to hear of it."""

import logging
from collections.abc import Awaitable, Callable
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

IsOpen = Callable[[], Awaitable[bool]]
"""Whether the workflow of the activity that asks is open."""

logger = logging.getLogger(__name__)
_ANSWER_WITHIN = timedelta(seconds=5)


async def is_workflow_open(client: Client) -> bool:
    """Ask the engine: the heartbeat tells of a terminated workflow only seconds later.

    An engine that does not answer has ended no workflow meanwhile, so it counts as open.
    """
    info = activity.info()
    handle = client.get_workflow_handle(info.workflow_id or "", run_id=info.workflow_run_id)
    try:
        found = await handle.describe(rpc_timeout=_ANSWER_WITHIN)
    except RPCError as error:
        logger.debug("not asked whether %s is open: %s", info.workflow_id, error)
        return error.status is not RPCStatusCode.NOT_FOUND
    return found.status is WorkflowExecutionStatus.RUNNING
