"""What broke other run systems, through a real worker: steps that fail and say anything."""

import random
from pathlib import Path

import pytest

from agent_env.errors import MAX_ERROR_CHARS
from agent_env.runs.records import CancelState
from agent_env.status import RunStatus, StepStatus
from tests.end_to_end.conftest import Product, WorkerProcess, processes_with
from tests.end_to_end.stage import box, command, play, python, sandbox_folders, spec

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("worker")]


def peak_memory_mb(pid: int) -> float:
    """The most memory that a process has had, of all its life."""
    for line in Path(f"/proc/{pid}/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) / 1024
    raise AssertionError("the system does not say")


async def test_a_tolerated_failure_ends_the_episode_failed_and_is_named(shared: Product) -> None:
    """L1."""
    played = await play(
        shared,
        box(),
        command("breaks", "exit 3", fail_task_on_error=False),
        command("passes", "echo 1", score_from="stdout"),
    )

    assert played.result.status is played.row.status is RunStatus.FAILED
    assert played.row.error is not None
    assert played.row.error.startswith("step 'breaks': exit code 3")
    assert played.steps["passes"].status is StepStatus.COMPLETED
    assert played.result.reward == played.row.reward == 1.0


async def test_a_retried_failure_stays_in_the_record_of_a_completed_episode(
    shared: Product, tmp_path: Path
) -> None:
    """L2."""
    episode = await shared.trainer.start(
        spec(
            box(),
            python(
                "flaky",
                "fails_once",
                args={"mark": str(tmp_path / "mark")},
                retry_config={"retry_from_step_id": "box", "max_retries": 1},
            ),
        )
    )

    result = await episode.result()

    assert result.status is RunStatus.COMPLETED
    assert result.error is None
    steps = [
        (step.step_id, step.epoch, step.status, step.retried, step.error_type)
        for step in shared.index.steps(episode.run_id)
    ]
    assert steps == [
        ("box", 1, StepStatus.COMPLETED, True, None),
        ("flaky", 1, StepStatus.FAILED, True, "OSError"),
        ("box", 2, StepStatus.COMPLETED, False, None),
        ("flaky", 2, StepStatus.COMPLETED, False, None),
    ]


@pytest.mark.parametrize(
    ("function", "error_type", "said", "shown"),
    [
        ("raises_megabytes", "ValueError", "first words xx", "characters cut …"),
        ("raises_nul", "ValueError", "nul \0 inside", "inside"),
        ("raises_surrogate", "ValueError", r"half \ud800 of a pair", r"half \ud800 of a pair"),
        ("raises_nothing_said", "TimeoutError", "", "TimeoutError"),
    ],
)
async def test_an_error_of_any_size_and_content_reaches_result_row_and_screen(
    shared: Product, function: str, error_type: str, said: str, shown: str
) -> None:
    """L5."""
    played = await play(shared, python("bad", function))
    screen = shared.cli().run("show", played.row.run_id)

    step = played.steps["bad"]
    assert (played.result.status, played.row.status) == (RunStatus.FAILED, RunStatus.FAILED)
    assert (played.result.error_type, played.row.error_type, step.error_type) == (error_type,) * 3
    for text in (played.result.error, played.row.error, step.error):
        assert text is not None
        assert said in text
        assert len(text) <= MAX_ERROR_CHARS
    assert screen.code == 0
    assert shown in screen.out


async def test_a_result_of_megabytes_is_refused_with_the_limit_and_the_cure(
    shared: Product,
) -> None:
    """L6."""
    played = await play(shared, python("large", "returns_megabytes"))

    assert played.result.error_type == played.row.error_type == "OutputTooLarge"
    assert played.row.error is not None
    assert "over the limit of 65,536" in played.row.error
    assert "artifact store" in played.row.error


async def test_of_output_of_a_hundred_megabytes_the_tail_is_kept_with_a_mark(
    shared: Product, worker: WorkerProcess
) -> None:
    """L6."""
    before_mb = peak_memory_mb(worker.pid)

    played = await play(
        shared,
        box(),
        command("loud", "head -c 100000000 /dev/zero | tr '\\0' x; echo; echo the end"),
        python("louder", "prints_much"),
    )

    output = played.steps["loud"].output
    assert isinstance(output, dict)
    stdout, cut = output["stdout"], output["cut_bytes"]
    assert isinstance(stdout, str)
    assert isinstance(cut, int)
    assert stdout.startswith("[… ")
    assert stdout.endswith("the end\n")
    assert 99_900_000 < cut < 100_000_010
    assert played.steps["louder"].output == "done"
    assert peak_memory_mb(worker.pid) - before_mb < 50


async def test_output_that_is_not_utf_8_shows_replacement_characters(shared: Product) -> None:
    """L6."""
    played = await play(shared, box(), command("binary", "printf 'a\\377\\376b\\303'"))

    output = played.steps["binary"].output
    assert isinstance(output, dict)
    assert output["stdout"] == "a\ufffd\ufffdb\ufffd"


@pytest.mark.parametrize(
    ("function", "error_type", "message"),
    [
        ("raises_unpicklable", "UnpicklableError", "this and that"),
        ("raises_group", "KeyError", "'root' (and 1 more in the same group)"),
        ("raises_interrupt", "KeyboardInterrupt", "stop"),
        ("exits", "SystemExit", "0"),
    ],
)
async def test_whatever_a_step_raises_fails_its_episode_and_the_worker_lives(
    shared: Product, worker: WorkerProcess, function: str, error_type: str, message: str
) -> None:
    """L7."""
    played = await play(shared, python("bad", function))
    after = await play(shared, python("good", "returns_true"))

    assert played.result.status is played.row.status is RunStatus.FAILED
    assert played.result.error_type == played.row.error_type == error_type
    assert played.row.error is not None
    assert played.row.error.startswith(f"step 'bad': {message}")
    assert after.result.status is RunStatus.COMPLETED
    assert worker.is_alive


async def test_only_declared_keys_are_replaced_and_only_once(shared: Product) -> None:
    """L13."""
    played = await play(
        shared,
        box(),
        command("echo", "cat", stdin="{x} <p> <key> <KEY> $key", env={"V": "<key>"}),
        seed={"key": "<key> and <p> and {x}"},
    )

    output = played.steps["echo"].output
    assert isinstance(output, dict)
    assert output["stdout"] == "{x} <p> <key> and <p> and {x} <KEY> $key"
    assert played.row.seed == {"key": "<key> and <p> and {x}"}


async def test_canceling_again_and_in_teardown_keeps_the_first_reason_and_one_end(
    shared: Product,
) -> None:
    """C6."""
    nap = f"sleep 60.{random.randrange(10**6, 10**7)}"
    # Many files make teardown long enough to be met by requests.
    files = "mkdir -p many && cd many && seq 20000 | xargs touch"
    episode = await shared.trainer.start(spec(box(), command("files", files), command("nap", nap)))
    await shared.until(lambda: shared.index.get(episode.run_id).current_step == "nap")

    answers = [await episode.cancel("first", by="ana"), await episode.cancel("second", by="bob")]
    in_teardown = 0
    while not answers[-1].run.status.is_finished:
        is_over = not processes_with(nap)
        answers.append(await episode.cancel("later", by="cy"))
        in_teardown += is_over and not answers[-1].run.status.is_finished
    result = await episode.result()
    row = await episode.record()

    assert in_teardown > 0
    assert [answer.state for answer in answers].count(CancelState.ASKED) == 1
    assert result.status is row.status is RunStatus.CANCELED
    assert (row.error, row.cancel_requested_reason, row.cancel_requested_by) == (
        "first",
        "first",
        "ana",
    )
    assert answers[-1].run.finished_at == row.finished_at
    assert row.still_up == ()
    assert sandbox_folders(shared) == []


async def test_canceling_a_finished_or_an_unknown_run_says_so_with_its_own_exit_code(
    shared: Product,
) -> None:
    """C8."""
    played = await play(shared, box(), command("breaks", "exit 3"))
    cli = shared.cli()

    finished = cli.run("cancel", played.row.run_id, "--reason", "late", "--json")
    unknown = cli.run("cancel", "nobody", "--json")

    assert finished.code == 0
    assert "ended FAILED: step 'breaks': exit code 3" in finished.out
    assert unknown.code == 3
    assert unknown.json["error"]["kind"] == "not_found"
    assert "nobody" in unknown.json["error"]["message"]
    assert shared.index.get(played.row.run_id).cancel_requested_at is None
