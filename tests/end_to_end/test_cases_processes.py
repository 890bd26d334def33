"""Commands that leave processes behind or take all they can get, through a real worker."""

import random
import time
from datetime import timedelta

import pytest
from pydantic import JsonValue

from agent_env.status import RunStatus
from tests.end_to_end.conftest import Product, WorkerProcess, processes_with
from tests.end_to_end.stage import Played, box, command, play, python, sandbox_folders, spec

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("worker")]


def nap() -> str:
    """A command that outlives any test, and that no other test has."""
    return f"sleep 600.{random.randrange(10**6, 10**7)}"


def output(played: Played, step_id: str) -> dict[str, JsonValue]:
    found = played.steps[step_id].output
    assert isinstance(found, dict)
    return found


async def test_a_child_left_in_the_background_delays_nothing_and_does_not_outlive_its_sandbox(
    shared: Product,
) -> None:
    """P1."""
    child = nap()
    started = time.monotonic()

    played = await play(shared, box(), command("leaves", f"{child} >/dev/null 2>&1 & echo done"))

    assert played.result.status is RunStatus.COMPLETED
    assert output(played, "leaves")["stdout"] == "done\n"
    assert time.monotonic() - started < 10
    assert processes_with(child) == []
    assert sandbox_folders(shared) == []


async def test_a_timeout_kills_grandchildren_in_sessions_of_their_own(shared: Product) -> None:
    """P2."""
    child = nap()
    line = f"(setsid {child} &) ; setsid sh -c 'setsid {child} & {child}' & {child}"
    episode = await shared.trainer.start(
        spec(box(), command("slow", line, shell_timeout_seconds=1, allow_failure=True))
    )
    await shared.until(lambda: len(processes_with(child)) >= 4)

    await shared.until(lambda: not processes_with(child), within=timedelta(seconds=1 + 2))
    result = await episode.result()

    (_, step) = shared.index.steps(episode.run_id)
    assert result.status is RunStatus.COMPLETED
    assert isinstance(step.output, dict)
    assert step.output["timed_out"] is True


async def test_a_grandchild_that_holds_stdout_open_delays_nothing_and_is_marked(
    shared: Product,
) -> None:
    """P3."""
    child = nap()
    started = time.monotonic()

    played = await play(
        shared, box(), command("holds", f"({child} &) ; echo said"), command("closes", "echo said")
    )

    assert time.monotonic() - started < 10
    assert output(played, "holds")["stdout"] == "said\n"
    assert output(played, "holds")["left_open"] is True
    assert output(played, "closes")["left_open"] is False
    assert processes_with(child) == []


@pytest.mark.parametrize(
    ("line", "said"),
    [
        pytest.param(
            "python3 -c 'while True: __import__(\"os\").fork()'", "BlockingIOError", id="fork bomb"
        ),
        pytest.param(
            "python3 -c 'x = bytearray(4 << 30); print(len(x))'", "MemoryError", id="memory"
        ),
        pytest.param(
            "head -c 10000000000 /dev/zero > large", "File size limit exceeded", id="file"
        ),
    ],
)
async def test_a_command_that_takes_all_it_can_fails_alone(
    shared: Product, worker: WorkerProcess, line: str, said: str
) -> None:
    """P4."""
    small = box(processes=20, memory_mb=256, disk_size_gb=0.01)
    other = await shared.trainer.start(
        spec(box(), command("nap", "sleep 1; echo 1", score_from="stdout"))
    )

    greedy = await play(shared, small, command("greedy", line, shell_timeout_seconds=10))
    beside = await other.result()
    after = await play(shared, python("good", "returns_true"))

    assert greedy.result.status is greedy.row.status is RunStatus.FAILED
    assert greedy.row.error is not None
    assert said in greedy.row.error
    assert (beside.status, beside.reward) == (RunStatus.COMPLETED, 1.0)
    assert after.result.status is RunStatus.COMPLETED
    assert worker.is_alive
    assert sandbox_folders(shared) == []
