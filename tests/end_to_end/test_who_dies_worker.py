"""A worker is killed, in a step and while it takes down; and nothing that had ended is repeated."""

import asyncio
import os
import signal
from pathlib import Path

import pytest
from pydantic import JsonValue
from temporalio.api.enums.v1 import PendingActivityState

from agent_env.status import RunStatus, StepStatus
from tests.end_to_end.conftest import Product, asleep, on_both, processes_with
from tests.end_to_end.stage import box, command, sandbox_folders, spec
from tests.end_to_end.tampering import locked
from tests.end_to_end.who_dies import (
    LONG,
    MANY_FILES,
    Process,
    Steps,
    assert_ended,
    is_reported,
    nap,
    pending,
    teardown_began,
    until,
    worker,
)

pytestmark = on_both

FINISH = "agent_env.finish"
RUN_STEPS = "agent_env.run_steps"
SCHEDULED = PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED
CANCEL_REQUESTED = PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED
STARTED = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED


async def test_killed_in_a_step_it_goes_on_there_and_what_had_ended_is_not_run_again(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps = nap(), Steps(tmp_path)
    boxed = f"test -e seen || {{ touch seen; sleep {sleep}; }}"
    with worker(product) as first:
        episode = await product.trainer.start(
            spec(
                box(),
                steps.quick("once"),
                steps.nap_once("cut", sleep),
                command("boxed", boxed, depends_on=["once", "box"]),
            )
        )
        await product.until(lambda: len(asleep(sleep)) == 2, LONG)
        await until(lambda: is_reported(product, episode.run_id, "once"))
        await asyncio.to_thread(first.kill)
    await product.until(lambda: not processes_with(sleep))
    between = product.index.get(episode.run_id)

    with worker(product):
        result = await episode.result()

    assert between.status is RunStatus.RUNNING
    assert (result.status, product.index.get(episode.run_id).epoch) == (RunStatus.COMPLETED, 1)
    assert (steps.times("once"), steps.times("cut")) == (1, 2)
    await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap=sleep)


async def test_killed_the_moment_a_step_has_ended_it_does_not_run_that_again(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps = nap(), Steps(tmp_path)
    cut = f"test -e seen || {{ touch seen; sleep {sleep}; }}"
    with worker(product) as first:
        episode = await product.trainer.start(spec(box(), steps.quick("once"), command("cut", cut)))
        # A command sleeps long before half a second has passed, and with it the first heartbeat.
        await product.until(lambda: len(asleep(sleep)) == 1, LONG)
        await asyncio.to_thread(first.kill)

    with worker(product):
        result = await episode.result()

    assert result.status is RunStatus.COMPLETED
    assert steps.times("once") == 1
    await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap=sleep)


@pytest.mark.parametrize("state", [STARTED, SCHEDULED])
async def test_canceled_while_it_is_dead_what_had_ended_stays_as_it_was(
    product: Product, tmp_path: Path, state: PendingActivityState.ValueType
) -> None:
    """Known by a heartbeat where nothing is kept; kept where the engine tells of no heartbeat."""
    sleep, steps = nap(), Steps(tmp_path)
    with worker(product) as first:
        episode = await product.trainer.start(
            spec(
                box(),
                command("score", "echo 0.5", score_from="stdout"),
                steps.nap("cut", sleep),
            )
        )
        await until(lambda: is_reported(product, episode.run_id, "score"))
        await asyncio.to_thread(first.kill)
    if state == STARTED:
        for kept in product.state_dir.rglob("*.kept"):
            kept.unlink()

    async def is_in(state: PendingActivityState.ValueType) -> bool:
        return [call.state for call in await pending(product, episode.run_id, RUN_STEPS)] == [state]

    async def is_heard() -> bool:
        calls = await pending(product, episode.run_id, RUN_STEPS)
        return [call.state for call in calls if call.state != CANCEL_REQUESTED] == []

    with worker(product, tmp_path / "other"):  # runs the workflow, and nothing of the host's
        await until(lambda: is_in(state))
        await episode.cancel("enough", by="tester")
        await until(is_heard)
    with worker(product):
        result = await episode.result()

    ends = {step.step_id: step.status for step in product.index.steps(episode.run_id)}
    assert (result.status, result.error) == (RunStatus.CANCELED, "enough")
    assert ends == {
        "box": StepStatus.COMPLETED,
        "score": StepStatus.COMPLETED,
        "cut": StepStatus.CANCELED,
    }
    assert (result.reward, result.scores) == (0.5, {"score": 0.5})
    await assert_ended(product, episode.run_id, RunStatus.CANCELED, nap=sleep)


