"""The machine loses power: everything dies at once, and goes on at the next ``episodes up``."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager, contextmanager, suppress
from pathlib import Path

from agent_env.config import Settings
from agent_env.embedded import EmbeddedServer, find_running
from agent_env.status import RunStatus
from agent_env.trainer import Trainer
from tests.end_to_end.agreement import disagreements_left
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.stage import box, spec
from tests.end_to_end.who_dies import (
    LONG,
    MANY_FILES,
    Process,
    Steps,
    assert_ended,
    is_reported,
    nap,
    pending,
    serves,
    teardown_began,
    until,
)


@contextmanager
def up(state_dir: Path, **settings: float) -> Generator[Process]:
    """``episodes up``, ready when entered, drained at the end."""
    named = {f"EPISODES_{name.upper()}": f"{value:g}" for name, value in settings.items()}
    process = Process(
        *("-m", "agent_env.cli", "up"), env={"EPISODES_STATE_DIR": str(state_dir), **named}
    )
    try:
        serves(process)
        yield process
    finally:
        process.end()


@asynccontextmanager
async def attached(state_dir: Path) -> AsyncGenerator[Product]:
    """What a process sees that only connects."""
    running = find_running(state_dir)
    assert running is not None
    async with Trainer.connect(Settings(state_dir=state_dir)) as trainer:
        yield Product(state_dir, EmbeddedServer(running.address, running.ui_url), trainer)


def kill_all(process: Process, state_dir: Path) -> None:
    """Kill the command, its supervisor, its server and all that they have started, at once."""
    running = find_running(state_dir)
    assert running is not None
    doomed = [process.pid, running.supervisor.pid, running.pid]
    for pid in doomed:
        os.kill(pid, signal.SIGSTOP)  # none may see another die, and act on it
    for pid in doomed:
        doomed += _children(pid)
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGSTOP)
    for pid in doomed:
        with suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def _children(pid: int) -> list[int]:
    found: list[int] = []
    for listed in Path(f"/proc/{pid}/task").glob("*/children"):
        with suppress(OSError):
            found += [int(child) for child in listed.read_text(encoding="ascii").split()]
    return found


async def test_everything_killed_at_once_goes_on_at_the_next_start(tmp_path: Path) -> None:
    state_dir, sleep, steps = tmp_path / "state", nap(), Steps(tmp_path)
    with up(state_dir, max_episodes=2) as first:
        async with attached(state_dir) as product:
            in_step = await product.trainer.start(
                spec(box(), steps.quick("before step"), steps.nap_once("step", sleep))
            )
            in_timer = await product.trainer.start(
                spec(
                    box(),
                    steps.quick("before timer"),
                    {"id": "wait", "type": "wait", "seconds": 10},
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
            runs = [episode.run_id for episode in (in_step, in_timer, queued)]
            before = [product.index.get(run_id).status for run_id in runs]
            kill_all(first, state_dir)
            await product.until(lambda: not processes_with(sleep), LONG)
        await asyncio.to_thread(first.output)

    with up(state_dir, max_episodes=2):
        async with attached(state_dir) as product:
            results = [await product.trainer.attach(run_id).result() for run_id in runs]
            for run_id in runs:
                await assert_ended(product, run_id, RunStatus.COMPLETED, nap=sleep)
            assert await disagreements_left(product.trainer.client, product.index) == []

    assert before == [RunStatus.RUNNING, RunStatus.RUNNING, RunStatus.QUEUED]
    assert [result.status for result in results] == [RunStatus.COMPLETED] * 3
    assert steps.times("step") == 2
    ran = ["before step", "before timer", "after timer", "queued"]
    assert [steps.times(step_id) for step_id in ran] == [1] * len(ran)


async def test_everything_killed_in_teardown_is_torn_down_at_the_next_start(
    tmp_path: Path,
) -> None:
    state_dir, steps = tmp_path / "state", Steps(tmp_path)
    with up(state_dir) as first:
        async with attached(state_dir) as product:
            episode = await product.trainer.start(spec(box(), steps.quick("once"), MANY_FILES))
            sandbox = await teardown_began(product)
            kill_all(first, state_dir)
            half_removed = sandbox.exists()
        await asyncio.to_thread(first.output)

    with up(state_dir):
        async with attached(state_dir) as product:
            result = await product.trainer.attach(episode.run_id).result()
            await assert_ended(product, episode.run_id, RunStatus.COMPLETED, nap=nap())
            assert await disagreements_left(product.trainer.client, product.index) == []

    assert half_removed
    assert result.status is RunStatus.COMPLETED
    assert steps.times("once") == 1
