"""Where the run index and Temporal disagree, and how a run ends that no workflow code ended. Pure.

Terminating a workflow, a timeout set from outside and a deleted history run none of our code: the
row stays live, or it has ended otherwise. What is decided here is done by ``agent_env.reconciler``
and its workflow.
"""

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta
from enum import StrEnum
from typing import NamedTuple

from agent_env.errors import bounded
from agent_env.outcome import CANCELED_IN_TEMPORAL, Outcome, reward_of
from agent_env.results import EpisodeResult, StepReport
from agent_env.specs import CancelMembers, Repair
from agent_env.status import RunStatus, StepStatus

GRACE = timedelta(seconds=5)
"""How long what is on its way may take: a listing that lags, a request between row and Temporal."""


def is_fresh(at: datetime, now: datetime) -> bool:
    """Whether it was a moment ago. Not long ago by a clock that is ahead, either."""
    return abs(now - at) <= GRACE


class ComparedRun(NamedTuple):
    """What is compared of a row."""

    run_id: str
    workflow_run_id: str | None
    run_group_id: str | None
    member_index: int | None
    status: RunStatus
    host: str | None
    created_at: datetime
    cancel_requested_at: datetime | None
    cancel_requested_reason: str | None


class OpenWorkflow(NamedTuple):
    """An execution that Temporal lists as running."""

    run_id: str
    started_at: datetime


class Opened(NamedTuple):
    """Every open workflow of ours in the namespace, by id."""

    episodes: Mapping[str, OpenWorkflow]
    groups: Mapping[str, OpenWorkflow]


_FROM_OUTSIDE = {"TERMINATED": RunStatus.CANCELED, "TIMED_OUT": RunStatus.FAILED}
"""How a row ends whose workflow something from outside has ended, whatever it had come to."""


def is_from_outside(status: str) -> bool:
    """Whether a workflow that ended so was ended by something else than its own code."""
    return status in _FROM_OUTSIDE


def overrules(status: str, row: RunStatus) -> bool:
    """Whether a workflow's end leaves another end to its row than the one that is written there.

    That of a workflow which closed by itself never does: it closes as its row says.
    """
    return row.is_finished and _FROM_OUTSIDE.get(status, row) is not row


class Standing(StrEnum):
    """How a live row compares with what Temporal lists."""

    AGREES = "agrees"
    UNHEARD = "unheard"
    """Its workflow is open; a cancel is asked for, and may not have reached Temporal."""
    WAITS = "waits"
    """A member that its open group has not started."""
    STRANDED = "stranded"
    """A member that was not started, of a group that is not open."""
    ORPHANED = "orphaned"
    """A member whose workflow is open, of a group that is not."""
    SUSPECT = "suspect"
    """It should have an open workflow, and none is listed."""


def standing(row: ComparedRun, opened: Opened, now: datetime) -> Standing:
    """Compare a row with the listing. A listing may lag: look closely at what it lacks."""
    if row.run_id in opened.episodes:
        asked_at = row.cancel_requested_at
        is_asked = asked_at is not None and not is_fresh(asked_at, now)
        if is_asked:
            return Standing.UNHEARD
        is_member = row.run_group_id is not None and row.member_index is not None
        is_alone = is_member and row.run_group_id not in opened.groups
        return Standing.ORPHANED if is_alone else Standing.AGREES
    if is_fresh(row.created_at, now):
        return Standing.AGREES
    if row.status is RunStatus.QUEUED and is_unstarted_member(row):
        return Standing.WAITS if row.run_group_id in opened.groups else Standing.STRANDED
    return Standing.SUSPECT


def is_unstarted_member(row: ComparedRun) -> bool:
    """Whether its group listed it and no workflow of its own has written to it."""
    is_member = row.run_group_id is not None and row.member_index is not None
    return is_member and row.workflow_run_id is None


class Kind(StrEnum):
    """What disagrees. Closed: scripts match on it."""

    ENDED = "ended"
    """A live row whose workflow is over."""
    STRANDED = "stranded"
    """Members of a group that is over, which will never start."""
    UNLISTED = "unlisted"
    """An open episode without a row."""
    UNHEARD = "unheard"
    """A cancel that was asked for and has not reached Temporal."""
    OVERRULED = "overruled"
    """A row that has ended otherwise than its workflow, which something from outside has ended
    between the row's end and its own."""


