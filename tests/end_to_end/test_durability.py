"""Real processes die; every episode ends, and its row says how."""

import asyncio
import os
import random
import signal
import time
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.client import WorkflowExecutionStatus
from temporalio.service import RPCError

from agent_env.embedded import find_running
from agent_env.episode import EpisodeSpec
from agent_env.specs import StepProgress
from agent_env.status import RunStatus
from agent_env.task import Task
from tests.end_to_end.conftest import Product, processes_with

BOX: JsonValue = {
    "id": "box",
    "type": "deploy_sandbox",
    "sandbox_name": "box",
    "sandbox_mode": "vm",
    "sandbox_type": "local",
}


def command(step_id: str, line: str, **more: JsonValue) -> JsonValue:
    return {"id": step_id, "type": "run_code", "sandbox_name": "box", "command": line, **more}


def spec(*steps: JsonValue) -> EpisodeSpec:
    return EpisodeSpec.from_task(Task.of({"id": "durable", "steps": list(steps)}))


def sandbox_folders(product: Product) -> list[Path]:
    return [path for path in (product.state_dir / "sandboxes").glob("*/*") if path.is_dir()]


async def agree(product: Product, run_id: str, status: RunStatus) -> bool:
    row = product.index.get(run_id).status
    return row is status and await product.status(run_id) is WorkflowExecutionStatus[status.name]


async def until_heartbeat(product: Product, run_id: str, step_id: str) -> None:
    """Wait until the server has been told that this step has ended."""
    handle = product.trainer.client.get_workflow_handle(run_id)
    async with asyncio.timeout(30):
        while True:
            for pending in (await handle.describe()).raw_description.pending_activities:
                for payload in pending.heartbeat_details.payloads:
                    ended = StepProgress.model_validate_json(payload.data).reports
                    if step_id in [report.step_id for report in ended]:
                        return
            await asyncio.sleep(0.05)


async def test_a_worker_killed_in_a_step_goes_on_after_its_restart(
    product: Product, tmp_path: Path
) -> None:
    nap = f"sleep 3.{random.randrange(10**6, 10**7)}"
    with product.worker() as worker:
        episode = await product.trainer.start(
            spec(
                BOX,
                command("once", "echo ran >> log"),
                command("cut", f"echo cut >> log; {nap}; cat log"),
            )
        )
        await product.until(lambda: bool(processes_with(nap)))
        await until_heartbeat(product, episode.run_id, "once")
        await asyncio.to_thread(worker.kill)
    await product.until(lambda: not processes_with(nap))

    with product.worker():
        result = await episode.result()

    assert result.status is RunStatus.COMPLETED
    assert await agree(product, episode.run_id, RunStatus.COMPLETED)
    assert sandbox_folders(product) == []
    steps = {step.step_id: step for step in product.index.steps(episode.run_id)}
    assert list(steps) == ["box", "once", "cut"]
    output = steps["cut"].output
    assert isinstance(output, dict)
    assert str(output["stdout"]).split() == ["ran", "cut", "cut"]


async def test_a_canceled_episode_whose_worker_is_killed_is_torn_down_and_never_restarted(
    product: Product,
) -> None:
    nap = f"sleep 60.{random.randrange(10**6, 10**7)}"
    with product.worker() as worker:
        episode = await product.trainer.start(spec(BOX, command("long", nap)))
        await product.until(lambda: bool(processes_with(nap)))
        await asyncio.to_thread(worker.kill)
    await episode.cancel("after the crash", by="tester")

    with product.worker():
        result = await episode.result()

    assert (result.status, result.error) == (RunStatus.CANCELED, "after the crash")
    assert await agree(product, episode.run_id, RunStatus.CANCELED)
    assert processes_with(nap) == []
    assert sandbox_folders(product) == []


