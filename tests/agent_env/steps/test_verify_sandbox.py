from typing import Any, ClassVar

import pytest
from pydantic import JsonValue

from agent_env.errors import InvalidSpecError
from agent_env.results import StepReport
from agent_env.status import StepStatus
from agent_env.steps.verify_sandbox import VerifySandbox
from agent_env.testing.step_contract import StepContract
from tests.agent_env.steps.real_host import BOX, RealHost

CHECK = "import sys; sys.exit('42' not in open('/app/answer.txt').read())\n"
NIGHTMARE = r"(a|aa)+$"
"""Takes for ever on what almost matches."""


class TestVerifySandbox(StepContract):
    step = VerifySandbox
    good_params: ClassVar = {
        "criteria": [
            {"type": "bash_cmd_succeeds", "bash_cmd": "true", "note": "mine"},
            {"type": "response_contains", "anything": 1},
        ]
    }
    bad_params: ClassVar = {"criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": ""}]}


async def verified(
    host: RealHost, *criteria: dict[str, JsonValue], prepare: str = "true", **params: JsonValue
) -> StepReport:
    reports = await host.play(
        BOX,
        {"id": "prepare", "type": "run_code", "command": prepare, "cwd": "/app"},
        {"id": "it", "type": "verify_sandbox", "criteria": list(criteria), **params},
    )
    assert reports["prepare"].error is None
    return reports["it"]


def rows(report: StepReport) -> list[Any]:
    output: Any = report.output
    assert report.error is None
    return output["results"]


@pytest.mark.parametrize(
    ("criterion", "passed"),
    [
        ({"type": "probe_file_exists", "paths": ["a.txt", "/app/deep/b 日本"]}, True),
        ({"type": "probe_file_exists", "paths": ["a.txt", "gone"]}, False),
        ({"type": "probe_file_exists", "paths": ["deep"]}, True),
        ({"type": "probe_dir_exists", "paths": ["deep", "."]}, True),
        ({"type": "probe_dir_exists", "paths": ["a.txt"]}, False),
        ({"type": "probe_file_contains", "paths": ["a.txt"], "expected": "hel+o"}, True),
        ({"type": "probe_file_contains", "paths": ["a.txt"], "expected": "^world$"}, False),
        ({"type": "probe_file_contains", "paths": ["a.txt"], "expected": "(?m)^world$"}, True),
        ({"type": "probe_file_contains", "paths": ["a.txt"], "value": "hello"}, True),
        ({"type": "probe_file_contains", "paths": ["a.txt", "gone"], "expected": "o\nw"}, True),
        ({"type": "probe_file_contains", "paths": ["gone"], "expected": ""}, False),
        ({"type": "probe_file_contains", "paths": ["deep"], "expected": ""}, False),
        ({"type": "bash_cmd_succeeds", "bash_cmd": "[[ $(pwd) = /app && -e a.txt ]]"}, True),
        ({"type": "bash_cmd_succeeds", "bash_cmd": "echo no >&2; exit 4"}, False),
    ],
)
async def test_a_criterion_holds_or_not(
    host: RealHost, criterion: dict[str, JsonValue], passed: bool
) -> None:
    report = await verified(
        host, criterion, prepare="printf 'hello\\nworld' > a.txt; mkdir deep; touch 'deep/b 日本'"
    )

    (row,) = rows(report)
    assert (row["passed"], report.score) == (passed, float(passed)), row["justification"]


async def test_a_row_says_all_that_counts(host: RealHost) -> None:
    report = await verified(
        host,
        {"type": "bash_cmd_succeeds", "criterion": "works", "bash_cmd": "echo no >&2; exit 4"},
        verifier_id="judge",
    )

    assert report.output == {
        "verifier_id": "judge",
        "results": [
            {
                "criterion": "works",
                "type": "bash_cmd_succeeds",
                "score": 0.0,
                "weight": 1.0,
                "passed": False,
                "justification": "exit code 4; stderr: no",
                "skipped": False,
            }
        ],
        "score": 0.0,
    }


GOOD: dict[str, JsonValue] = {"type": "bash_cmd_succeeds", "bash_cmd": "true"}
BAD: dict[str, JsonValue] = {"type": "bash_cmd_succeeds", "bash_cmd": "false"}
OTHER: dict[str, JsonValue] = {
    "type": "response_contains",
    "criterion": "polite",
    "value": "please",
}


