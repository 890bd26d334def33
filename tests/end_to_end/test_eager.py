"""Work handed to the worker with the answer to its workflow task, and what happens if it is not."""

import asyncio
import random
from collections.abc import AsyncGenerator
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.api.enums.v1 import EventType
from temporalio.client import Client
from temporalio.testing import WorkflowEnvironment

from agent_env import names
from agent_env.config import Settings
from agent_env.embedded import server_program
from agent_env.episode import EpisodeSpec
from agent_env.plugin import EpisodePlugin
from agent_env.status import RunStatus
from agent_env.task import Task
from agent_env.trainer import Trainer
from agent_env.worker import open_services, serving
from tests.end_to_end.conftest import Product, processes_with

PID: JsonValue = {"id": "pid", "type": "python", "function": "os:getpid"}
WAIT: JsonValue = {"id": "wait", "type": "wait", "seconds": 0}
"""Comes after the last segment, so that the episode can't end with that."""
BARE = EpisodeSpec.from_task(Task.of({"id": "bare", "steps": [PID]}))
WAITS = EpisodeSpec.from_task(Task.of({"id": "waits", "steps": [PID, WAIT]}))


async def queues(client: Client, run_id: str) -> list[tuple[str, str]]:
    """Type and task queue of each activity of a run, in order."""
    history = await client.get_workflow_handle(run_id).fetch_history()
    scheduled = [
        event.activity_task_scheduled_event_attributes
        for event in history.events
        if event.event_type == EventType.EVENT_TYPE_ACTIVITY_TASK_SCHEDULED
    ]
    return [(one.activity_type.name, one.task_queue.name) for one in scheduled]


async def test_steps_and_the_end_need_no_queue(product: Product) -> None:
    with product.worker():
        episode = await product.trainer.start(WAITS)
        result = await episode.result()

    assert result.status is RunStatus.COMPLETED
    assert await queues(product.trainer.client, episode.run_id) == [
        (names.RUN_STEPS, names.TASK_QUEUE),
        (names.FINISH, names.TASK_QUEUE),
    ]


async def test_a_success_ends_with_its_last_segment(product: Product) -> None:
    with product.worker():
        episode = await product.trainer.start(BARE)
        result = await episode.result()

    assert result.status is RunStatus.COMPLETED
    assert result.finished_at is not None
    assert await queues(product.trainer.client, episode.run_id) == [
        (names.RUN_STEPS, names.TASK_QUEUE)
    ]


async def test_what_goes_wrong_goes_over_the_queue_of_the_host(product: Product) -> None:
    nap = f"sleep 2.{random.randrange(10**6, 10**7)}"
    box = {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_type": "local"}
    step = {"id": "nap", "type": "run_code", "sandbox_name": "box", "command": nap}
    spec = EpisodeSpec.from_task(Task.of({"id": "napping", "steps": [box, step, WAIT]}))
    with product.worker() as worker:
        episode = await product.trainer.start(spec)
        await product.until(lambda: bool(processes_with(nap)))
        await asyncio.to_thread(worker.kill)

    with product.worker():
        result = await episode.result()

    host = product.index.get(episode.run_id).host
    assert result.status is RunStatus.COMPLETED
    assert host is not None
    assert await queues(product.trainer.client, episode.run_id) == [
        (names.RUN_STEPS, names.TASK_QUEUE),
        (names.RUN_STEPS, names.host_queue(host)),
        (names.FINISH, names.host_queue(host)),
    ]


@pytest.fixture
async def uneager() -> AsyncGenerator[WorkflowEnvironment]:
    """A server that hands nothing over."""
    async with await WorkflowEnvironment.start_local(
        plugins=[EpisodePlugin()],
        dev_server_existing_path=str(server_program()),
        dev_server_extra_args=[
            *("--dynamic-config-value", "system.enableActivityEagerExecution=false"),
        ],
    ) as env:
        yield env


@pytest.mark.parametrize("room", [1, 8], ids=["a full host", "a host with room"])
async def test_a_server_that_hands_nothing_over_costs_time_only(
    uneager: WorkflowEnvironment, tmp_path: Path, room: int
) -> None:
    settings = Settings(state_dir=tmp_path, max_episodes=room)
    async with open_services(settings) as services, serving(uneager.client, services):
        trainer = Trainer(uneager.client, services.index, services.store)
        episode = await trainer.start(WAITS)

        result = await episode.result()

        asked = await queues(uneager.client, episode.run_id)
    host = names.host_queue(services.host)
    assert result.status is RunStatus.COMPLETED
    assert asked[0] == (names.RUN_STEPS, names.TASK_QUEUE)
    assert asked[1:] == [(names.RUN_STEPS, host), (names.FINISH, host)]
