"""What is written of a run that was opened: progress, its end, a request to cancel it."""

from datetime import datetime, timedelta

import pytest
from sqlalchemy import delete

from agent_env.errors import RunNotFoundError
from agent_env.results import SandboxRef
from agent_env.runs import RunIndex
from agent_env.runs._database import Database
from agent_env.runs.records import CancelState
from agent_env.runs.tables import runs
from agent_env.status import RunStatus, StepStatus
from tests.agent_env.runs.conftest import T0, finished, new_run, opened, report, seconds


def test_progress_is_shown_while_a_run_lives(index: RunIndex) -> None:
    opened(index)

    index.record_steps("run-1", [report()], epoch=1, steps_done=1, current_step="b")

    row = index.get("run-1")
    assert (row.steps_done, row.current_step) == (1, "b")
    assert index.steps("run-1") == (report(),)


@pytest.mark.parametrize("case", ["finished", "older epoch", "unknown"])
def test_late_progress_is_ignored(index: RunIndex, case: str) -> None:
    run_id = "nobody" if case == "unknown" else "run-1"
    opened(index)
    if case == "finished":
        index.finish_run(finished(), at=T0)
    if case == "older epoch":
        index.requeue_run("run-1", epoch=2)
    before = index.get("run-1")

    index.record_steps(run_id, [report()], epoch=1, steps_done=9, current_step="z")

    assert index.get("run-1") == before
    assert index.steps("run-1") == ()


def test_steps_come_in_order_of_epoch_and_start_and_the_skipped_last(index: RunIndex) -> None:
    skipped = report("a", status=StepStatus.SKIPPED, started_at=None, finished_at=None)
    reports = [
        report("b", epoch=2),
        skipped,
        report("c", started_at=T0 + seconds(2)),
        report("d", started_at=T0 + seconds(1)),
    ]
    opened(index)

    index.record_steps("run-1", reports, epoch=2, steps_done=3, current_step=None)

    assert [step.step_id for step in index.steps("run-1")] == ["d", "c", "a", "b"]


def test_everything_a_step_reported_comes_back(index: RunIndex) -> None:
    box = SandboxRef(type="local", id="1", name="box", created_at=T0)
    failed = report(
        status=StepStatus.FAILED,
        error_type="ValueError",
        error="broken",
        score=-0.5,
        output={"a": [1, 2.5, None, True, "日本"]},
        sandboxes=(box,),
        retried=True,
    )
    opened(index)

    index.finish_run(finished(reports=(failed,)), at=T0)

    assert index.steps("run-1") == (failed,)


def test_progress_that_the_final_record_lacks_counts_for_nothing(index: RunIndex) -> None:
    opened(index)
    index.record_steps("run-1", [report("lost")], epoch=1, steps_done=1, current_step=None)

    index.finish_run(finished(epoch=2, reports=(report("kept", epoch=2),)), at=T0)

    assert [(s.step_id, s.retried) for s in index.steps("run-1")] == [
        ("lost", True),
        ("kept", False),
    ]


def test_the_end_of_a_run_is_written_with_its_steps(index: RunIndex) -> None:
    opened(index)
    box = SandboxRef(type="local", id="1", name="box", created_at=T0)
    end = finished(
        status=RunStatus.FAILED,
        error_type="ValueError",
        error="broken",
        reward=0.25,
        scores={"a": 0.25, "b": None},
        reports=(report("a"), report("b", status=StepStatus.SKIPPED)),
    ).model_copy(update={"still_up": (box,)})

    row, moved = index.finish_run(end, at=T0 + seconds(7))

    assert moved is True
    assert row == index.get("run-1")
    assert (row.status, row.error_type, row.error) == (RunStatus.FAILED, "ValueError", "broken")
    assert (row.reward, row.scores, row.still_up) == (0.25, {"a": 0.25, "b": None}, (box,))
    assert (row.finished_at, row.steps_done, row.current_step) == (T0 + seconds(7), 1, None)
    assert row.result().duration_s == 7
    assert len(index.steps("run-1")) == 2


def test_the_first_end_stands(index: RunIndex) -> None:
    opened(index)
    first, _ = index.finish_run(finished(reports=(report(),)), at=T0)

    other = finished(status=RunStatus.CANCELED, error="late", reports=(report("b"),))
    row, moved = index.finish_run(other, at=T0 + seconds(9))

    assert moved is False
    assert row == index.get("run-1") == first
    assert index.steps("run-1") == (report(),)


def test_the_end_of_a_run_whose_row_is_gone_lists_it_again(
    index: RunIndex, database: Database
) -> None:
    run = new_run(run_group_id="grp", tags={"k": "v"}, seed={"s": "1"})
    index.open_run(run, host="here", room=1, at=T0)
    index.record_steps("run-1", [report()], epoch=1, steps_done=1, current_step=None)
    database.write(lambda connection: connection.execute(delete(runs)))
    assert index.steps("run-1") == ()

    row, moved = index.finish_run(finished(run, reports=(report(),), reward=1.0), at=T0)

    assert moved is True
    assert (row.status, row.reward, row.started_at) == (RunStatus.COMPLETED, 1.0, T0)
    assert (row.tags, row.seed, row.workflow_run_id) == ({"k": "v"}, {"s": "1"}, "w-run-1")
    assert index.steps("run-1") == (report(),)
    assert index.finish_run(finished(run), at=T0) == (row, False)


