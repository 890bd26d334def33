import math
import statistics
from fractions import Fraction
from itertools import combinations
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.errors import InvalidScoreError
from agent_env.scores import (
    ADVANTAGE_EPS,
    Aggregator,
    GroupFigures,
    Verdict,
    aggregate,
    checked_score,
    group_figures,
    mean_and_std,
)
from agent_env.status import RunStatus

DONE, FAILED = RunStatus.COMPLETED, RunStatus.FAILED
FLOATS = st.floats(allow_nan=False, allow_infinity=False)
REWARDS = st.floats(min_value=-1e6, max_value=1e6)


class Unprintable:
    def __repr__(self) -> str:
        raise RuntimeError("no")


def verdicts(*rows: tuple[float, float]) -> list[Verdict]:
    return [Verdict(criterion="c", score=score, weight=weight) for score, weight in rows]


def figures_of(*rewards: float | None) -> GroupFigures:
    return group_figures((FAILED if r is None else DONE, r) for r in rewards)


@pytest.mark.parametrize(
    ("value", "score"),
    [
        (True, 1.0),
        (False, 0.0),
        (-0.5, -0.5),
        (3, 3.0),
        (np.float64(0.25), 0.25),
        (1e308, 1e308),
    ],
)
def test_a_finite_number_is_a_score(value: object, score: float) -> None:
    found = checked_score(value)

    assert found == score
    assert type(found) is float


@pytest.mark.parametrize(
    "value",
    [math.nan, math.inf, -math.inf, "0.5", 1e309, 10**400, None, [1.0], Unprintable(), "x" * 10**6],
    ids=lambda value: type(value).__name__,
)
def test_anything_else_is_no_score(value: object) -> None:
    with pytest.raises(InvalidScoreError) as caught:
        checked_score(value)

    assert len(str(caught.value)) < 300


@pytest.mark.parametrize("how", list(Aggregator))
def test_nothing_to_aggregate_is_unscored(how: Aggregator) -> None:
    assert aggregate([], how) is None


@pytest.mark.parametrize(
    ("rows", "all_pass", "any_pass"),
    [
        ([(1, 1), (1, 1)], 1.0, 1.0),
        ([(1, 1), (0.99, 1)], 0.0, 1.0),
        ([(0, 1), (0.5, 1)], 0.0, 0.0),
    ],
)
def test_passing_means_full_marks(
    rows: list[tuple[float, float]], all_pass: float, any_pass: float
) -> None:
    assert aggregate(verdicts(*rows), Aggregator.ALL_PASS) == all_pass
    assert aggregate(verdicts(*rows), Aggregator.ANY_PASS) == any_pass


@pytest.mark.parametrize(
    ("rows", "score"),
    [
        ([(1, 1), (0, 1)], 0.5),
        ([(1, 3), (0, 1)], 0.75),
        ([(1, 1), (1, -0.5)], 1.0),
        ([(1, 1), (0, -0.5)], 0.5),
        ([(1, 1), (0, -5)], 0.0),
        ([(0.5, 1), (0.5, 0)], 0.5),
        ([(2, 1)], 1.0),
    ],
)
def test_a_weighted_average_takes_away_for_negative_weights(
    rows: list[tuple[float, float]], score: float
) -> None:
    assert aggregate(verdicts(*rows), Aggregator.WEIGHTED_AVERAGE) == pytest.approx(score)


@pytest.mark.parametrize(
    "rows",
    [[(1, 0)], [(1, -1)], [(1, 0), (0, -2)], [(1, math.nan)], [(1, math.inf)], [(1, 1e308)] * 2],
)
def test_weights_that_give_no_average_are_refused(rows: list[tuple[float, float]]) -> None:
    with pytest.raises(InvalidScoreError, match="weight"):
        aggregate(verdicts(*rows), Aggregator.WEIGHTED_AVERAGE)


@pytest.mark.parametrize("how", list(Aggregator))
@pytest.mark.parametrize("bad", [math.nan, math.inf])
def test_a_row_that_is_not_finite_is_never_taken_for_a_score(how: Aggregator, bad: float) -> None:
    with pytest.raises(InvalidScoreError):
        aggregate(verdicts((1, 1), (bad, 1)), how)


@given(st.lists(st.tuples(FLOATS, FLOATS), min_size=1))
def test_a_weighted_average_is_from_0_to_1_or_refused(rows: list[tuple[float, float]]) -> None:
    try:
        score = aggregate(verdicts(*rows), Aggregator.WEIGHTED_AVERAGE)
    except InvalidScoreError:
        return

    assert score is not None
    assert 0.0 <= score <= 1.0


