from typing import ClassVar

import pytest
from pydantic import JsonValue

from agent_env.status import StepStatus
from agent_env.steps.aggregate_verifiers import AggregateVerifiers
from agent_env.testing.step_contract import StepContract
from tests.agent_env.steps.real_host import BOX, RealHost

ROWS: dict[str, JsonValue] = {
    "id": "rows",
    "type": "verify_sandbox",
    "verifier_id": "files",
    "criteria": [
        {"type": "bash_cmd_succeeds", "bash_cmd": "true"},
        {"type": "bash_cmd_succeeds", "bash_cmd": "false", "weight": 2},
        {"type": "judged_elsewhere"},
    ],
}


def scoring(step_id: str, command: str) -> dict[str, JsonValue]:
    return {"id": step_id, "type": "run_code", "command": command, "score_from": "stdout"}


class TestAggregateVerifiers(StepContract):
    step = AggregateVerifiers
    good_params: ClassVar = {"verifier_ids": ["a", "b"], "score_aggregator": "any_pass"}
    bad_params: ClassVar = {"verifier_ids": ["a"], "score_aggregator": "median"}


@pytest.mark.parametrize(
    ("ids", "how", "score", "count"),
    [
        (["files", "half"], "weighted_average", 0.375, 3),
        (["files", "half"], "any_pass", 1.0, 3),
        (["files", "half"], "all_pass", 0.0, 3),
        (["half", "half", "silent"], "weighted_average", 0.5, 1),
        (["silent"], "weighted_average", None, 0),
        ([], "all_pass", None, 0),
    ],
)
async def test_the_rows_of_all_verifiers_are_one_score(
    host: RealHost, ids: list[str], how: str, score: float | None, count: int
) -> None:
    reports = await host.play(
        BOX,
        ROWS,
        scoring("half", "echo 0.5"),
        scoring("silent", "true"),
        {"id": "rest", "type": "aggregate_verifiers",
         "verifier_ids": ["files", "half", "silent"], "verifier_id": "rest"},
        {"id": "it", "type": "aggregate_verifiers", "verifier_ids": [*ids],
         "score_aggregator": how, "verifier_id": "all"},
        {"id": "end", "type": "aggregate_verifiers", "verifier_ids": ["all", "rest"]},
    )  # fmt: skip

    assert (reports["it"].status, reports["it"].score) == (StepStatus.COMPLETED, score)
    assert isinstance(reports["it"].output, dict)
    assert reports["it"].output["rows"] == count
    assert reports["it"].output["verifier_id"] == "all"


async def test_a_verifier_that_failed_counts_for_nothing(host: RealHost) -> None:
    reports = await host.play(
        BOX,
        {**scoring("broken", "echo nan"), "fail_task_on_error": False},
        scoring("half", "echo 0.5"),
        {"id": "it", "type": "aggregate_verifiers", "verifier_ids": ["broken", "half"]},
    )

    assert (reports["broken"].status, reports["it"].score) == (StepStatus.FAILED, 0.5)


async def test_weights_that_sum_to_nothing_are_an_error(host: RealHost) -> None:
    rows: dict[str, JsonValue] = {
        **ROWS,
        "criteria": [{"type": "bash_cmd_succeeds", "bash_cmd": "true", "weight": 0}],
    }

    reports = await host.play(
        BOX, rows, {"id": "it", "type": "aggregate_verifiers", "verifier_ids": ["files"]}
    )

    assert reports["rows"].score == 1.0
    assert (reports["it"].status, reports["it"].error_type) == (StepStatus.FAILED, "InvalidScore")
