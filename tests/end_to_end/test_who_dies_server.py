"""The Temporal server is killed and started again on its file: every episode goes on."""

import os
import signal
from pathlib import Path

from agent_env.embedded import find_running
from agent_env.status import RunStatus
from tests.end_to_end.conftest import Product, on_both, processes_with
from tests.end_to_end.stage import box, spec
from tests.end_to_end.who_dies import (
    LONG,
    MANY_FILES,
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


def kill_server(product: Product) -> None:
    running = find_running(product.state_dir)
    assert running is not None
    os.kill(running.pid, signal.SIGKILL)


async def test_in_a_step_in_a_timer_and_queued_they_go_on_where_they_were(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps = nap(20), Steps(tmp_path)
    with worker(product, max_episodes=2):
        in_step = await product.trainer.start(
            spec(box(), steps.quick("before step"), steps.nap("step", sleep))
        )
        in_timer = await product.trainer.start(
            spec(
                box(),
                steps.quick("before timer"),
                {"id": "wait", "type": "wait", "seconds": 12},
                steps.quick("after timer"),
            )
        )
        queued = await product.trainer.start(spec(box(), steps.quick("queued")))

        async def is_in_timer() -> bool:
            segments = await pending(product, in_timer.run_id, "agent_env.run_steps")
            return steps.times("before timer") == 1 and not segments

        await until(lambda: is_reported(product, in_step.run_id, "before step"))
        await product.until(lambda: bool(processes_with(sleep)), LONG)
        await until(is_in_timer)
        begun = product.index.get(queued.run_id).status
        kill_server(product)
        was_in_step = bool(processes_with(sleep))
        results = [await episode.result() for episode in (in_step, in_timer, queued)]

        for episode in (in_step, in_timer, queued):
            await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap=sleep)

    assert (begun, was_in_step) == (RunStatus.QUEUED, True)
    assert [result.status for result in results] == [RunStatus.COMPLETED] * 3
    ran = ["before step", "step", "before timer", "after timer", "queued"]
    assert [steps.times(step_id) for step_id in ran] == [1] * len(ran)


async def test_in_teardown_it_ends_as_it_would_have(product: Product, tmp_path: Path) -> None:
    steps = Steps(tmp_path)
    with worker(product):
        episode = await product.trainer.start(spec(box(), steps.quick("once"), MANY_FILES))
        sandbox = await teardown_began(product)
        kill_server(product)
        half_removed = sandbox.exists()
        result = await episode.result()

        await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap=nap())

    assert half_removed
    assert result.status is RunStatus.COMPLETED
    assert steps.times("once") == 1


async def test_canceled_while_the_server_is_away_it_ends_canceled(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps = nap(), Steps(tmp_path)
    with worker(product):
        episode = await product.trainer.start(
            spec(box(), steps.quick("once"), steps.nap("cut", sleep))
        )
        await product.until(lambda: bool(processes_with(sleep)), LONG)
        kill_server(product)
        await episode.cancel("while it was away", by="tester")
        result = await episode.result()

        await assert_ended(product, episode.run_id, RunStatus.CANCELED, nap=sleep)

    assert (result.status, result.error) == (RunStatus.CANCELED, "while it was away")
    assert (steps.times("once"), steps.times("cut")) == (1, 1)