def test_a_cancel_that_came_from_temporal_is_filled_in(index: RunIndex) -> None:
    opened(index)

    row, _ = index.finish_run(
        finished(status=RunStatus.CANCELED, error_type="Canceled", error="from its UI"), at=T0
    )

    assert row.cancel_requested_by == "Temporal"
    assert row.cancel_requested_reason == "from its UI"
    assert row.cancel_requested_at == T0


def test_who_asked_for_a_cancel_is_kept_when_it_ends_canceled(index: RunIndex) -> None:
    opened(index)
    index.request_cancel("run-1", by="ada", reason="enough", at=T0)

    row, _ = index.finish_run(finished(status=RunStatus.CANCELED, error="x"), at=T0 + seconds(1))

    assert (row.cancel_requested_by, row.cancel_requested_reason) == ("ada", "enough")
    assert row.cancel_requested_at == T0


@pytest.mark.parametrize("ahead", [timedelta(minutes=10), -timedelta(minutes=10)])
def test_a_clock_that_is_off_makes_no_time_run_backwards(index: RunIndex, ahead: timedelta) -> None:
    index.open_run(new_run(), host="here", room=1, at=T0 + ahead)

    row, _ = index.finish_run(finished(), at=T0 + seconds(1))

    assert row.started_at is not None
    assert row.finished_at is not None
    assert row.created_at <= row.started_at <= row.finished_at


def test_asking_for_a_cancel_leaves_the_run_alive(index: RunIndex) -> None:
    opened(index)

    answer = index.request_cancel("run-1", by="ada", reason="  enough ", at=T0)

    assert answer.state is CancelState.ASKED
    assert answer.run.is_canceling
    assert answer.run.status is RunStatus.RUNNING
    assert answer.run.cancel_requested_reason == "enough"


def test_the_first_request_stands(index: RunIndex) -> None:
    opened(index)
    first = index.request_cancel("run-1", by="ada", reason="enough", at=T0)

    second = index.request_cancel("run-1", by="bob", reason="more", at=T0 + seconds(1))

    assert second.state is CancelState.ALREADY_ASKED
    assert second.run == first.run


def test_asking_a_finished_run_says_how_it_ended(index: RunIndex) -> None:
    opened(index)
    end, _ = index.finish_run(finished(), at=T0)

    answer = index.request_cancel("run-1", by="ada", reason="enough", at=T0)

    assert (answer.state, answer.run) == (CancelState.FINISHED, end)
    assert index.get("run-1") == end


def test_what_does_not_exist_is_named(index: RunIndex) -> None:
    with pytest.raises(RunNotFoundError, match="'nobody'"):
        index.request_cancel("nobody", by="ada", reason="", at=T0)
    with pytest.raises(RunNotFoundError, match="'nobody'"):
        index.begin_run("nobody", host="here", room=1, epoch=1, at=T0)
    with pytest.raises(RunNotFoundError, match="'nobody'"):
        index.get("nobody")
    assert index.requeue_run("nobody", epoch=2) is False


@pytest.mark.parametrize("text", ["nul \0 here", "half \ud800 pair", "both \udfff\0␀2400", "", "␀"])
def test_text_is_stored_whole_whatever_is_in_it(index: RunIndex, text: str) -> None:
    run = new_run(tags={text: text}, seed={"s": text})
    index.open_run(run, host="here", room=1, at=T0)
    step = report(status=StepStatus.FAILED, error=text, output={text: [text, {"in": text}]})

    index.finish_run(finished(status=RunStatus.FAILED, error=text, reports=(step,)), at=T0)

    row = index.get("run-1")
    assert (row.error, row.tags, row.seed) == (text, {text: text}, {"s": text})
    assert index.steps("run-1") == (step,)


def test_an_error_of_5_mb_is_bounded_with_a_mark(index: RunIndex) -> None:
    opened(index)
    huge = "é" * 5_000_000
    step = report(status=StepStatus.FAILED, error=huge)

    row, _ = index.finish_run(finished(status=RunStatus.FAILED, error=huge, reports=(step,)), at=T0)

    for error in (row.error, index.steps("run-1")[0].error):
        assert error is not None
        assert len(error) <= 8_000
        assert "characters cut" in error


def test_times_come_back_aware_and_to_the_microsecond(index: RunIndex) -> None:
    india = datetime.fromisoformat("2026-01-31T15:00:05.000001+05:30")

    row = index.open_run(new_run(created_at=india), host="here", room=1, at=india)

    assert row.created_at == india
    assert row.created_at.utcoffset() == timedelta(0)


def test_a_time_without_a_zone_is_a_mistake_of_the_caller(index: RunIndex) -> None:
    with pytest.raises(ValueError, match="time zone"):
        index.request_cancel(opened(index).run_id, by="ada", reason="", at=T0.replace(tzinfo=None))
