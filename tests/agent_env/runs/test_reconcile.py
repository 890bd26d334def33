"""agent_env/runs/_reconcile.py and RunIndex.restore_run."""

from datetime import timedelta
from typing import Any

import pytest

from agent_env.errors import RunNotFoundError
from agent_env.outcome import Outcome
from agent_env.runs import Ended, RunCursor, RunIndex
from agent_env.status import FINISHED, RunStatus, StepStatus
from tests.agent_env.runs.conftest import (
    T0,
    finished,
    new_group,
    new_members,
    new_run,
    opened,
    report,
    seconds,
)

CANCELED = Outcome(status=RunStatus.CANCELED, error_type="Canceled", error="terminated: no")


def ended(run_id: str = "run-1", **changes: Any) -> Ended:
    values: dict[str, Any] = {"workflow_run_id": f"w-{run_id}", "outcome": CANCELED}
    return Ended(run_id=run_id, **{**values, **changes})


def live_ids(index: RunIndex, status: RunStatus, limit: int = 2) -> list[str]:
    """By pages."""
    found: list[str] = []
    after: RunCursor | None = None
    while True:
        rows = index.live_runs("default", status, after=after, limit=limit)
        assert {row.status for row in rows} <= {status}
        found += [row.run_id for row in rows]
        if len(rows) < limit:
            return found
        after = RunCursor(created_at=rows[-1].created_at, run_id=rows[-1].run_id)


def test_live_runs_come_by_pages_oldest_first_each_once(index: RunIndex) -> None:
    # Two have one time: then the id orders them.
    for number, at in ((3, 0), (1, 2), (2, 2), (4, 1)):
        run = new_run(f"r{number}", created_at=T0 + seconds(at))
        index.open_run(run, host="here", room=9, at=T0)
    index.open_group(new_group(), new_members())

    assert live_ids(index, RunStatus.RUNNING) == ["r3", "r4", "r1", "r2"]
    assert live_ids(index, RunStatus.RUNNING, limit=1) == ["r3", "r4", "r1", "r2"]
    assert live_ids(index, RunStatus.QUEUED) == ["grp-0000", "grp-0001", "grp-0002"]


def test_ended_runs_and_those_of_other_namespaces_are_none_of_them(index: RunIndex) -> None:
    opened(index, "run-1")
    opened(index, "run-2")
    index.finish_run(finished(new_run("run-2")), at=T0)
    index.open_run(new_run("run-3", namespace="other"), host="here", room=9, at=T0)

    assert live_ids(index, RunStatus.RUNNING) == ["run-1"]


def test_a_live_run_says_what_is_compared(index: RunIndex) -> None:
    opened(index)
    index.request_cancel("run-1", by="ada", reason="enough", at=T0 + seconds(5))

    (row,) = index.live_runs("default", RunStatus.RUNNING)

    assert row.status is RunStatus.RUNNING
    assert (row.workflow_run_id, row.host, row.created_at) == ("w-run-1", "here", T0)
    assert (row.cancel_requested_at, row.cancel_requested_reason) == (T0 + seconds(5), "enough")


def test_an_ended_run_keeps_its_steps_and_what_they_scored(index: RunIndex) -> None:
    opened(index)
    steps = [report("a", score=0.5), report("b", status=StepStatus.FAILED)]
    index.record_steps("run-1", steps, epoch=1, steps_done=2, current_step="c")

    row, moved = index.end_run(ended(), at=T0 + seconds(9))

    assert moved
    assert (row.status, row.error_type, row.error) == (
        RunStatus.CANCELED,
        "Canceled",
        "terminated: no",
    )
    assert (row.reward, row.scores, row.steps_done) == (0.5, {"a": 0.5}, 2)
    assert (row.finished_at, row.current_step) == (T0 + seconds(9), None)
    assert (row.cancel_requested_by, row.cancel_requested_reason) == ("Temporal", "terminated: no")
    assert list(index.steps("run-1")) == steps


def test_a_request_that_was_there_before_is_kept(index: RunIndex) -> None:
    opened(index)
    index.request_cancel("run-1", by="ada", reason="enough", at=T0)

    row, _ = index.end_run(ended(), at=T0 + seconds(1))

    assert (row.cancel_requested_by, row.cancel_requested_reason) == ("ada", "enough")
    assert row.error == "terminated: no"


