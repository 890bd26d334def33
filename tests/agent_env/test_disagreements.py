"""agent_env/disagreements.py"""

from datetime import UTC, datetime, timedelta
from typing import Any

import pytest

from agent_env.disagreements import (
    GRACE,
    Closed,
    ComparedRun,
    GroupTally,
    Opened,
    OpenWorkflow,
    Standing,
    ending,
    is_from_outside,
    overrules,
    scored,
    standing,
    why_never_started,
)
from agent_env.errors import MAX_ERROR_CHARS
from agent_env.outcome import Outcome
from agent_env.results import EpisodeResult, StepReport
from agent_env.status import RunStatus, StepStatus

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)
LONG_AGO = NOW - timedelta(hours=1)
JUST_NOW = NOW - GRACE / 2
OPEN = OpenWorkflow("w", LONG_AGO)


def row(**changes: Any) -> ComparedRun:
    """A run that began an hour ago."""
    values: dict[str, Any] = {
        "run_id": "run",
        "workflow_run_id": "w",
        "run_group_id": None,
        "member_index": None,
        "status": RunStatus.RUNNING,
        "host": "here",
        "created_at": LONG_AGO,
        "cancel_requested_at": None,
        "cancel_requested_reason": None,
    }
    return ComparedRun(**{**values, **changes})


def member(index: int = 0, **changes: Any) -> ComparedRun:
    """A member that its group has listed and not started."""
    values: dict[str, Any] = {
        "run_id": f"grp-{index}",
        "workflow_run_id": None,
        "run_group_id": "grp",
        "member_index": index,
        "status": RunStatus.QUEUED,
        "host": None,
    }
    return row(**{**values, **changes})


def opened(*ids: str) -> Opened:
    """These are open; ``grp`` is a group."""
    found = dict.fromkeys(ids, OPEN)
    group = {"grp": found.pop("grp")} if "grp" in found else {}
    return Opened(found, group)


@pytest.mark.parametrize(
    ("run", "open_ids", "expected"),
    [
        (row(), ["run"], Standing.AGREES),
        (row(), [], Standing.SUSPECT),
        (row(status=RunStatus.QUEUED, host=None), [], Standing.SUSPECT),
        (row(workflow_run_id=None), [], Standing.SUSPECT),
        (row(created_at=JUST_NOW), [], Standing.AGREES),
        (row(created_at=NOW + timedelta(minutes=10)), [], Standing.SUSPECT),
        (row(cancel_requested_at=LONG_AGO), ["run"], Standing.UNHEARD),
        (row(cancel_requested_at=JUST_NOW), ["run"], Standing.AGREES),
        (row(cancel_requested_at=LONG_AGO), [], Standing.SUSPECT),
        (member(), ["grp"], Standing.WAITS),
        (member(), [], Standing.STRANDED),
        (member(), ["grp-0", "grp"], Standing.AGREES),
        (member(created_at=JUST_NOW), [], Standing.AGREES),
        (member(workflow_run_id="w"), ["grp"], Standing.SUSPECT),
        (member(status=RunStatus.RUNNING, host="here"), ["grp"], Standing.SUSPECT),
        (row(run_group_id="grp", workflow_run_id=None), ["grp"], Standing.SUSPECT),
        (member(workflow_run_id="w"), ["grp-0", "grp"], Standing.AGREES),
        (member(workflow_run_id="w"), ["grp-0"], Standing.ORPHANED),
        (member(cancel_requested_at=LONG_AGO), ["grp-0"], Standing.UNHEARD),
        (row(run_group_id="grp"), ["run"], Standing.AGREES),
    ],
)
def test_how_a_row_compares(run: ComparedRun, open_ids: list[str], expected: Standing) -> None:
    assert standing(run, opened(*open_ids), NOW) is expected


@pytest.mark.parametrize("row", RunStatus)
@pytest.mark.parametrize("closed", ["TERMINATED", "TIMED_OUT"])
def test_what_ended_a_workflow_from_outside_overrules_any_other_end_of_its_row(
    closed: str, row: RunStatus
) -> None:
    own = ending(Closed(closed)).status

    assert is_from_outside(closed)
    assert overrules(closed, row) is (row.is_finished and row is not own)


@pytest.mark.parametrize("row", RunStatus)
@pytest.mark.parametrize(
    "closed", ["RUNNING", "COMPLETED", "FAILED", "CANCELED", "CONTINUED_AS_NEW", "NOT_FOUND"]
)
def test_what_closed_by_itself_or_is_gone_overrules_nothing(closed: str, row: RunStatus) -> None:
    assert not is_from_outside(closed)
    assert not overrules(closed, row)