async def test_a_cancel_kills_the_process_tree_within_two_seconds(product: Product) -> None:
    nap = f"sleep 60.{random.randrange(10**6, 10**7)}"
    with product.worker():
        episode = await product.trainer.start(
            spec(BOX, command("long", f"setsid {nap} & {nap} & wait"))
        )
        await product.until(lambda: len(processes_with(nap)) >= 2)

        await episode.cancel("enough", by="tester")
        await product.until(lambda: not processes_with(nap), within=timedelta(seconds=2))
        result = await episode.result()

    assert result.status is RunStatus.CANCELED


async def test_an_episode_goes_on_where_it_was_when_the_server_is_killed(
    product: Product,
) -> None:
    running = find_running(product.state_dir)
    assert running is not None
    with product.worker():
        episode = await product.trainer.start(spec(BOX, command("nap", "sleep 2; echo done")))

        os.kill(running.pid, signal.SIGKILL)
        result = await episode.result()

    assert result.status is RunStatus.COMPLETED
    assert await agree(product, episode.run_id, RunStatus.COMPLETED)


async def test_the_episodes_of_a_lost_host_begin_again_on_another(
    product: Product, tmp_path_factory: pytest.TempPathFactory
) -> None:
    nap = f"sleep 1.{random.randrange(10**6, 10**7)}"
    with product.worker() as lost:
        episode = await product.trainer.start(spec(BOX, command("nap", f"{nap}; echo done")))
        await product.until(lambda: bool(processes_with(nap)))
        await asyncio.to_thread(lost.kill)
    first = product.index.get(episode.run_id)

    with product.worker(tmp_path_factory.mktemp("other")):
        result = await episode.result()
    row = product.index.get(episode.run_id)

    assert result.status is RunStatus.COMPLETED
    assert (first.epoch, row.epoch) == (1, 2)
    assert first.host != row.host


async def test_a_worker_asked_to_stop_hands_its_steps_on(product: Product) -> None:
    nap = f"sleep 2.{random.randrange(10**6, 10**7)}"
    with product.worker() as first:
        episode = await product.trainer.start(spec(BOX, command("nap", nap)))
        await product.until(lambda: bool(processes_with(nap)))
        await asyncio.to_thread(first.end)

    with product.worker():
        result = await episode.result()

    assert result.status is RunStatus.COMPLETED


async def test_a_start_canceled_before_any_worker_is_up_deploys_nothing(product: Product) -> None:
    starting = asyncio.create_task(
        product.trainer.start(spec(BOX, command("never", "true")), run_id="early")
    )
    async with asyncio.timeout(10):
        while True:
            try:
                await product.trainer.client.get_workflow_handle("early").cancel(reason="no")
                break
            except RPCError:
                await asyncio.sleep(0.01)

    with product.worker():
        result = await (await starting).result()

    assert (result.status, result.error) == (RunStatus.CANCELED, "no")
    assert product.index.steps("early") == ()
    assert sandbox_folders(product) == []


async def test_index_and_workflow_agree_when_cancel_races_completion(product: Product) -> None:
    quick = EpisodeSpec.from_task(
        Task.of({"id": "quick", "steps": [{"id": "w", "type": "wait", "seconds": 0.05}]})
    )
    dice = random.Random(7)

    async def race(number: int, usual_s: float) -> tuple[RunStatus, bool]:
        episode = await product.trainer.start(quick, run_id=f"race-{number}")
        await asyncio.sleep(dice.uniform(0, 1.5 * usual_s))  # where in the run the cancel arrives
        answer = await episode.cancel("race", by="tester")
        result = await episode.result()
        ended_as_told = not answer.run.status.is_finished or answer.run.status is result.status
        return result.status, ended_as_told and await agree(product, episode.run_id, result.status)

    with product.worker():
        began = time.monotonic()
        for _ in range(5):
            await (await product.trainer.start(quick)).result()
        usual_s = (time.monotonic() - began) / 5

        ended: list[tuple[RunStatus, bool]] = []
        for first in range(0, 200, 5):
            races = (race(first + number, usual_s) for number in range(5))
            ended += await asyncio.gather(*races)

    assert all(agreed for _, agreed in ended)
    assert {status for status, _ in ended} == {RunStatus.COMPLETED, RunStatus.CANCELED}