def test_the_workflows_own_word_stands_against_the_steps(index: RunIndex) -> None:
    opened(index)
    index.record_steps("run-1", [report("a", score=0.5)], epoch=1, steps_done=1, current_step=None)
    own = Outcome(status=RunStatus.COMPLETED, reward=1.0, scores={"b": 1.0})

    row, _ = index.end_run(ended(outcome=own, is_own=True), at=T0)

    assert (row.status, row.reward, row.scores) == (RunStatus.COMPLETED, 1.0, {"b": 1.0})


@pytest.mark.parametrize("status", FINISHED)
def test_a_run_that_has_ended_never_moves(index: RunIndex, status: RunStatus) -> None:
    opened(index)
    before, _ = index.finish_run(finished(status=status), at=T0)

    row, moved = index.end_run(ended(), at=T0 + timedelta(hours=1))

    assert not moved
    assert row == before == index.get("run-1")


@pytest.mark.parametrize("status", [RunStatus.COMPLETED, RunStatus.FAILED])
def test_what_ended_its_workflow_from_outside_overrules_the_rows_own_end(
    index: RunIndex, status: RunStatus
) -> None:
    opened(index)
    end = finished(status=status, reward=0.5, reports=(report("a", score=0.5),))
    before, _ = index.finish_run(end, at=T0 + seconds(5))

    row, moved = index.end_run(ended(overrules=True), at=T0 + timedelta(hours=1))
    again = index.end_run(ended(overrules=True), at=T0 + timedelta(hours=2))

    assert moved
    assert row == before.model_copy(
        update={
            "status": RunStatus.CANCELED,
            "error_type": "Canceled",
            "error": "terminated: no",
            "cancel_requested_at": T0 + timedelta(hours=1),
            "cancel_requested_by": "Temporal",
            "cancel_requested_reason": "terminated: no",
        }
    )
    assert row == index.get("run-1")
    assert again == (row, False)
    assert list(index.steps("run-1")) == list(end.reports)


def test_it_does_not_overrule_the_end_of_another_workflow(index: RunIndex) -> None:
    opened(index)
    before, _ = index.finish_run(finished(), at=T0)

    row, moved = index.end_run(ended(workflow_run_id="earlier", overrules=True), at=T0)

    assert not moved
    assert row == before


def test_the_ended_ones_of_some_runs_are_found_by_id(index: RunIndex) -> None:
    for run_id in ("r1", "r2", "r3"):
        opened(index, run_id)
        index.finish_run(finished(new_run(run_id)), at=T0)
    opened(index, "live")
    index.open_run(new_run("other", namespace="other"), host="here", room=9, at=T0)
    index.finish_run(finished(new_run("other", namespace="other")), at=T0)

    rows = index.ended_runs("default", ["r3", "r1", "live", "other", "none"])

    assert sorted((row.run_id, row.status) for row in rows) == [
        ("r1", RunStatus.COMPLETED),
        ("r3", RunStatus.COMPLETED),
    ]
    assert rows[0].workflow_run_id == f"w-{rows[0].run_id}"


def test_a_run_that_has_got_another_workflow_is_left_alone(index: RunIndex) -> None:
    before = opened(index)

    row, moved = index.end_run(ended(workflow_run_id="earlier"), at=T0)

    assert not moved
    assert row == before == index.get("run-1")


def test_a_run_without_a_row_can_not_be_ended(index: RunIndex) -> None:
    with pytest.raises(RunNotFoundError, match="'run-1'"):
        index.end_run(ended(), at=T0)


@pytest.mark.parametrize(
    ("host", "status"), [("here", RunStatus.RUNNING), (None, RunStatus.QUEUED)]
)
def test_a_run_without_a_row_is_listed_again(
    index: RunIndex, host: str | None, status: RunStatus
) -> None:
    moved = index.restore_run(new_run(), host=host, at=T0 + seconds(1))

    row = index.get("run-1")
    assert moved
    assert (row.status, row.host, row.workflow_run_id) == (status, host, "w-run-1")
    assert (row.started_at is None) == (host is None)


def test_a_run_with_a_row_is_not_listed_again(index: RunIndex) -> None:
    opened(index)
    before, _ = index.finish_run(finished(), at=T0)

    assert not index.restore_run(new_run(), host="there", at=T0)
    assert index.get("run-1") == before


def test_a_listed_run_is_ended_by_its_own_finish(index: RunIndex) -> None:
    index.restore_run(new_run(), host="here", at=T0)

    row, moved = index.finish_run(finished(reports=(report(),)), at=T0 + seconds(1))

    assert (moved, row.status) == (True, RunStatus.COMPLETED)