@pytest.mark.parametrize(
    ("criteria", "how", "score"),
    [
        ((GOOD, BAD), "all_pass", 0.0),
        ((GOOD, BAD), "any_pass", 1.0),
        (({**GOOD, "weight": 3}, BAD), "weighted_average", 0.75),
        ((GOOD, OTHER), "all_pass", 1.0),
        ((OTHER,), "all_pass", None),
        ((), "all_pass", None),
    ],
)
async def test_the_score_is_made_of_the_criteria_that_were_looked_at(
    host: RealHost, criteria: tuple[dict[str, JsonValue], ...], how: str, score: float | None
) -> None:
    report = await verified(host, *criteria, score_aggregator=how)

    assert (report.status, report.score) == (StepStatus.COMPLETED, score)
    assert len(rows(report)) == len(criteria)


async def test_a_skipped_criterion_says_so(host: RealHost) -> None:
    (row,) = rows(await verified(host, OTHER))

    assert (row["skipped"], row["score"], row["passed"]) == (True, None, None)
    assert "no criteria of type 'response_contains'" in row["justification"]


async def test_weights_that_sum_to_nothing_are_an_error(host: RealHost) -> None:
    report = await verified(host, {**GOOD, "weight": 0}, score_aggregator="weighted_average")

    assert (report.status, report.error_type) == (StepStatus.FAILED, "InvalidScore")


async def test_a_search_or_command_without_end_fails_its_criterion(host: RealHost) -> None:
    report = await verified(
        host,
        {"type": "probe_file_contains", "paths": ["a.txt"], "expected": NIGHTMARE},
        {"type": "bash_cmd_succeeds", "bash_cmd": "sleep 60"},
        GOOD,
        prepare=f"echo '{'a' * 60}!' > a.txt",
        shell_timeout_seconds=1,
    )

    assert [row["passed"] for row in rows(report)] == [False, False, True]
    assert all("took longer than 1 s" in row["justification"] for row in rows(report)[:2])


async def test_what_commands_say_always_fits(host: RealHost) -> None:
    loud: dict[str, JsonValue] = {
        "type": "bash_cmd_succeeds",
        "criterion": "日" * 5000,
        "bash_cmd": "head -c 90000 /dev/zero >&2; false",
    }

    report = await verified(host, *[loud] * 40)

    assert len(rows(report)) == 40
    assert report.score == 0.0


async def test_a_script_loaded_after_the_agent_is_the_one_that_is_run(host: RealHost) -> None:
    """The agent changed the copy it found; the verifier loads its own."""
    host.artifact("check", {"check.py": CHECK})
    load: dict[str, JsonValue] = {
        "type": "load_artifact", "artifact_id": "check", "destination_path": "/app/check",
    }  # fmt: skip

    reports = await host.play(
        BOX,
        {"id": "before", **load},
        {"id": "agent", "type": "run_code",
         "command": "echo > /app/check/check.py; echo 41 > /app/answer.txt"},
        {"id": "after", **load},
        {"id": "it", "type": "verify_sandbox",
         "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "python3 -I check/check.py"}]},
    )  # fmt: skip

    assert (reports["it"].error, reports["it"].score) == (None, 0.0)


async def test_a_lost_sandbox_is_no_score(host: RealHost) -> None:
    reports = await host.play(
        BOX,
        {"id": "lose", "type": "python", "function": "shutil:rmtree",
         "args": {"path": str(host.folder / "sandboxes")}},
        {"id": "it", "type": "verify_sandbox", "criteria": [GOOD]},
    )  # fmt: skip

    assert (reports["it"].error_type, reports["it"].score) == ("SandboxLost", None)


@pytest.mark.parametrize(
    ("criterion", "message"),
    [
        ({"type": "probe_file_exists"}, "needs paths"),
        ({"type": "probe_file_contains", "paths": ["a"]}, "needs expected"),
        ({"type": "probe_file_contains", "paths": ["a"], "expected": "("}, "no regular expression"),
        ({**GOOD, "weigth": 2}, "unknown key 'weigth': did you mean 'weight'?"),
    ],
)
async def test_a_criterion_that_can_never_hold_is_refused_before_the_run(
    host: RealHost, criterion: dict[str, JsonValue], message: str
) -> None:
    with pytest.raises(InvalidSpecError) as caught:
        await verified(host, criterion)

    assert message in str(caught.value)
