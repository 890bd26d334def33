"""What the explorer changes, in the whole product: real workers, real processes, a real server."""

import asyncio
import os
import random
import signal
from collections.abc import AsyncGenerator
from datetime import timedelta
from typing import Any

import httpx
import pytest
from temporalio.client import WorkflowExecutionStatus

from agent_env._connect import connect_to
from agent_env.artifacts import ArtifactStore
from agent_env.embedded import find_running
from agent_env.explorer.app import ExplorerServices
from agent_env.explorer.server import explorer_serving
from agent_env.status import RunStatus
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.stage import box, command, spec

CHANGE = {"x-episodes": "explorer"}
FORCE_AFTER = timedelta(seconds=2)


@pytest.fixture
async def browser(product: Product) -> AsyncGenerator[httpx.AsyncClient]:
    services = ExplorerServices(
        index=product.index,
        connect=lambda: connect_to(product.server.address),
        store=ArtifactStore(product.state_dir / "artifacts"),
        user="ana",
        temporal_ui=lambda: product.server.ui_url,
        force_after=FORCE_AFTER,
        poll_every_s=0.1,
    )
    async with (
        explorer_serving(services, host="127.0.0.1", port=0) as explorer,
        httpx.AsyncClient(base_url=explorer.url, headers=CHANGE, timeout=30) as browser,
    ):
        yield browser


async def shown(browser: httpx.AsyncClient, run_id: str) -> Any:
    answer = await browser.get("/run.json", params={"id": run_id})
    answer.raise_for_status()
    return answer.json()


def nap() -> str:
    """A command that only one test runs."""
    return f"sleep 1{random.randrange(10**5, 10**6)}"


async def test_a_cancel_from_the_explorer_ends_the_run_and_its_processes(
    product: Product, browser: httpx.AsyncClient
) -> None:
    line = nap()
    with product.worker():
        episode = await product.trainer.start(spec(box(), command("nap", line)))
        await product.until(lambda: bool(processes_with(line)))
        seq = (await browser.get("/live.json")).json()["seq"]

        answer = await browser.post(
            "/api/cancel", json={"run_id": episode.run_id, "reason": "wrong model"}
        )
        again = await browser.post("/api/cancel", json={"run_id": episode.run_id})
        await product.until(lambda: not processes_with(line), within=timedelta(seconds=4))
        result = await episode.result()
        late = await browser.post("/api/cancel", json={"run_id": episode.run_id})

        async with asyncio.timeout(10):
            while (
                episode.run_id
                not in str(
                    (told := (await browser.get("/live.json", params={"since": seq})).json())[
                        "runs"
                    ]
                )
                and not told["all"]
            ):
                await asyncio.sleep(0.05)

    assert answer.json()["changed"]
    assert not again.json()["changed"]
    assert late.json()["detail"] == "it ended before: CANCELED"
    assert result.status is RunStatus.CANCELED
    run = (await shown(browser, episode.run_id))["run"]
    assert (run["cancel_requested_by"], run["cancel_requested_reason"]) == ("ana", "wrong model")


async def test_a_group_is_canceled_whole(product: Product, browser: httpx.AsyncClient) -> None:
    line = nap()
    with product.worker():
        group = await product.trainer.start_group(spec(box(), command("nap", line)), size=3)
        await product.until(lambda: bool(processes_with(line)))

        answer = await browser.post("/api/cancel", json={"run_group_id": group.run_group_id})
        result = await group.result()

    assert answer.json()["detail"] == "3 episodes asked to stop"
    assert [member.status for member in result.members] == [RunStatus.CANCELED] * 3
    after = await browser.post("/api/cancel", json={"run_group_id": group.run_group_id})
    assert not after.json()["changed"]


async def test_a_run_is_started_again_with_the_same_task_and_seed(
    product: Product, browser: httpx.AsyncClient
) -> None:
    with product.worker():
        asked = spec(box(), command("say", "echo <seed>"), seed={"seed": "17"})
        first = await product.trainer.start(asked)
        await first.result()

        answer = (await browser.post("/api/run-again", json={"run_id": first.run_id})).json()
        again = product.trainer.attach(answer["run_id"])
        result = await again.result()

    assert result.status is RunStatus.COMPLETED
    row = await again.record()
    assert (row.task_id, row.seed) == ("case", {"seed": "17"})
    assert row.tags == {"again_of": first.run_id}
    assert row.run_group_id is None


