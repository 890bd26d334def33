"""What steps, episodes and groups give back. Frozen, JSON-shaped. Pure."""

from collections.abc import Mapping, Sequence
from datetime import datetime

from pydantic import JsonValue, ValidationError

from agent_env._model import WireModel
from agent_env.errors import InvalidScoreError
from agent_env.scores import GroupFigures, Verdict
from agent_env.status import RunStatus, StepStatus


class SandboxRef(WireModel):
    """Data that finds a sandbox again from any process. Never a client, never a secret."""

    type: str
    """The provider's type."""
    id: str
    """The provider's own name for it."""
    name: str
    """What the task calls it."""
    created_at: datetime


class StepReport(WireModel):
    """How one attempt of one step ended."""

    step_id: str
    type: str
    epoch: int
    """Which begin or retry of the episode it belongs to, from 1."""
    status: StepStatus
    started_at: datetime | None = None
    finished_at: datetime | None = None
    error_type: str | None = None
    error: str | None = None
    score: float | None = None
    output: JsonValue = None
    """At most 64 KiB as JSON."""
    sandboxes: tuple[SandboxRef, ...] = ()
    """What the step deployed."""
    retried: bool = False
    """Dropped by a retry: it stays in the record and counts for nothing."""


def verdicts_of(verifier_id: str, reports: Sequence[StepReport]) -> list[Verdict]:
    """The rows of one verifier, in order, as its completed step recorded them in its output.

    A verifier is known by the ``verifier_id`` in its output, else by its step's id. One without
    rows counts as a single row of its score. Skipped rows and unscored verifiers give nothing.

    Raises:
        InvalidScoreError: a row has no number as its score, or none as its weight.
    """
    rows: list[Verdict] = []
    for report in reports:
        counts = report.status is StepStatus.COMPLETED and not report.retried
        output = report.output if isinstance(report.output, dict) else {}
        if not counts or output.get("verifier_id", report.step_id) != verifier_id:
            continue
        results = output.get("results")
        if isinstance(results, list):
            rows += [_verdict(verifier_id, row) for row in results if not _is_skipped(row)]
        elif report.score is not None:
            rows.append(Verdict(criterion=verifier_id, score=report.score))
    return rows


def used_types(reports: Sequence[StepReport]) -> set[str]:
    """Providers that steps have used."""
    return {ref.type for report in reports for ref in report.sandboxes}


def _is_skipped(row: JsonValue) -> bool:
    return isinstance(row, dict) and row.get("skipped") is True


def _verdict(verifier_id: str, row: JsonValue) -> Verdict:
    try:
        return Verdict.model_validate(row)
    except ValidationError as error:
        field = ".".join(str(part) for part in error.errors()[0]["loc"])
        raise InvalidScoreError(
            f"verifier {verifier_id!r} recorded a row that can't be read: {field or 'it'}: "
            f"{error.errors()[0]['msg']}"
        ) from None


class EpisodeResult(WireModel):
    """How an episode ended. Result of the workflow, or the detail of its failure."""

    run_id: str
    task_id: str
    status: RunStatus
    reward: float | None = None
    """None means unscored, never 0."""
    scores: Mapping[str, float | None] = {}
    """By step id, of every step that scores."""
    error_type: str | None = None
    error: str | None = None
    run_group_id: str | None = None
    member_index: int | None = None
    started_at: datetime | None = None
    """When a worker began it. None if none did."""
    finished_at: datetime | None = None
    still_up: tuple[SandboxRef, ...] = ()
    """What teardown could not remove; tried again until it is gone."""

    @property
    def duration_s(self) -> float | None:
        """Seconds from begin to end, teardown included."""
        if self.started_at is None or self.finished_at is None:
            return None
        return max(0.0, (self.finished_at - self.started_at).total_seconds())


class GroupResult(WireModel):
    """Every member of a group in order of its index, and the figures over them."""

    run_group_id: str
    task_id: str
    members: tuple[EpisodeResult, ...]
    figures: GroupFigures
    left_out: int = 0
    """How many members the workflow's own result is without: the engine takes 2 MiB, the index has
    them all."""

    @property
    def mean(self) -> float | None:
        """Mean reward of the scored members; None when none is scored."""
        return self.figures.mean

    @property
    def advantages(self) -> tuple[float | None, ...]:
        """Each member's advantage, in order; None where undefined."""
        return self.figures.advantages(member.reward for member in self.members)
