"""Opening, beginning and requeueing a run: who takes it, and never more than there is room for."""

from concurrent.futures import ThreadPoolExecutor

import pytest

from agent_env.errors import ConflictError
from agent_env.runs import RunIndex, RunRecord
from agent_env.status import FINISHED, RunStatus
from tests.agent_env.runs.conftest import T0, finished, new_run, opened, report, seconds


def test_a_run_that_has_room_is_listed_as_running_here(index: RunIndex) -> None:
    row = index.open_run(new_run(), host="here", room=1, at=T0 + seconds(1))

    assert (row.status, row.host, row.epoch) == (RunStatus.RUNNING, "here", 1)
    assert (row.created_at, row.started_at) == (T0, T0 + seconds(1))
    assert row.instance_id == "run-1"
    assert index.get("run-1") == row


def test_a_run_without_room_is_queued_on_no_host(index: RunIndex) -> None:
    opened(index, "first", room=1)

    row = opened(index, "second", room=1)

    assert (row.status, row.host, row.started_at) == (RunStatus.QUEUED, None, None)


def test_room_is_counted_by_host_and_by_what_runs(index: RunIndex) -> None:
    opened(index, "ended", room=1)
    index.finish_run(finished(new_run("ended")), at=T0)
    opened(index, "here", room=1)

    row = index.open_run(new_run("there"), host="there", room=1, at=T0)

    assert row.status is RunStatus.RUNNING
    assert index.count_running("here") == 1


def test_opening_a_run_again_from_its_workflow_changes_nothing(index: RunIndex) -> None:
    first = opened(index)

    again = index.open_run(new_run(), host="there", room=5, at=T0 + seconds(9))

    assert again == first


def test_opening_a_finished_run_from_its_workflow_shows_its_end(index: RunIndex) -> None:
    opened(index)
    end, _ = index.finish_run(finished(reward=1.0), at=T0)

    assert opened(index) == end


def test_a_taken_id_is_refused_and_the_refusal_names_the_run_that_has_it(index: RunIndex) -> None:
    first = opened(index)

    with pytest.raises(ConflictError) as refused:
        index.open_run(new_run(workflow_run_id="other"), host="here", room=9, at=T0)

    for part in ("'run-1'", "RUNNING", T0.isoformat(), "w-run-1"):
        assert part in str(refused.value)
    assert index.get("run-1") == first


@pytest.mark.parametrize("run_id", ["a/b c", "日本", "x" * 200, "..", "<script>", "100%", "a'b\"c"])
def test_ids_are_kept_as_they_are(index: RunIndex, run_id: str) -> None:
    run = new_run(run_id, task_id=run_id, run_group_id=run_id)

    index.open_run(run, host=run_id, room=1, at=T0)

    row = index.get(run_id)
    assert (row.run_id, row.task_id, row.run_group_id, row.host) == (run_id,) * 4


def test_a_queued_run_begins_where_there_is_room(index: RunIndex) -> None:
    opened(index, room=0)

    row = index.begin_run("run-1", host="there", room=1, epoch=1, at=T0 + seconds(5))

    assert row is not None
    assert (row.status, row.host, row.started_at) == (RunStatus.RUNNING, "there", T0 + seconds(5))


def test_a_full_host_begins_nothing(index: RunIndex) -> None:
    opened(index, "first")
    queued = opened(index, room=0)

    assert index.begin_run("run-1", host="here", room=1, epoch=1, at=T0) is None
    assert index.get("run-1") == queued


def test_a_queued_run_whose_cancel_was_asked_for_never_begins(index: RunIndex) -> None:
    opened(index, room=0)
    index.request_cancel("run-1", by="ana", reason="enough", at=T0)

    assert index.begin_run("run-1", host="here", room=8, epoch=1, at=T0) is None
    assert index.get("run-1").status is RunStatus.QUEUED


def test_beginning_twice_keeps_the_first_host_and_time(index: RunIndex) -> None:
    opened(index, room=0)
    first = index.begin_run("run-1", host="here", room=1, epoch=1, at=T0)

    same = index.begin_run("run-1", host="here", room=1, epoch=1, at=T0 + seconds(9))
    elsewhere = index.begin_run("run-1", host="there", room=1, epoch=1, at=T0 + seconds(9))

    assert first == same == elsewhere


@pytest.mark.parametrize("status", FINISHED)
def test_a_finished_run_does_not_begin(index: RunIndex, status: RunStatus) -> None:
    opened(index, room=0)
    end, _ = index.finish_run(finished(status=status), at=T0)

    assert index.begin_run("run-1", host="here", room=1, epoch=2, at=T0) == end


def test_a_begin_of_an_older_epoch_takes_nothing(index: RunIndex) -> None:
    opened(index)
    index.requeue_run("run-1", epoch=3)

    row = index.begin_run("run-1", host="late", room=9, epoch=2, at=T0)

    assert row is not None
    assert (row.status, row.host, row.epoch) == (RunStatus.QUEUED, None, 3)


def test_a_run_whose_host_is_lost_is_queued_again_in_the_next_epoch(index: RunIndex) -> None:
    opened(index)
    index.record_steps("run-1", [report()], epoch=1, steps_done=1, current_step="b")

    assert index.requeue_run("run-1", epoch=2) is True

    row = index.get("run-1")
    assert (row.status, row.host, row.epoch) == (RunStatus.QUEUED, None, 2)
    assert (row.steps_done, row.current_step) == (0, None)


def test_requeueing_twice_or_after_the_end_does_nothing(index: RunIndex) -> None:
    opened(index)
    index.requeue_run("run-1", epoch=2)
    assert index.requeue_run("run-1", epoch=2) is False
    end, _ = index.finish_run(finished(epoch=2), at=T0)

    assert index.requeue_run("run-1", epoch=3) is False
    assert index.get("run-1") == end


def test_a_run_that_begins_again_elsewhere_keeps_its_first_start(index: RunIndex) -> None:
    opened(index)
    index.requeue_run("run-1", epoch=2)

    row = index.begin_run("run-1", host="there", room=1, epoch=2, at=T0 + seconds(60))

    assert row is not None
    assert (row.host, row.epoch, row.started_at) == ("there", 2, T0)


def test_threads_that_open_at_once_never_exceed_the_room(
    index: RunIndex, migrated_url: str
) -> None:
    other = RunIndex.open(migrated_url)

    def open_one(number: int) -> RunStatus:
        one = (index, other)[number % 2]
        return one.open_run(new_run(f"r{number}"), host="here", room=5, at=T0).status

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(open_one, range(80)))
    other.close()

    assert statuses.count(RunStatus.RUNNING) == 5
    assert index.count_running("here") == 5


def test_threads_that_begin_at_once_never_exceed_the_room(index: RunIndex) -> None:
    for number in range(40):
        opened(index, f"r{number}", room=0)

    def begin(number: int) -> bool:
        return index.begin_run(f"r{number}", host="here", room=5, epoch=1, at=T0) is not None

    with ThreadPoolExecutor(8) as threads:
        begun = list(threads.map(begin, range(40)))

    assert sum(begun) == index.count_running("here") == 5


def test_of_ends_written_at_once_one_stands(index: RunIndex) -> None:
    opened(index)

    def finish(number: int) -> tuple[RunRecord, bool]:
        end = finished(status=FINISHED[number % 3], error=str(number))
        return index.finish_run(end, at=T0)

    with ThreadPoolExecutor(8) as threads:
        answers = list(threads.map(finish, range(24)))

    assert sum(moved for _, moved in answers) == 1
    assert {row.error for row, _ in answers} == {index.get("run-1").error}
