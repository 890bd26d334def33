"""Gives back what a dead worker of this host held, so that it is tried again at once."""

import logging
from collections.abc import Iterable, Sequence
from typing import Any, NamedTuple

from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError

logger = logging.getLogger(__name__)


class HeldAttempt(NamedTuple):
    """What it takes to fail an activity attempt by id from another process."""

    workflow_id: str
    workflow_run_id: str
    activity_id: str


async def fail_abandoned(client: Client, attempts: Iterable[HeldAttempt]) -> None:
    """Fail each attempt; it would end only at its heartbeat timeout otherwise.

    What it heartbeat last goes with the failure: an attempt that is tried once by the engine is
    tried again by the workflow, which must know how far it got.
    """
    for attempt in attempts:
        handle = client.get_async_activity_handle(
            workflow_id=attempt.workflow_id,
            run_id=attempt.workflow_run_id,
            activity_id=attempt.activity_id,
        )
        try:
            details = await _last_heartbeat(client, attempt)
            await handle.fail(ApplicationError("its worker died", *details, type="WorkerDied"))
        except RPCError as error:
            logger.debug("attempt of %s is over already: %s", attempt.workflow_id, error)


async def _last_heartbeat(client: Client, attempt: HeldAttempt) -> Sequence[Any]:
    workflow = client.get_workflow_handle(attempt.workflow_id, run_id=attempt.workflow_run_id)
    for pending in (await workflow.describe()).raw_description.pending_activities:
        if pending.activity_id == attempt.activity_id:
            return await client.data_converter.decode(pending.heartbeat_details.payloads)
    return ()