@given(st.lists(REWARDS, min_size=2))
def test_mean_and_std_are_those_of_statistics_and_numpy(rewards: list[float]) -> None:
    mean, std = mean_and_std(rewards)

    # numpy sums in floats: it may be off by the rounding of the largest reward.
    rounding = 1e-9 * (1 + max(map(abs, rewards)))
    assert mean == pytest.approx(statistics.fmean(rewards), rel=1e-12, abs=1e-12)
    assert std == pytest.approx(statistics.stdev(rewards), rel=1e-12)
    assert mean == pytest.approx(float(np.mean(rewards)), abs=rounding)
    assert std == pytest.approx(float(np.std(rewards, ddof=1)), abs=rounding)


@given(st.lists(FLOATS))
def test_figures_of_any_finite_rewards_are_finite_or_none(rewards: list[float]) -> None:
    figures = figures_of(*rewards)

    found = [figures.mean, figures.std, *figures.advantages(rewards)]
    assert all(value is None or math.isfinite(value) for value in found)


def test_a_spread_that_no_float_holds_is_none() -> None:
    figures = figures_of(1.7e308, -1.7e308)

    assert (figures.mean, figures.std) == (0.0, None)
    assert figures.advantages([1.7e308]) == (None,)


def test_an_advantage_that_no_float_holds_is_none() -> None:
    figures = GroupFigures(n=2, n_scored=2, mean=-1e308, std=1.0)

    assert figures.advantages([1e308, -1e308]) == (None, 0.0)


def test_unscored_members_enter_no_figure() -> None:
    rewards = [1.0, None, 0.0, 0.5, None, 1.0, None, 0.25]

    figures = figures_of(*rewards)

    scored = [r for r in rewards if r is not None]
    assert (figures.n, figures.completed, figures.failed, figures.n_scored) == (8, 5, 3, 5)
    assert figures.mean == statistics.fmean(scored)
    assert figures.std == statistics.stdev(scored)
    assert (figures.min, figures.max, figures.n_passed) == (0.0, 1.0, 2)
    advantages = figures.advantages(rewards)
    assert [a is None for a in advantages] == [r is None for r in rewards]
    assert advantages[0] == (1.0 - statistics.fmean(scored)) / (
        statistics.stdev(scored) + ADVANTAGE_EPS
    )


def test_a_failed_member_that_scored_counts_with_its_score() -> None:
    assert group_figures([(FAILED, 0.5), (DONE, 1.0)]).mean == 0.75


def test_a_group_without_a_score_has_no_mean() -> None:
    figures = figures_of(None, None)

    assert (figures.n, figures.n_scored) == (2, 0)
    assert (figures.mean, figures.std, figures.min, figures.max) == (None,) * 4
    assert figures.advantages([None, None]) == (None, None)
    assert figures.pass_at(1) is None


def test_a_group_of_one_has_a_mean_but_no_std_and_no_advantage() -> None:
    figures = figures_of(0.5)

    assert (figures.mean, figures.std) == (0.5, None)
    assert figures.advantages([0.5]) == (None,)


def test_equal_rewards_have_advantages_of_0() -> None:
    assert figures_of(0.1, 0.1, 0.1).advantages([0.1, 0.1, 0.1]) == (0.0, 0.0, 0.0)


@pytest.mark.parametrize(
    ("statuses", "finished"),
    [
        ([RunStatus.QUEUED, DONE], False),
        ([RunStatus.RUNNING], False),
        ([DONE, FAILED, RunStatus.CANCELED], True),
    ],
)
def test_a_group_is_finished_when_every_member_is(
    statuses: list[RunStatus], finished: bool
) -> None:
    figures = group_figures((status, None) for status in statuses)

    assert figures.is_finished is finished
    counts = figures.model_dump(include={status.lower() for status in RunStatus})
    assert counts == {status.lower(): statuses.count(status) for status in RunStatus}


@given(st.lists(st.booleans(), min_size=1, max_size=9), st.data())
def test_pass_at_k_is_the_share_of_draws_with_a_pass(passed: list[bool], data: Any) -> None:
    k: int = data.draw(st.integers(min_value=1, max_value=len(passed)))
    draws = list(combinations(passed, k))

    estimate = figures_of(*map(float, passed)).pass_at(k)

    assert estimate == pytest.approx(float(Fraction(sum(map(any, draws)), len(draws))))


@pytest.mark.parametrize("k", [-1, 0, 3, 10**6])
def test_pass_at_more_than_were_scored_is_none(k: int) -> None:
    assert figures_of(1.0, 0.0, None).pass_at(k) is None
