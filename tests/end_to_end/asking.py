"""The ways to ask an episode to stop, as a person or a program has them."""

import asyncio
import subprocess
from enum import StrEnum

from temporalio.service import RPCError

from agent_env.embedded import server_program
from tests.end_to_end.conftest import Product

REASON = "wrong model"


class Who(StrEnum):
    """Who asks, and by which way."""

    PYTHON = "Episode.cancel"
    COMMAND_LINE = "episodes cancel"
    TEMPORAL_CLIENT = "a Temporal client, with a reason"
    TEMPORAL_COMMAND = "temporal workflow cancel"
    TEMPORAL_BATCH = "temporal workflow cancel --query"
    TERMINATE = "temporal workflow terminate"


_one_batch = asyncio.Lock()
"""The server runs one batch of a namespace at a time."""


async def ask(product: Product, who: Who, run_id: str) -> str:
    """Ask, wait until it has been asked, and return what the one who asked was told."""
    if who is Who.PYTHON:
        answer = await product.trainer.attach(run_id).cancel(REASON, by="ana")
        return f"{answer.state}, {answer.run.status}"
    if who is Who.COMMAND_LINE:
        cli = product.cli()
        said = await asyncio.to_thread(cli.run, "cancel", run_id, "--reason", REASON)
        assert said.code == 0, said.err
        return said.out
    if who is Who.TEMPORAL_CLIENT:
        try:
            await product.trainer.client.get_workflow_handle(run_id).cancel(reason=REASON)
        except RPCError as error:
            return str(error)
        return ""
    if who is Who.TEMPORAL_BATCH:
        return await _batch(product, run_id)
    verb = ["terminate", "--reason", REASON] if who is Who.TERMINATE else ["cancel"]
    return await _temporal(product, "workflow", *verb, "--workflow-id", run_id)


async def _batch(product: Product, run_id: str) -> str:
    """As ``temporal workflow cancel`` does for many; returns when the batch is over."""
    query = f"WorkflowId = '{run_id}'"
    async with asyncio.timeout(30), _one_batch:
        while not [found.id async for found in product.trainer.client.list_workflows(query)]:
            await asyncio.sleep(0.05)  # the engine's list lags behind
        cancel = ("workflow", "cancel", "--query", query, "--reason", REASON, "--yes")
        said = await _temporal(product, *cancel)
        while "RUNNING" in await _temporal(product, "batch", "list"):
            await asyncio.sleep(0.05)
        return said


async def _temporal(product: Product, *words: str) -> str:
    done = await asyncio.to_thread(
        subprocess.run,
        [str(server_program()), *words, "--address", product.server.address, "-o", "json"],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    return done.stdout + done.stderr
