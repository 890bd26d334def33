"""Whether a worker serves episodes here."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

from agent_env import names
from agent_env._connect import external_address
from agent_env.errors import UnavailableError
from agent_env.local import worker_lock

if TYPE_CHECKING:
    from temporalio.client import Client

    from agent_env.config import Settings


async def check_served(
    client: Client, settings: Settings, *, otherwise: str = "or leave out --detach"
) -> None:
    """Make sure that somebody plays what is started.

    Args:
        client: Of the namespace.
        settings: Of this machine.
        otherwise: What else a person could do than start a worker.

    Raises:
        UnavailableError: nobody does; the message says how to start a worker.
    """
    if external_address() is None:
        if not await asyncio.to_thread(_is_served, settings):
            raise UnavailableError(
                f"no worker serves the state folder {settings.state_dir}; start one with "
                f"`episodes up`, {otherwise}"
            )
    elif not await _is_polled(client):
        raise UnavailableError(
            f"no worker polls the queue {names.TASK_QUEUE!r} of namespace {client.namespace!r}; "
            f"start one with `episodes worker`, {otherwise}"
        )


def _is_served(settings: Settings) -> bool:
    """Whether a process on this machine is the worker of this state folder."""
    lock = worker_lock(settings)
    if lock.try_acquire():
        lock.release()
        return False
    return True


async def _is_polled(client: Client) -> bool:
    """Whether a worker has polled for workflows lately, on any machine."""
    from temporalio.api.enums.v1 import TaskQueueType
    from temporalio.api.taskqueue.v1 import TaskQueue
    from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest

    found = await client.workflow_service.describe_task_queue(
        DescribeTaskQueueRequest(
            namespace=client.namespace,
            task_queue=TaskQueue(name=names.TASK_QUEUE),
            task_queue_type=TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
        )
    )
    return len(found.pollers) > 0
