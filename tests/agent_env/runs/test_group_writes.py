"""Groups in the index: listed at once, adopted by their workflows, canceled as one."""

from typing import Any

import pytest

from agent_env.errors import ConflictError, RunNotFoundError
from agent_env.group_specs import GroupState, Rerun
from agent_env.runs import NewRun, RunIndex
from agent_env.status import RunStatus
from tests.agent_env.runs.conftest import (
    T0,
    finished,
    new_group,
    new_members,
    new_run,
    opened,
    seconds,
)


def statuses(index: RunIndex, run_group_id: str = "grp") -> list[RunStatus]:
    return [row.status for row in index.members(run_group_id)]


def started(index: RunIndex, member: NewRun, *, room: int = 100) -> NewRun:
    """A member whose workflow has opened it."""
    run = member.model_copy(update={"workflow_run_id": f"w-{member.run_id}"})
    index.open_run(run, host="here", room=room, at=T0)
    return run


def test_a_group_is_listed_with_all_its_members(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())

    assert statuses(index) == [RunStatus.QUEUED] * 3
    assert [row.member_index for row in index.members("grp")] == [0, 1, 2]
    assert index.group("grp") == new_group()


def test_listing_a_group_again_changes_nothing(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())
    started(index, new_members()[1])
    before = index.members("grp")

    index.open_group(new_group(), new_members())

    assert index.members("grp") == before


def test_listing_a_group_again_restores_members_that_are_missing(index: RunIndex) -> None:
    index.open_group(new_group(), new_members()[:2])

    index.open_group(new_group(), new_members())

    assert len(index.members("grp")) == 3


@pytest.mark.parametrize(
    "change", [{"task_id": "other"}, {"size": 4}, {"created_at": T0 + seconds(1)}]
)
def test_the_id_of_another_group_is_refused(index: RunIndex, change: dict[str, Any]) -> None:
    index.open_group(new_group(), new_members())

    with pytest.raises(ConflictError, match="'grp' is taken by a group of 2026"):
        index.open_group(new_group(**change), new_members())

    assert len(index.members("grp")) == 3


def test_a_group_one_of_whose_members_exists_is_refused_as_a_whole(index: RunIndex) -> None:
    opened(index, "grp-0002")

    with pytest.raises(ConflictError, match="'grp-0002' is taken"):
        index.open_group(new_group(), new_members())

    with pytest.raises(RunNotFoundError):
        index.group("grp")
    with pytest.raises(RunNotFoundError):
        index.get("grp-0000")


@pytest.mark.parametrize(
    "twin", [{"run_id": "grp-0001"}, {"member_index": 1}], ids=["one id", "one index"]
)
def test_two_members_that_are_the_same_are_refused(
    index: RunIndex, twin: dict[str, object]
) -> None:
    first, second, third = new_members()

    with pytest.raises(ConflictError, match="2 members of the group 'grp'"):
        index.open_group(new_group(), [first, second, third.model_copy(update=twin)])

    with pytest.raises(RunNotFoundError):
        index.group("grp")


def test_a_group_of_a_thousand_is_listed_at_once(index: RunIndex) -> None:
    index.open_group(new_group(size=1000), new_members(size=1000))

    assert index.group("grp").figures.queued == 1000


def test_a_listed_member_is_adopted_by_its_workflow(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())

    started(index, new_members()[1])

    row = index.members("grp")[1]
    assert (row.status, row.host) == (RunStatus.RUNNING, "here")
    assert (row.workflow_run_id, row.started_at) == ("w-grp-0001", T0)


def test_an_adopted_member_without_room_stays_queued(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())

    started(index, new_members()[0], room=0)

    row = index.members("grp")[0]
    assert (row.status, row.workflow_run_id) == (RunStatus.QUEUED, "w-grp-0000")


def test_a_member_that_began_before_its_workflow_opened_it_goes_on(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())
    index.begin_run("grp-0000", host="there", room=1, epoch=1, at=T0)

    started(index, new_members()[0])

    row = index.members("grp")[0]
    assert (row.status, row.host) == (RunStatus.RUNNING, "there")
    assert row.workflow_run_id == "w-grp-0000"


@pytest.mark.parametrize("change", [{"run_group_id": "other"}, {"member_index": 2}])
def test_a_listed_member_is_adopted_by_no_other(index: RunIndex, change: dict[str, object]) -> None:
    index.open_group(new_group(), new_members())

    with pytest.raises(ConflictError, match="no workflow yet"):
        started(index, new_members()[0].model_copy(update=change))

    assert statuses(index) == [RunStatus.QUEUED] * 3


def test_canceling_a_group_asks_the_live_and_ends_what_has_no_workflow(index: RunIndex) -> None:
    index.open_group(new_group(size=4), new_members(size=4))
    running = started(index, new_members()[0])
    done = started(index, new_members()[1])
    end, _ = index.finish_run(finished(done), at=T0)

    assert index.cancel_group("grp", by="ada", reason="enough", at=T0 + seconds(5)) == (3, 2)

    rows = index.members("grp")
    assert rows[0].run_id == running.run_id
    assert rows[0].is_canceling
    assert rows[0].status is RunStatus.RUNNING
    assert rows[1] == end
    for row in rows[2:]:
        assert (row.status, row.error_type, row.error) == (RunStatus.CANCELED, "Canceled", "enough")
        assert (row.started_at, row.finished_at) == (None, T0 + seconds(5))
    assert {row.cancel_requested_by for row in (rows[0], *rows[2:])} == {"ada"}