async def test_a_cancel_that_nobody_hears_can_be_forced(
    product: Product, browser: httpx.AsyncClient
) -> None:
    """The worker is stopped: it neither dies nor hears."""
    line = nap()
    with product.worker() as worker:
        episode = await product.trainer.start(spec(box(), command("nap", line)))
        await product.until(lambda: bool(processes_with(line)))
        os.kill(worker.pid, signal.SIGSTOP)
        await browser.post("/api/cancel", json={"run_id": episode.run_id})
        early = await browser.post("/api/terminate", json={"run_id": episode.run_id})
        async with asyncio.timeout(30):
            while not (page := await shown(browser, episode.run_id))["terminate"]["allowed"]:
                await asyncio.sleep(0.1)

        forced = await browser.post("/api/terminate", json={"run_id": episode.run_id})
        status = await product.status(episode.run_id)
        os.kill(worker.pid, signal.SIGCONT)
        await product.until(lambda: product.index.get(episode.run_id).status.is_finished)
        await product.until(lambda: not processes_with(line))

    assert early.status_code == 409
    assert page["canceling"]["is_past_budget"]
    assert [work["name"] for work in page["pending"]] == ["run_steps"]
    assert page["temporal_url"].startswith(product.server.ui_url)
    assert forced.json()["changed"]
    assert status is WorkflowExecutionStatus.TERMINATED
    row = product.index.get(episode.run_id)
    assert row.status is RunStatus.CANCELED
    assert row.error is not None
    assert "forced by ana" in row.error


async def test_health_shows_workers_queues_and_what_disagrees(
    product: Product, browser: httpx.AsyncClient
) -> None:
    line = nap()
    with product.worker():
        episode = await product.trainer.start(spec(box(), command("nap", line)))
        await product.until(lambda: bool(processes_with(line)))

        health = (await browser.get("/health.json")).json()
        await episode.cancel()
        await episode.result()

    (worker,) = health["workers"]
    assert worker["running"] == 1
    assert f"episodes@{worker['host']}" in worker["queues"]
    assert health["hosts"] == [{"host": worker["host"], "running": 1, "is_seen": True}]
    assert all(queue["backlog"] == 0 for queue in health["queues"])
    assert health["disagreements"] == []
    assert health["temporal"] == product.server.address


async def test_a_queue_that_nobody_polls_shows_its_backlog(
    product: Product, browser: httpx.AsyncClient
) -> None:
    handle = await product.trainer.client.start_workflow(
        "agent_env.Episode", id="waits", task_queue="episodes"
    )

    async with asyncio.timeout(20):
        while True:
            health = (await browser.get("/health.json")).json()
            if health["queues"][0]["backlog"]:
                break
            await asyncio.sleep(0.1)
    await handle.terminate()

    assert health["queues"][0]["pollers"] == 0
    assert health["workers"] == []


async def test_pages_are_there_while_temporal_is_away_and_after_it_is_back(
    product: Product, browser: httpx.AsyncClient
) -> None:
    with product.worker():
        episode = await product.trainer.start(spec(box(), command("ok", "true")))
        await episode.result()
    server = find_running(product.state_dir)
    assert server is not None

    os.kill(server.pid, signal.SIGSTOP)
    try:
        health = (await browser.get("/health.json")).json()
        listed = (await browser.get("/runs.json")).json()
        page = await browser.get("/runs")
    finally:
        os.kill(server.pid, signal.SIGCONT)
    async with asyncio.timeout(30):
        while (await browser.get("/health.json")).json()["temporal_trouble"] is not None:
            await asyncio.sleep(0.2)

    assert health["temporal_trouble"]
    assert [row["run_id"] for row in listed["runs"]] == [episode.run_id]
    assert page.status_code == 200