@pytest.mark.parametrize(
    ("closed", "status", "error_type", "error"),
    [
        (
            Closed("TERMINATED", "wrong"),
            RunStatus.CANCELED,
            "Canceled",
            "terminated: wrong",
        ),
        (
            Closed("TERMINATED", " "),
            RunStatus.CANCELED,
            "Canceled",
            "terminated: no reason was given",
        ),
        (Closed("CANCELED", "enough"), RunStatus.CANCELED, "Canceled", "enough"),
        (Closed("CANCELED"), RunStatus.CANCELED, "Canceled", "canceled in Temporal"),
        (Closed("TIMED_OUT"), RunStatus.FAILED, "WorkflowTimedOut", "timed out: "),
        (Closed("NOT_FOUND"), RunStatus.FAILED, "WorkflowNotFound", "workflow not found: "),
        (Closed("FAILED", "boom", "ValueError"), RunStatus.FAILED, "ValueError", "boom"),
        (
            Closed("COMPLETED"),
            RunStatus.FAILED,
            "InternalError",
            "the workflow is COMPLETED and left no result",
        ),
    ],
)
def test_how_a_run_ends_that_its_workflow_did_not_end(
    closed: Closed, status: RunStatus, error_type: str, error: str
) -> None:
    outcome = ending(closed)

    assert (outcome.status, outcome.error_type) == (status, error_type)
    assert outcome.error is not None
    assert outcome.error.startswith(error)


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED])
def test_what_the_workflow_said_itself_stands(status: RunStatus) -> None:
    said = EpisodeResult(
        run_id="run",
        task_id="task",
        status=status,
        reward=0.5,
        scores={"a": 0.5},
        error_type="X",
        error="x",
    )

    assert ending(Closed(status.name, result=said)) == Outcome(
        status=status, reward=0.5, scores={"a": 0.5}, error_type="X", error="x"
    )


def test_a_reason_of_any_length_is_bounded() -> None:
    error = ending(Closed("TERMINATED", "x" * 100_000)).error

    assert error is not None
    assert len(error) <= MAX_ERROR_CHARS


@pytest.mark.parametrize(
    ("closed", "reason"),
    [
        (Closed("TERMINATED", "wrong"), "terminated: wrong (the group)"),
        (Closed("TERMINATED"), "terminated: no reason was given (the group)"),
        (Closed("CANCELED", "enough"), "enough"),
        (Closed("CANCELED"), "canceled in Temporal"),
        (Closed("NOT_FOUND"), "workflow not found: "),
        (Closed("TIMED_OUT"), "the group is TIMED_OUT and did not start it"),
    ],
)
def test_why_members_never_started(closed: Closed, reason: str) -> None:
    assert why_never_started(closed).startswith(reason)


def step(step_id: str, score: float | None, **changes: Any) -> StepReport:
    values: dict[str, Any] = {"type": "t", "epoch": 1, "status": StepStatus.COMPLETED}
    return StepReport(step_id=step_id, score=score, **{**values, **changes})


@pytest.mark.parametrize(
    ("steps", "reward_step", "reward", "scores"),
    [
        ([step("a", 0.5), step("b", None)], None, 0.5, {"a": 0.5}),
        ([step("a", 0.5), step("b", 1.0)], "b", 1.0, {"a": 0.5, "b": 1.0}),
        ([step("a", 0.5)], "b", None, {"a": 0.5}),
        ([step("b", None)], "b", None, {"b": None}),
        ([step("a", 0.5, retried=True)], None, None, {}),
        ([step("a", 0.5, status=StepStatus.FAILED)], None, None, {}),
        ([], None, None, {}),
    ],
)
def test_what_was_scored_before_the_end_is_kept(
    steps: list[StepReport],
    reward_step: str | None,
    reward: float | None,
    scores: dict[str, float | None],
) -> None:
    canceled = Outcome(status=RunStatus.CANCELED, error_type="Canceled", error="x")

    outcome = scored(canceled, steps, reward_step)

    assert (outcome.reward, outcome.scores) == (reward, scores)
    assert (outcome.status, outcome.error) == (RunStatus.CANCELED, "x")


def tallied(*rows: ComparedRun, open_ids: tuple[str, ...] = ()) -> GroupTally:
    tally = GroupTally()
    for each in rows:
        tally.add(each, standing(each, opened(*open_ids), NOW), NOW)
    return tally


ASKED = {"cancel_requested_at": LONG_AGO, "cancel_requested_reason": "enough"}


@pytest.mark.parametrize(
    ("rows", "open_ids", "unheard"),
    [
        # All are asked, and one waits for its group: the group has not heard of it.
        ([member(0, **ASKED), member(1, workflow_run_id="w", **ASKED)], ("grp", "grp-1"), True),
        ([member(0, **ASKED), member(1)], ("grp",), False),
        # Whoever asked may be about to tell Temporal.
        ([member(0, cancel_requested_at=JUST_NOW)], ("grp",), False),
        # Each is asked by itself.
        ([member(0, workflow_run_id="w", **ASKED)], ("grp", "grp-0"), False),
        ([member(0, **ASKED)], (), False),
        ([row(**ASKED)], ("run",), False),
    ],
)
def test_a_group_is_canceled_when_all_its_live_members_are_asked(
    rows: list[ComparedRun], open_ids: tuple[str, ...], unheard: bool
) -> None:
    found = tallied(*rows, open_ids=open_ids).unheard

    assert found == ([("grp", "enough")] if unheard else [])


def test_stranded_members_are_counted_by_group() -> None:
    others = [member(n, run_group_id="other") for n in range(2)]

    found = tallied(member(0), member(1), member(2, workflow_run_id="w"), *others).stranded

    assert found == [("grp", 2), ("other", 2)]


def test_a_group_is_left_alone_while_a_member_has_a_workflow_that_did_not_write_yet() -> None:
    assert tallied(member(0), member(1), open_ids=("grp-1",)).stranded == []