def test_canceling_a_group_again_changes_nothing(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())
    started(index, new_members()[0])
    index.cancel_group("grp", by="ada", reason="enough", at=T0)
    before = index.members("grp")

    assert index.cancel_group("grp", by="bob", reason="more", at=T0 + seconds(1)) == (1, 0)
    assert index.members("grp") == before


def test_the_reason_somebody_gave_is_the_one_that_ends_a_member(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())
    assert index.request_group_cancel("grp", by="ada", reason="mine", at=T0) == 3
    assert statuses(index) == [RunStatus.QUEUED] * 3

    index.cancel_group("grp", by="group", reason="theirs", at=T0)

    assert {row.error for row in index.members("grp")} == {"mine"}


def test_a_group_canceled_without_a_reason_says_where(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())

    index.cancel_group("grp", by="group", reason=" ", at=T0)

    assert {row.error for row in index.members("grp")} == {"canceled in Temporal"}


def test_a_workflow_that_comes_after_the_cancel_finds_its_run_ended(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())
    index.cancel_group("grp", by="group", reason="enough", at=T0)
    before = index.members("grp")

    started(index, new_members()[0])

    assert index.members("grp") == before


def test_asking_a_group_that_does_not_exist_says_so(index: RunIndex) -> None:
    with pytest.raises(RunNotFoundError, match="no group has the id 'nobody'"):
        index.request_group_cancel("nobody", by="ada", reason="", at=T0)


def test_asking_a_group_that_has_ended_asks_nobody(index: RunIndex) -> None:
    run = new_run(run_group_id="grp")
    index.open_run(run, host="here", room=1, at=T0)
    index.finish_run(finished(run), at=T0)

    assert index.request_group_cancel("grp", by="ada", reason="", at=T0) == 0


def test_members_numbered_by_a_word_and_by_a_number_are_the_same(index: RunIndex) -> None:
    """S9."""
    first, second, _ = new_members()
    word = new_run("grp-x", workflow_run_id=None, run_group_id="grp", member_index="1")

    with pytest.raises(ConflictError, match="2 members of the group 'grp' have the index 1"):
        index.open_group(new_group(), [first, second, word])


def rerun(index: RunIndex, number: int, at: float = 10.0) -> Rerun:
    """Have a member played again."""
    again = new_members()[number].model_copy(update={"created_at": T0 + seconds(at)})
    return index.list_member(again)


def test_a_member_that_is_played_again_is_listed_in_place_of_the_old(index: RunIndex) -> None:
    """S7."""
    index.open_group(new_group(), new_members())
    for member, reward in zip(new_members(), (1.0, 0.0, 1.0), strict=True):
        index.finish_run(finished(started(index, member), reward=reward), at=T0)

    found = rerun(index, 1)

    assert found == Rerun(run_id="grp-0001-r1", index=1)
    rows = index.members("grp")
    assert [row.run_id for row in rows] == ["grp-0000", "grp-0001-r1", "grp-0002"]
    assert (rows[1].status, rows[1].workflow_run_id) == (RunStatus.QUEUED, None)
    figures = index.group("grp").figures
    assert (figures.n, figures.queued, figures.n_scored, figures.mean) == (3, 1, 2, 1.0)
    assert index.group_result("grp").figures == figures
    assert index.get("grp-0001").reward == 0.0, "the old run keeps its own row"


def test_the_same_replacement_asked_twice_is_listed_once(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())
    started(index, new_members()[1])

    first, again, another = rerun(index, 1), rerun(index, 1), None
    started(index, new_members()[1].model_copy(update={"run_id": first.run_id}))
    another = rerun(index, 1, at=11.0)

    assert first == again == Rerun(run_id="grp-0001-r1", index=1, replaces="grp-0001")
    assert another == Rerun(run_id="grp-0001-r2", index=1, replaces="grp-0001-r1")


def test_a_replacement_counts_also_where_the_clock_went_back(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())
    started(index, new_members()[1])

    found = rerun(index, 1, at=-60.0)

    assert index.members("grp")[1].run_id == found.run_id


def test_a_member_that_no_workflow_has_begun_stands_for_itself(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())

    found = rerun(index, 1)

    assert found == Rerun(run_id="grp-0001", index=1, is_new=False)
    assert len(index.members("grp")) == 3


def test_a_member_that_the_group_has_not_can_not_be_played_again(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())
    other = new_run("grp-0007", run_group_id="grp", member_index=7, workflow_run_id=None)

    with pytest.raises(RunNotFoundError, match="the group 'grp' has no member 7"):
        index.list_member(other)


def test_a_replacement_whose_id_is_taken_is_refused(index: RunIndex) -> None:
    opened(index, "grp-0001-r1")
    index.open_group(new_group(), new_members())
    started(index, new_members()[1])

    with pytest.raises(ConflictError, match="'grp-0001-r1' is taken"):
        rerun(index, 1)


def test_a_group_says_how_many_wait_have_scored_and_have_ended(index: RunIndex) -> None:
    index.open_group(new_group(size=4), new_members(size=4))
    index.finish_run(finished(started(index, new_members()[0]), reward=1.0), at=T0)
    started(index, new_members()[1])
    started(index, new_members()[2], room=0)

    state = index.group_state("grp")

    assert state == GroupState(waiting=1, scored=1, ended=1, is_finished=False)


def test_members_that_run_and_are_asked_to_cancel_are_found_with_their_hosts(
    index: RunIndex,
) -> None:
    index.open_group(new_group(), new_members())
    started(index, new_members()[0])
    started(index, new_members()[1], room=0)
    before = index.running_members("grp")

    index.request_group_cancel("grp", by="ada", reason="", at=T0)

    assert (before, index.running_members("grp")) == ({}, {"grp-0000": "here"})
