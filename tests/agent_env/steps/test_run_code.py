from typing import Any, ClassVar

import pytest
from pydantic import JsonValue

from agent_env.errors import InvalidSpecError
from agent_env.status import StepStatus
from agent_env.steps.run_code import RunCode
from agent_env.testing.step_contract import StepContract
from tests.agent_env.steps.real_host import BOX, RealHost


class TestRunCode(StepContract):
    step = RunCode
    good_params: ClassVar = {"command": "true", "score_from": "./reward.txt"}
    bad_params: ClassVar = {"command": "true", "argv": ["true"]}


async def test_a_command_gets_what_it_is_given(host: RealHost) -> None:
    report = await host.play_in_box(
        type="run_code",
        command='cat; echo "$NAME in $(pwd)"; echo oops >&2',
        cwd="/app",
        env={"NAME": "Ada"},
        stdin="in ",
    )

    assert report.output == {
        "exit_code": 0,
        "stdout": "in Ada in /app\n",
        "stderr": "oops\n",
        "cut_bytes": 0,
        "timed_out": False,
        "left_open": False,
    }
    assert report.score is None


async def test_an_argument_list_is_run_as_it_is(host: RealHost) -> None:
    report = await host.play_in_box(type="run_code", argv=["printf", "%s", "$HOME; 日本"])

    assert isinstance(report.output, dict)
    assert report.output["stdout"] == "$HOME; 日本"


async def test_a_failing_command_fails_the_step_with_its_words(host: RealHost) -> None:
    report = await host.play_in_box(type="run_code", command="echo no disk >&2; exit 3")

    assert (report.status, report.error_type) == (StepStatus.FAILED, "StepFailed")
    assert report.error == "exit code 3: no disk"


async def test_a_command_that_may_fail_does_not_fail_the_step(host: RealHost) -> None:
    report = await host.play_in_box(type="run_code", command="exit 3", allow_failure=True)

    assert isinstance(report.output, dict)
    assert (report.status, report.output["exit_code"]) == (StepStatus.COMPLETED, 3)


@pytest.mark.parametrize(
    ("command", "source", "score"),
    [
        ("exit 0", "exit_code", 1.0),
        ("exit 7", "exit_code", 0.0),
        ("echo working; echo 0.5; echo", "stdout", 0.5),
        ("echo -0.5", "stdout", -0.5),
        ("true", "stdout", None),
        ("echo 0.25 > reward.txt", "./reward.txt", 0.25),
        ("echo 1 > /tmp/reward", "/tmp/reward", 1.0),
        ("true", "./reward.txt", None),
    ],
)
async def test_a_score_comes_from_where_the_task_says(
    host: RealHost, command: str, source: str, score: float | None
) -> None:
    report = await host.play_in_box(
        type="run_code", command=command, cwd="/app", score_from=source, verifier_id="judge"
    )

    assert (report.status, report.score) == (StepStatus.COMPLETED, score)
    assert isinstance(report.output, dict)
    assert report.output["verifier_id"] == "judge"


@pytest.mark.parametrize("text", ["nan", "inf", "1e309", "'0.5'", "good", "", "1 2"])
@pytest.mark.parametrize("source", ["stdout", "./reward"])
async def test_what_is_no_finite_number_is_an_invalid_score(
    host: RealHost, text: str, source: str
) -> None:
    report = await host.play_in_box(
        type="run_code", command=f'echo "got: {text}"', score_from="stdout"
    )
    if source == "./reward":
        report = await host.play_in_box(
            type="run_code", command=f'echo "{text}" > reward', score_from=source
        )

    assert (report.status, report.error_type) == (StepStatus.FAILED, "InvalidScore")


async def test_a_reward_file_that_was_there_before_is_no_reward(host: RealHost) -> None:
    """The agent writes its own, and keeps the verifier from writing one."""
    reports = await host.play(
        BOX,
        {"id": "agent", "type": "run_code", "command": "echo 1 > /app/reward.txt"},
        {"id": "it", "type": "run_code", "command": "true", "score_from": "/app/reward.txt"},
    )

    assert (reports["it"].status, reports["it"].score) == (StepStatus.COMPLETED, None)


async def test_a_reward_that_is_no_small_file_is_an_invalid_score(host: RealHost) -> None:
    for command in (
        "mkdir /app/reward",
        "mkfifo /app/reward",
        "head -c 9999 /dev/zero > /app/reward",
    ):
        reports = await host.play(
            BOX,
            {"id": "it", "type": "run_code", "command": command, "score_from": "/app/reward"},
        )

        assert reports["it"].error_type == "InvalidScore", command
        await host.providers.destroy_owned("run/1")


async def test_a_command_is_killed_at_its_own_timeout_which_is_a_result(host: RealHost) -> None:
    report = await host.play_in_box(
        type="run_code", command="sleep 60", shell_timeout_seconds=0.3, score_from="exit_code"
    )

    assert isinstance(report.output, dict)
    assert (report.score, report.output["timed_out"]) == (0.0, True)


async def test_a_timeout_that_is_no_score_fails_the_step(host: RealHost) -> None:
    report = await host.play_in_box(type="run_code", command="sleep 60", shell_timeout_seconds=0.3)

    assert (report.error_type, report.error) == ("StepFailed", "it took longer than 0.3 s")


@pytest.mark.parametrize(
    "produce",
    [
        "head -c 100000000 /dev/zero | tr '\\0' x",
        "head -c 300000 /dev/zero",
        "head -c 300000 /dev/urandom",
    ],
)
async def test_any_output_fits_with_its_tail(host: RealHost, produce: str) -> None:
    report = await host.play_in_box(
        type="run_code",
        command=f"({produce}; printf end) ; ({produce}; printf end) >&2",
        max_output_bytes=1024 * 1024,
    )

    assert report.error is None
    assert isinstance(report.output, dict)
    cut: Any = report.output["cut_bytes"]
    assert cut > 0
    assert str(report.output["stdout"]).endswith("end")
    assert str(report.output["stderr"]).endswith("end")


@pytest.mark.parametrize(
    ("params", "message"),
    [
        ({}, "give either command"),
        ({"command": "x", "score_from": "exitcode"}, "is none of 'exit_code', 'stdout'"),
        ({"script_artifact_id": "x"}, "script_artifact_id: is not supported; bring the script"),
        ({"command": "x", "sandbox_name": "bix"}, "did you mean 'box'"),
    ],
)
async def test_bad_parameters_are_refused_with_the_cure(
    host: RealHost, params: dict[str, JsonValue], message: str
) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        await host.play_in_box(type="run_code", **params)

    assert message in str(caught.value)


async def test_a_lost_sandbox_fails_the_step_as_such(host: RealHost) -> None:
    reports = await host.play(
        BOX,
        {"id": "lose", "type": "python", "function": "shutil:rmtree", "artifact_id": None,
         "args": {"path": str(host.folder / "sandboxes")}},
        {"id": "it", "type": "run_code", "command": "true", "score_from": "exit_code"},
    )  # fmt: skip

    assert (reports["it"].status, reports["it"].error_type) == (StepStatus.FAILED, "SandboxLost")
