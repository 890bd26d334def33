"""A worker leaves its host, asked to or not: its episodes go on there or begin again elsewhere."""

import asyncio
import time
from pathlib import Path

from agent_env.status import RunStatus
from tests.end_to_end.conftest import Product, on_both, processes_with
from tests.end_to_end.stage import box, command, spec
from tests.end_to_end.who_dies import (
    LONG,
    Process,
    Steps,
    assert_ended,
    is_reported,
    nap,
    until,
    worker,
)

pytestmark = on_both


async def asked_to_stop(process: Process) -> float:
    """Seconds from the request to its end."""
    asked = time.monotonic()
    process.ask_to_stop()
    await asyncio.to_thread(process.output)
    return time.monotonic() - asked


async def test_a_step_that_ends_while_its_worker_drains_is_not_run_again(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps = nap(4), Steps(tmp_path)
    with worker(product, graceful_shutdown_s=30) as first:
        episode = await product.trainer.start(
            spec(box(), steps.nap("ends", sleep), command("after", "echo done"))
        )
        await product.until(lambda: bool(processes_with(sleep)), LONG)
        took_s = await asked_to_stop(first)

    with worker(product):
        result = await episode.result()

    assert took_s < 30
    assert result.status is RunStatus.COMPLETED
    assert steps.times("ends") == 1
    await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap=sleep)


async def test_a_step_that_outlasts_the_drain_runs_again_alone_where_it_was(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps = nap(), Steps(tmp_path)
    with worker(product, graceful_shutdown_s=1) as first:
        episode = await product.trainer.start(
            spec(box(), steps.quick("once"), steps.nap_once("cut", sleep))
        )
        await product.until(lambda: bool(processes_with(sleep)), LONG)
        await until(lambda: is_reported(product, episode.run_id, "once"))
        await asked_to_stop(first)
    left = processes_with(sleep)
    between = product.index.get(episode.run_id)

    with worker(product):
        result = await episode.result()

    assert left == []
    assert between.status is RunStatus.RUNNING
    assert (result.status, product.index.get(episode.run_id).epoch) == (RunStatus.COMPLETED, 1)
    assert (steps.times("once"), steps.times("cut")) == (1, 2)
    await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap=sleep)


async def test_a_worker_that_leaves_for_good_hands_its_episodes_to_another_host(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps, other = nap(), Steps(tmp_path), tmp_path / "other"
    with worker(product, graceful_shutdown_s=1, host_lost_after_s=3) as first:
        episode = await product.trainer.start(
            spec(box(), steps.quick("first"), steps.nap_once("cut", sleep))
        )
        await product.until(lambda: bool(processes_with(sleep)), LONG)
        before = product.index.get(episode.run_id)
        with worker(product, other):
            await asked_to_stop(first)
            left = processes_with(sleep)
            result = await episode.result()

    row = product.index.get(episode.run_id)
    assert left == []
    assert result.status is RunStatus.COMPLETED
    assert (before.epoch, row.epoch) == (1, 2)
    assert before.host != row.host
    # Its sandbox is lost with the host, so all of it begins again.
    assert (steps.times("first"), steps.times("cut")) == (2, 2)
    await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap=sleep, hosts=[other])


async def test_a_worker_killed_for_good_loses_its_episodes_to_another_host(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps, other = nap(), Steps(tmp_path), tmp_path / "other"
    with worker(product, host_lost_after_s=3) as first:
        episode = await product.trainer.start(
            spec(box(), steps.quick("first"), steps.nap_once("cut", sleep))
        )
        await product.until(lambda: bool(processes_with(sleep)), LONG)
        with worker(product, other):
            await asyncio.to_thread(first.kill)
            result = await episode.result()

    assert (result.status, product.index.get(episode.run_id).epoch) == (RunStatus.COMPLETED, 2)
    assert (steps.times("first"), steps.times("cut")) == (2, 2)
    await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap=sleep, hosts=[other])