async def test_killed_while_a_sandbox_is_destroyed_it_goes_on_with_that(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps = nap(), Steps(tmp_path)
    with worker(product) as first:
        episode = await product.trainer.start(spec(box(), steps.quick("once"), MANY_FILES))
        sandbox = await teardown_began(product)
        os.kill(first.pid, signal.SIGSTOP)
        half_removed = sandbox.exists()
        await asyncio.to_thread(first.kill)
    between = product.index.get(episode.run_id)

    with worker(product):
        result = await episode.result()

    assert half_removed
    assert between.status is RunStatus.RUNNING
    assert result.status is RunStatus.COMPLETED
    assert steps.times("once") == 1
    await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap=sleep)


@pytest.mark.parametrize("ends_in", [RUN_STEPS, FINISH])
async def test_killed_between_teardown_and_the_row_it_writes_the_row_after_its_restart(
    product: Product, tmp_path: Path, ends_in: str
) -> None:
    sleep, steps = nap(), Steps(tmp_path)
    # What follows its last segment keeps an episode from ending with that.
    rest: list[JsonValue] = [{"id": "wait", "type": "wait", "seconds": 0.1}]
    with worker(product) as first:
        episode = await product.trainer.start(
            spec(
                box(),
                steps.quick("once"),
                steps.nap("nap", nap(2)),
                *(rest if ends_in == FINISH else []),
            )
        )
        await product.until(lambda: steps.times("nap") == 1, LONG)
        with locked(product):
            await product.until(lambda: not sandbox_folders(product), LONG)
            (ending,) = await pending(product, episode.run_id, ends_in)
            await asyncio.to_thread(first.kill)
    between = product.index.get(episode.run_id)

    with worker(product):
        result = await episode.result()

    assert ending.state == STARTED
    assert between.status is RunStatus.RUNNING
    assert result.status is RunStatus.COMPLETED
    assert (steps.times("once"), steps.times("nap")) == (1, 1)
    await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap=sleep)


async def finish_is_due(product: Product, steps: Steps, host: Process, other: Path) -> str:
    """An episode whose host died in its last timer, and whose outcome another worker decided."""
    episode = await product.trainer.start(
        spec(box(), steps.quick("once"), {"id": "wait", "type": "wait", "seconds": 4})
    )

    async def is_in_timer() -> bool:
        segments = await pending(product, episode.run_id, RUN_STEPS)
        return steps.times("once") == 1 and not segments

    async def waits_for_its_host() -> bool:
        calls = await pending(product, episode.run_id, FINISH)
        return [call.state for call in calls] == [SCHEDULED]

    await until(is_in_timer)
    await asyncio.to_thread(host.kill)
    with worker(product, other):
        await until(waits_for_its_host)
    return episode.run_id


async def test_killed_between_the_outcome_and_finish_it_finishes_after_its_restart(
    product: Product, tmp_path: Path
) -> None:
    steps, other = Steps(tmp_path), tmp_path / "other"
    with worker(product) as first:
        run_id = await finish_is_due(product, steps, first, other)
    between = product.index.get(run_id)

    with worker(product):
        result = await product.trainer.attach(run_id).result()

    assert between.status is RunStatus.RUNNING
    assert result.status is RunStatus.COMPLETED
    assert steps.times("once") == 1
    await assert_ended(
        product, run_id, RunStatus.COMPLETED, nap=nap(), hosts=[product.state_dir, other]
    )


async def test_killed_for_good_between_the_outcome_and_finish_another_worker_finishes(
    product: Product, tmp_path: Path
) -> None:
    steps, other = Steps(tmp_path), tmp_path / "other"
    with worker(product, host_lost_after_s=5) as first:
        run_id = await finish_is_due(product, steps, first, other)

    with worker(product, other):
        result = await product.trainer.attach(run_id).result()

    assert (result.status, product.index.get(run_id).epoch) == (RunStatus.COMPLETED, 1)
    assert steps.times("once") == 1
    await assert_ended(product, run_id, RunStatus.COMPLETED, nap=nap(), hosts=[other])


async def test_asked_to_stop_it_tells_what_has_just_ended_of_an_episode_that_was_queued(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps = nap(), Steps(tmp_path)
    with worker(product, max_episodes=1, graceful_shutdown_s=0) as first:
        full = await product.trainer.start(spec(steps.nap("full", nap(2))))
        queued = await product.trainer.start(
            spec(steps.quick("once"), steps.nap_once("cut", sleep))
        )
        await full.result()
        # Before the first heartbeat: only the worker's last word tells of it.
        await product.until(lambda: bool(processes_with(sleep)), LONG)
        await asyncio.to_thread(first.end)

    with worker(product, max_episodes=1):
        result = await queued.result()

    assert result.status is RunStatus.COMPLETED
    assert (steps.times("once"), steps.times("cut")) == (1, 2)
    await assert_ended(product, queued.run_id, RunStatus.COMPLETED, nap=sleep)
