"""Lists an episode in the place of a worker that has not come yet."""

from __future__ import annotations

import asyncio
from datetime import datetime

from temporalio.client import Client

from agent_env._executions import described, started_with
from agent_env.runs import RunIndex, new_run


async def list_unlisted(client: Client, index: RunIndex, run_id: str, *, at: datetime) -> bool:
    """List an episode as QUEUED that Temporal has and no worker has listed yet.

    Returns:
        False if Temporal has no open episode of this id.

    Raises:
        RPCError: Temporal does not answer. Safe to retry.
        IndexUnavailableError: the run index does not answer. Safe to retry.
    """
    found = await described(client, run_id)
    if found is None or not found.is_open:
        return False
    start = await started_with(client, run_id, found.run_id)
    if start is None:
        return False
    run = new_run(
        start,
        workflow_run_id=found.run_id,
        namespace=client.namespace,
        created_at=found.started_at,
    )
    # A worker may be faster, which is as good.
    await asyncio.to_thread(index.restore_run, run, host=None, at=at)
    return True