class Disagreement(NamedTuple):
    """One of them, and what it takes to repair it."""

    kind: Kind
    target: str
    """The run or the group."""
    detail: str
    repair: Repair | None = None
    """For ENDED and OVERRULED."""
    members: CancelMembers | None = None
    """For STRANDED."""
    workflow_run_id: str | None = None
    """For UNLISTED and UNHEARD; None is the latest."""
    reason: str = ""
    """For UNHEARD."""


class Closed(NamedTuple):
    """How Temporal says that a workflow ended."""

    status: str
    """``COMPLETED FAILED CANCELED TERMINATED TIMED_OUT`` or ``NOT_FOUND``."""
    reason: str = ""
    """Of a termination or a cancel, or the message of a failure."""
    error_type: str | None = None
    """Of a failure that carries no result."""
    result: EpisodeResult | None = None
    """What the workflow said itself."""


def ending(closed: Closed) -> Outcome:
    """How a run ended whose workflow did not write it."""
    if closed.result is not None:
        found = closed.result
        return Outcome(
            status=found.status,
            error_type=found.error_type,
            error=found.error,
            reward=found.reward,
            scores=found.scores,
        )
    reason = closed.reason.strip()
    match closed.status:
        case "TERMINATED":
            text = f"terminated: {reason or 'no reason was given'}"
            return _ended(RunStatus.CANCELED, "Canceled", text)
        case "CANCELED":
            return _ended(RunStatus.CANCELED, "Canceled", reason or CANCELED_IN_TEMPORAL)
        case "TIMED_OUT":
            text = "timed out: a timeout of the workflow, set from outside, has passed"
            return _ended(RunStatus.FAILED, "WorkflowTimedOut", text)
        case "NOT_FOUND":
            text = "workflow not found: Temporal has no such workflow, or its history was deleted"
            return _ended(RunStatus.FAILED, "WorkflowNotFound", text)
        case _:
            text = reason or f"the workflow is {closed.status} and left no result"
            return _ended(RunStatus.FAILED, closed.error_type or "InternalError", text)


def why_never_started(closed: Closed) -> str:
    """The reason that members get which their group never started."""
    match closed.status:
        case "TERMINATED":
            return f"terminated: {closed.reason.strip() or 'no reason was given'} (the group)"
        case "CANCELED":
            return closed.reason.strip() or CANCELED_IN_TEMPORAL
        case "NOT_FOUND":
            return "workflow not found: Temporal has no such group, or its history was deleted"
        case _:
            return f"the group is {closed.status} and did not start it"


def scored(outcome: Outcome, steps: Sequence[StepReport], reward_step: str | None) -> Outcome:
    """The outcome with what was scored before the end: it is kept."""
    scores = {
        step.step_id: step.score
        for step in steps
        if step.status is StepStatus.COMPLETED
        and not step.retried
        and (step.score is not None or step.step_id == reward_step)
    }
    update = {"scores": scores, "reward": reward_of(reward_step, scores)}
    return outcome.model_copy(update=update)


class GroupTally:
    """What the live members of each group have in common, row by row."""

    def __init__(self) -> None:
        self._reasons: dict[str, str] = {}
        self._unasked: set[str] = set()
        self._waiting: set[str] = set()
        self._stranded: dict[str, int] = {}
        self._held: set[str] = set()

    def add(self, row: ComparedRun, found: Standing, now: datetime) -> None:
        """Count a row in."""
        group = row.run_group_id
        if group is None:
            return
        if row.cancel_requested_at is None or is_fresh(row.cancel_requested_at, now):
            self._unasked.add(group)
        else:
            self._reasons.setdefault(group, row.cancel_requested_reason or "")
        if found is Standing.WAITS:
            self._waiting.add(group)
        elif found is Standing.STRANDED:
            self._stranded[group] = self._stranded.get(group, 0) + 1
        elif is_unstarted_member(row):
            # It has a workflow that has not written to its row yet.
            self._held.add(group)

    @property
    def unheard(self) -> list[tuple[str, str]]:
        """Groups, with the reason, that are to be canceled: every live member is asked to be."""
        return [
            (group, reason)
            for group, reason in self._reasons.items()
            if group in self._waiting and group not in self._unasked
        ]

    @property
    def stranded(self) -> list[tuple[str, int]]:
        """Groups that are not open, with the number of members they never started."""
        return [(group, n) for group, n in self._stranded.items() if group not in self._held]


def _ended(status: RunStatus, error_type: str, error: str) -> Outcome:
    return Outcome(status=status, error_type=error_type, error=bounded(error))
