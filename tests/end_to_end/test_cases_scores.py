"""Scores that are none, and groups with members that have none, through a real worker."""

import math
import statistics

import pytest
from pydantic import JsonValue

from agent_env.results import GroupResult
from agent_env.status import RunStatus, StepStatus
from tests.end_to_end.conftest import Product
from tests.end_to_end.stage import box, command, play, python, spec

pytestmark = [pytest.mark.asyncio(loop_scope="module"), pytest.mark.usefixtures("worker")]

UNSCORED = python("score", "returns_none", score=True)
DIES_OR_SCORES = python("score", "scores_or_dies", args={"seed": "<seed>"}, score=True)


async def play_group(product: Product, *steps: JsonValue, size: int) -> GroupResult:
    group = await product.trainer.start_group(spec(*steps, seed={"seed": "0"}), size=size)
    return await group.result()


@pytest.mark.parametrize(
    "function", ["returns_nan", "returns_infinity", "returns_text", "returns_huge"]
)
async def test_what_is_no_finite_number_fails_the_verifier(shared: Product, function: str) -> None:
    """S1."""
    played = await play(shared, python("score", function, score=True))

    assert played.result.status is played.row.status is RunStatus.FAILED
    assert played.result.error_type == played.row.error_type == "InvalidScore"
    assert played.result.reward is played.row.reward is None
    assert played.row.scores.get("score") is None


@pytest.mark.parametrize("printed", ["nan", "-inf", "1e309", "'0.5'", "half"])
async def test_a_command_that_prints_no_finite_number_fails_the_verifier(
    shared: Product, printed: str
) -> None:
    """S1."""
    played = await play(shared, box(), command("score", f'echo "{printed}"', score_from="stdout"))

    assert played.result.error_type == played.row.error_type == "InvalidScore"
    assert played.result.reward is played.row.reward is None


@pytest.mark.parametrize(("function", "score"), [("returns_true", 1.0), ("returns_negative", -0.5)])
async def test_true_is_1_and_a_negative_score_is_kept(
    shared: Product, function: str, score: float
) -> None:
    """S1."""
    played = await play(shared, python("score", function, score=True))

    assert played.result.status is RunStatus.COMPLETED
    assert played.result.reward == played.row.reward == score
    assert type(played.row.reward) is float


async def test_weights_that_sum_to_nothing_are_an_error_that_says_so(shared: Product) -> None:
    """S2."""
    nothing: JsonValue = {"type": "bash_cmd_succeeds", "bash_cmd": "true", "weight": 0}

    played = await play(
        shared,
        box(),
        {
            "id": "v",
            "type": "verify_sandbox",
            "criteria": [nothing, nothing],
            "score_aggregator": "weighted_average",
        },
    )

    assert played.row.error_type == "InvalidScore"
    assert played.row.error is not None
    assert "needs a row with a positive weight" in played.row.error


async def test_nothing_to_aggregate_is_unscored(shared: Product) -> None:
    """S2."""
    played = await play(shared, {"id": "all", "type": "aggregate_verifiers", "verifier_ids": []})

    assert played.result.status is RunStatus.COMPLETED
    assert played.steps["all"].status is StepStatus.COMPLETED
    assert played.result.reward is played.row.reward is None


async def test_a_group_of_unscored_members_has_no_mean_and_is_shown_so(shared: Product) -> None:
    """S3."""
    result = await play_group(shared, UNSCORED, size=3)
    cli = shared.cli()
    shown, listed = cli.run("groups", "show", result.run_group_id), cli.run("groups", "list")
    as_json = cli.run("groups", "show", result.run_group_id, "--json").json

    assert result.figures.completed == 3
    assert result.mean is result.figures.std is result.figures.min is result.figures.max is None
    assert result.advantages == (None, None, None)
    assert "reward – (0 scored of 3)" in shown.out
    assert "– (0 scored of 3)" in listed.out
    assert as_json["figures"]["mean"] is None


async def test_members_that_failed_without_a_score_enter_no_figure(shared: Product) -> None:
    """S4."""
    result = await play_group(shared, DIES_OR_SCORES, size=8)
    as_json = shared.cli().run("groups", "show", result.run_group_id, "--json").json

    rewards = [3.0, 4.0, 5.0, 6.0, 7.0]
    figures = result.figures
    assert (figures.n, figures.failed, figures.completed, figures.n_scored) == (8, 3, 5, 5)
    assert [member.reward for member in result.members] == [None] * 3 + rewards
    assert figures.mean == statistics.mean(rewards)
    assert figures.std == pytest.approx(statistics.stdev(rewards))
    assert result.advantages[:3] == (None,) * 3
    scored = [advantage for advantage in result.advantages[3:] if advantage is not None]
    assert len(scored) == 5
    assert math.isclose(sum(scored), 0, abs_tol=1e-9)
    assert as_json["figures"]["mean"] == figures.mean
    assert [member["advantage"] for member in as_json["members"]] == list(result.advantages)


async def test_a_group_of_one_has_a_mean_and_neither_std_nor_advantage(shared: Product) -> None:
    """S5."""
    result = await play_group(shared, python("score", "returns_true", score=True), size=1)

    assert (result.mean, result.figures.std, result.advantages) == (1.0, None, (None,))


async def test_pass_at_more_draws_than_were_scored_is_none(shared: Product) -> None:
    """S6."""
    result = await play_group(shared, DIES_OR_SCORES, size=5)
    as_json = shared.cli().run("groups", "show", result.run_group_id, "--json").json

    figures = result.figures
    assert (figures.n, figures.n_scored) == (5, 2)
    assert [figures.pass_at(k) for k in (1, 2, 3, 5)] == [1.0, 1.0, None, None]
    assert set(as_json["pass_at"]) <= {"1", "2"}
