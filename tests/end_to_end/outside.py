"""What the tests share that end workflows from outside."""

import asyncio
import random
from collections.abc import Awaitable
from datetime import timedelta
from typing import TypeVar

from agent_env.episode import Episode, EpisodeSpec
from agent_env.status import RunStatus
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.stage import box, command, spec

SOON = timedelta(seconds=60)
"""More than a look and the timeout of a dead worker's heartbeat take."""


NEVER = {"EPISODES_RECONCILE_EVERY_S": "3600"}
"""Once when the worker starts, then not in a test's life."""


T = TypeVar("T")


ONE = {"EPISODES_MAX_EPISODES": "1"}


def nap() -> str:
    return f"sleep 600.{random.randrange(10**6, 10**7)}"


def napping(line: str) -> EpisodeSpec:
    return spec(box(), command("long", line))


async def started(product: Product, line: str) -> Episode:
    """An episode in the middle of a step."""
    episode = await product.trainer.start(napping(line))
    await product.until(lambda: bool(processes_with(line)), within=SOON)
    await product.until(lambda: product.index.get(episode.run_id).steps_done == 1, within=SOON)
    return episode


async def terminate(product: Product, workflow_id: str, reason: str | None = None) -> None:
    await product.trainer.client.get_workflow_handle(workflow_id).terminate(reason=reason)


async def ended(product: Product, run_id: str, status: RunStatus) -> str:
    """Wait until a row has this status; the error it ended with."""
    await product.until(lambda: product.index.get(run_id).status.is_finished, within=SOON)
    row = product.index.get(run_id)
    assert row.status is status
    return row.error or ""


async def soon(result: Awaitable[T]) -> T:
    async with asyncio.timeout(SOON.total_seconds()):
        return await result
