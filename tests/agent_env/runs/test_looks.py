"""What sums up: live runs, strips, steps that a group reached, tasks over time, conversations."""

from datetime import timedelta

import pytest
from sqlalchemy import Connection, insert

from agent_env.errors import InvalidSpecError
from agent_env.results import SandboxRef
from agent_env.runs import RunIndex, _looks
from agent_env.runs._database import Database
from agent_env.runs.lists import MessagePlace, StepTally
from agent_env.runs.tables import messages
from agent_env.status import RunStatus, StepStatus
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


def test_live_runs_are_counted_up_to_a_limit(
    index: RunIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(index, "r1")
    opened(index, "r2")
    opened(index, "q1", room=0)

    assert index.reads.live_counts() == (1, 2)
    monkeypatch.setattr(_looks, "MOST_COUNTED", 1)
    assert index.reads.live_counts() == (1, 1)


def test_live_rows_are_the_newest_of_each_status(index: RunIndex) -> None:
    for number in range(3):
        run = new_run(f"r{number}", created_at=T0 + seconds(number))
        index.open_run(run, host="here", room=10, at=T0)
    opened(index, "q", room=0)

    found = index.reads.live_rows(limit=2)

    assert [(row.run_id, row.status) for row in found] == [
        ("r2", "RUNNING"),
        ("r1", "RUNNING"),
        ("q", "QUEUED"),
    ]
    assert found[0].created_at == T0 + seconds(2)


def test_new_rows_are_those_since_a_time_newest_first(index: RunIndex) -> None:
    for number in range(3):
        run = new_run(f"r{number}", created_at=T0 + seconds(number))
        index.open_run(run, host="here", room=10, at=T0)

    assert [row.run_id for row in index.reads.new_rows(since=None, limit=1)] == ["r2"]
    since = T0 + seconds(1)
    assert [row.run_id for row in index.reads.new_rows(since=since, limit=9)] == ["r2", "r1"]


def test_a_watched_run_tells_of_its_messages_and_of_what_is_after_its_end(
    index: RunIndex, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    ref = SandboxRef(type="local", id="x", name="box", created_at=T0)
    ended = finished(new_run("ended", run_group_id="g"), status=RunStatus.FAILED, error="no")
    index.finish_run(ended.model_copy(update={"still_up": (ref,)}), at=T0)
    opened(index, "talks")
    recorded(database, "talks", 3)
    strange = "none \0 \ud800"

    found = index.reads.watched(["ended", "talks", strange])

    assert found.keys() == {"ended", "talks"}
    assert found["talks"] == (None, "RUNNING", None, [], 3)
    assert found["ended"]._replace(still_up=None) == ("g", "FAILED", "no", None, 0)
    assert [SandboxRef.model_validate(each) for each in found["ended"].still_up] == [ref]
    monkeypatch.setattr(_looks, "MOST_MESSAGES", 2)
    assert index.reads.watched(["talks"])["talks"].messages == 2


def test_hosts_are_those_on_which_something_runs(index: RunIndex) -> None:
    opened(index, "r1")
    opened(index, "r2")
    index.finish_run(finished(new_run("r2")), at=T0)

    assert index.reads.hosts() == {"here": 1}


def test_runs_that_name_something_as_still_up_are_counted(index: RunIndex) -> None:
    ref = SandboxRef(type="local", id="x", name="box", created_at=T0)
    run = new_run("r1")
    index.finish_run(finished(run).model_copy(update={"still_up": (ref,)}), at=T0)
    opened(index, "r2")

    assert index.reads.count_still_up() == 1


def test_task_ids_are_each_named_once_in_order(index: RunIndex) -> None:
    assert index.reads.task_ids() == ()
    for number, task in enumerate(("b", "a", "b", "日本", "a/b c")):
        index.open_run(new_run(f"r{number}", task_id=task), host="here", room=9, at=T0)

    assert index.reads.task_ids() == ("a", "a/b c", "b", "日本")
    assert index.reads.task_ids(limit=1) == ("a",)


def test_marks_are_the_first_members_of_each_group_and_a_re_run_replaces(index: RunIndex) -> None:
    index.open_group(new_group("g1"), new_members("g1"))
    index.open_group(new_group("g2"), new_members("g2"))
    index.request_cancel("g1-0000", by="ana", reason="", at=T0)
    again = new_run("again", run_group_id="g1", member_index=1, created_at=T0 + seconds(9))
    index.finish_run(finished(again, reward=0.5), at=T0 + seconds(10))

    found = index.reads.marks(["g1", "g2", "none"], limit=2)

    assert set(found) == {"g1", "g2"}
    first, second = found["g1"]
    assert (first.run_id, first.status, first.is_canceling) == ("g1-0000", "QUEUED", True)
    assert (second.run_id, second.reward, second.is_canceling) == ("again", 0.5, False)
    assert [mark.run_id for mark in found["g2"]] == ["g2-0000", "g2-0001"]


def test_rewards_are_those_of_the_scored_members_and_a_re_run_replaces(index: RunIndex) -> None:
    index.open_group(new_group("g"), new_members("g"))
    for number, reward in enumerate((1.0, 2.0, None)):
        run = new_run(f"g-{number:04d}", run_group_id="g", member_index=number)
        index.finish_run(finished(run, reward=reward), at=T0)
    again = new_run("again", run_group_id="g", member_index=1, created_at=T0 + seconds(9))
    index.finish_run(finished(again, reward=0.5), at=T0 + seconds(10))

    assert sorted(index.reads.rewards("g")) == [0.5, 1.0]


def test_steps_of_a_group_are_tallied_in_the_order_they_were_reached(index: RunIndex) -> None:
    index.open_group(new_group("g"), new_members("g"))
    for number in range(2):
        run = new_run(f"g-{number:04d}", run_group_id="g", member_index=number)
        index.open_run(run, host="here", room=9, at=T0)
    first = new_run("g-0000", run_group_id="g", member_index=0)
    reports = (
        report("play", started_at=T0 + seconds(2), epoch=1, retried=True, status=StepStatus.FAILED),
        report("box", started_at=T0 + seconds(1)),
        report("play", started_at=T0 + seconds(4), epoch=2, status=StepStatus.FAILED),
        report("score", status=StepStatus.SKIPPED, started_at=None, finished_at=None),
    )
    index.finish_run(finished(first, RunStatus.FAILED, epoch=2, reports=reports), at=T0)
    index.record_steps("g-0001", [report("box")], epoch=1, steps_done=1, current_step="play")

    tallies = index.reads.step_tallies("g")

    assert tallies == (
        StepTally("box", "run_code", 0, 2, 0, 0),
        StepTally("play", "run_code", 1, 0, 1, 0),
        StepTally("score", "run_code", 0, 0, 0, 0),
    )


def test_tasks_are_summed_up_by_stretch_of_time(index: RunIndex) -> None:
    for at, reward in ((0, 1.0), (5, None), (59, 3.0), (61, 5.0)):
        run = new_run(f"r{at}", created_at=T0 + seconds(at))
        index.finish_run(finished(run, reward=reward), at=T0 + seconds(at + 1))
    opened(index, "live")

    spans = index.reads.task_spans(since=T0, stretch=timedelta(minutes=1), limit=100)

    first, second = sorted(spans, key=lambda span: span.place)
    assert (first.place, first.n, first.running, first.completed) == (0, 4, 1, 3)
    assert (first.n_scored, first.reward_sum) == (2, 4.0)
    assert (second.place, second.n, second.reward_sum) == (1, 1, 5.0)
    assert second.last_at == T0 + seconds(61)
    assert index.reads.first_listed(since=T0, limit=100) == T0
    assert index.reads.first_listed(since=T0, limit=2) == T0 + seconds(59)
    assert index.reads.first_listed(since=T0 + seconds(99), limit=2) is None
    (newest,) = index.reads.task_spans(since=T0, stretch=timedelta(minutes=1), limit=1)
    assert newest.n == 1


def recorded(database: Database, run_id: str, count: int) -> None:
    rows = [
        {
            "run_id": run_id,
            "epoch": 1,
            "step_id": "a.b",
            "seq": seq,
            "message": {"role": "user", "content": f"word {seq} <script>\0"},
        }
        for seq in range(count)
    ]

    def write(connection: Connection) -> None:
        connection.execute(insert(messages), rows)

    database.write(write)


def test_a_conversation_is_read_page_by_page(index: RunIndex, database: Database) -> None:
    opened(index, "r")
    recorded(database, "r", 5)

    first = index.reads.message_page("r", limit=3)
    assert first.next is not None
    rest = index.reads.message_page("r", after=first.next, limit=3)

    seqs = [message.place.seq for page in (first, rest) for message in page.messages]
    assert seqs == [0, 1, 2, 3, 4]
    assert rest.next is None
    assert first.messages[0].message["content"] == "word 0 <script>\0"
    assert index.reads.count_messages("r") == 5
    assert _looks.place_of(first.next.text()) == first.next == MessagePlace(1, "a.b", 2)


def test_a_text_is_looked_for_in_a_conversation(
    index: RunIndex, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(index, "r")
    recorded(database, "r", 5)

    found = index.reads.message_page("r", find="WORD 3")

    assert [message.place.seq for message in found.messages] == [3]
    assert found.next is None
    monkeypatch.setattr(_looks, "_MOST_SEARCHED", 2)
    part = index.reads.message_page("r", find="word 3")
    assert (part.messages, part.searched) == ((), 2)
    assert part.next is not None
    assert index.reads.message_page("r", after=part.next, find="word 3").messages


def test_a_page_of_long_messages_ends_early(
    index: RunIndex, database: Database, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened(index, "r")
    recorded(database, "r", 5)
    monkeypatch.setattr(_looks, "_MOST_PAGE_CHARS", 60)

    page = index.reads.message_page("r")

    assert len(page.messages) == 2
    assert page.next is not None
    assert index.reads.message_page("r", after=page.next).messages[0].place.seq == 2


@pytest.mark.parametrize("word", ["", "x.y.z", "1", "1.z.a"])
def test_a_word_that_is_no_place_is_refused(word: str) -> None:
    with pytest.raises(InvalidSpecError, match="not a place in a conversation"):
        _looks.place_of(word)
