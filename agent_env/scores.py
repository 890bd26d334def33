"""Scores, how verifiers combine them, and the figures of a group. Pure."""

import math
import reprlib
import statistics
from collections.abc import Iterable, Sequence
from enum import StrEnum

from agent_env._model import WireModel
from agent_env.errors import InvalidScoreError
from agent_env.status import RunStatus

ADVANTAGE_EPS = 1e-6
"""Added to the standard deviation, so that a group of equal rewards has advantages of 0."""


def checked_score(value: object) -> float:
    """A score as a finite float. ``True`` and ``False`` are 1.0 and 0.0.

    Raises:
        InvalidScoreError: it is NaN, infinite, not a number, or too large for a float.
    """
    if not isinstance(value, int | float):
        raise InvalidScoreError(
            f"a score is a number, not {type(value).__name__} {reprlib.repr(value)}; return a float"
        )
    try:
        number = float(value)
    except OverflowError:
        raise InvalidScoreError("a score must fit a float; this integer is too large") from None
    if not math.isfinite(number):
        raise InvalidScoreError(
            f"a score is finite, not {number}; return a finite float or nothing"
        )
    return number


class Aggregator(StrEnum):
    """How the rows of verifiers become one score."""

    ALL_PASS = "all_pass"
    """1.0 if every row passed, else 0.0."""
    ANY_PASS = "any_pass"
    """1.0 if one row passed, else 0.0."""
    WEIGHTED_AVERAGE = "weighted_average"
    """Weighted mean of the rows; a row with a negative weight takes away by how far it fails."""


class Verdict(WireModel):
    """One row of a verifier: one criterion and how it went."""

    criterion: str
    score: float
    weight: float = 1.0
    justification: str = ""

    @property
    def passed(self) -> bool:
        """Whether it scored full marks."""
        return self.score >= 1.0


def aggregate(verdicts: Sequence[Verdict], how: Aggregator) -> float | None:
    """One score from 0 to 1 of many rows; None when there is nothing to aggregate.

    Raises:
        InvalidScoreError: a row's score is not finite; or ``WEIGHTED_AVERAGE`` over rows with a
            weight that is not finite, or none of which has a positive weight.
    """
    if not verdicts:
        return None
    for row in verdicts:
        checked_score(row.score)
    if how is Aggregator.ALL_PASS:
        return float(all(row.passed for row in verdicts))
    if how is Aggregator.ANY_PASS:
        return float(any(row.passed for row in verdicts))
    total = sum(row.weight for row in verdicts if row.weight > 0)
    if not math.isfinite(sum(abs(row.weight) for row in verdicts)):
        raise InvalidScoreError("weights must be finite, and so must their sum; use smaller ones")
    if total <= 0:
        raise InvalidScoreError(
            "a weighted average needs a row with a positive weight; give a criterion one over 0"
        )
    earned = sum(row.score * row.weight for row in verdicts if row.weight > 0)
    penalty = sum((1.0 - row.score) * -row.weight for row in verdicts if row.weight < 0)
    return min(1.0, max(0.0, checked_score((earned - penalty) / total)))


class GroupFigures(WireModel):
    """Counts and reward figures of a group. Unscored members enter none of the reward figures."""

    n: int
    queued: int = 0
    running: int = 0
    completed: int = 0
    failed: int = 0
    canceled: int = 0
    n_scored: int = 0
    mean: float | None = None
    std: float | None = None
    """Sample standard deviation; None under two scored members, or when no float holds it."""
    min: float | None = None
    max: float | None = None
    n_passed: int = 0
    """Scored members with full marks, 1.0 or more: what pass@k counts."""

    @property
    def is_finished(self) -> bool:
        """Whether every member has ended."""
        return self.queued + self.running == 0

    def pass_at(self, k: int) -> float | None:
        """Unbiased estimate of the chance that one of ``k`` draws passes; None if k > n_scored."""
        if not 1 <= k <= self.n_scored:
            return None
        missed = self.n_scored - self.n_passed
        return 1.0 - math.comb(missed, k) / math.comb(self.n_scored, k)

    def advantages(self, rewards: Iterable[float | None]) -> tuple[float | None, ...]:
        """``(reward - mean) / (std + eps)`` for each reward; None where undefined."""
        mean, std = self.mean, self.std
        if mean is None or std is None:
            return tuple(None for _ in rewards)
        found = (None if r is None else (r - mean) / (std + ADVANTAGE_EPS) for r in rewards)
        return tuple(a if a is not None and math.isfinite(a) else None for a in found)


def group_figures(members: Iterable[tuple[RunStatus, float | None]]) -> GroupFigures:
    """The figures over (status, reward) of each member."""
    rows = list(members)
    counts = {status: sum(1 for found, _ in rows if found is status) for status in RunStatus}
    rewards = [reward for _, reward in rows if reward is not None]
    mean, std = mean_and_std(rewards)
    return GroupFigures(
        n=len(rows),
        queued=counts[RunStatus.QUEUED],
        running=counts[RunStatus.RUNNING],
        completed=counts[RunStatus.COMPLETED],
        failed=counts[RunStatus.FAILED],
        canceled=counts[RunStatus.CANCELED],
        n_scored=len(rewards),
        mean=mean,
        std=std,
        min=min(rewards, default=None),
        max=max(rewards, default=None),
        n_passed=sum(1 for reward in rewards if reward >= 1.0),
    )


def mean_and_std(rewards: Sequence[float]) -> tuple[float | None, float | None]:
    """Mean (None of nothing) and sample standard deviation (None under two, or past any float)."""
    if not rewards:
        return None, None
    mean = _mean(rewards)
    return mean, _std(rewards, mean) if len(rewards) > 1 else None


def _mean(rewards: Sequence[float]) -> float:
    try:
        near = math.fsum(rewards) / len(rewards)
        # It was rounded twice: without this the mean of three times 0.1 would not be 0.1.
        mean = near + math.fsum(reward - near for reward in rewards) / len(rewards)
    except (OverflowError, ValueError):  # a sum is too large
        mean = math.inf
    return mean if math.isfinite(mean) else float(statistics.mean(rewards))


def _std(rewards: Sequence[float], mean: float) -> float | None:
    """As exact as ``statistics.stdev`` but for the last digits, and ten times as fast.

    Of sums that neither cancel nor overflow: they are of what is left over the mean, in parts of
    the largest.
    """
    deviations = [reward - mean for reward in rewards]
    largest = max(map(abs, deviations))
    if largest == 0:
        return 0.0
    if math.isinf(largest):
        return _slow_std(rewards)
    parts = [deviation / largest for deviation in deviations]
    # The mean is rounded, so what is left over it does not sum up to nothing.
    squares = math.fsum(part * part for part in parts) - math.fsum(parts) ** 2 / len(parts)
    std = largest * math.sqrt(squares / (len(parts) - 1))
    return std if math.isfinite(std) else None


def _slow_std(rewards: Sequence[float]) -> float | None:
    try:
        return statistics.stdev(rewards)
    except OverflowError:
        return None
