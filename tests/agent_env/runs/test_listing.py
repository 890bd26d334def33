"""Lists of runs and groups: every order and filter, page by page, and never a long scan."""

from collections.abc import Sequence

import pytest

from agent_env.runs import RunCursor, RunFilter, RunIndex, _listing
from agent_env.runs.lists import GroupFilter, RunSort
from agent_env.status import RunStatus
from tests.agent_env.runs.conftest import T0, finished, new_group, new_members, new_run, seconds


def listed(
    index: RunIndex,
    run_id: str,
    *,
    at: float = 0,
    reward: float | None = None,
    took: float | None = None,
    status: RunStatus = RunStatus.COMPLETED,
    error: str | None = None,
    **changes: object,
) -> None:
    """A run that was listed, began and, if it took any time, ended."""
    created = T0 + seconds(at)
    run = new_run(run_id, created_at=created, **changes)
    index.open_run(run, host="here", room=1000, at=created)
    if took is not None:
        ended = finished(run, status, reward=reward, error=error)
        index.finish_run(ended, at=created + seconds(took))


def all_pages(
    index: RunIndex, where: RunFilter, *, sort: RunSort = RunSort.NEWEST, limit: int = 2
) -> list[str]:
    found: list[str] = []
    after: RunCursor | None = None
    for _ in range(50):
        page = index.reads.run_list(where, sort=sort, after=after, limit=limit)
        found += [run.run_id for run in page.runs]
        after = page.next
        if after is None:
            return found
    raise AssertionError("there is no last page")


@pytest.fixture
def five(index: RunIndex) -> RunIndex:
    listed(index, "a", at=0, reward=0.5, took=30)
    listed(index, "b", at=1, reward=-1.0, took=5, tags={"model": "x"})
    listed(index, "c", at=2)
    listed(index, "d", at=3, took=50, status=RunStatus.FAILED, error="Wrong ACTION 7")
    listed(index, "e", at=4, reward=1e300, took=1)
    return index


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        (RunSort.NEWEST, "edcba"),
        (RunSort.OLDEST, "abcde"),
        (RunSort.BEST, "eabdc"),
        (RunSort.WORST, "baecd"),
        (RunSort.LONGEST, "dabec"),
        (RunSort.SHORTEST, "ebadc"),
        (RunSort.LAST_STARTED, "edcba"),
        (RunSort.FIRST_STARTED, "abcde"),
        (RunSort.LAST_FINISHED, "dabec"),
        (RunSort.FIRST_FINISHED, "ebadc"),
    ],
)
def test_every_order_is_the_same_page_by_page(five: RunIndex, sort: RunSort, order: str) -> None:
    assert all_pages(five, RunFilter(), sort=sort) == list(order)


@pytest.mark.parametrize(
    ("where", "found"),
    [
        (RunFilter(reward_min=0.0), "ea"),
        (RunFilter(reward_max=0.5), "ba"),
        (RunFilter(tag={"model": "x"}), "b"),
        (RunFilter(text="action"), "d"),
        (RunFilter(text="MODEL"), "b"),
        (RunFilter(text="%"), ""),
        (RunFilter(text="nowhere"), ""),
        (RunFilter(status=(RunStatus.RUNNING, RunStatus.FAILED)), "dc"),
        (RunFilter(status=(RunStatus.COMPLETED,), reward_min=0.0), "ea"),
        (RunFilter(task_id="task"), "edcba"),
        (RunFilter(task_id="other"), ""),
        (RunFilter(created_after=T0 + seconds(3)), "ed"),
        (RunFilter(created_before=T0 + seconds(1)), "a"),
    ],
)
def test_a_filter_finds_the_same_in_every_order(
    five: RunIndex, where: RunFilter, found: str
) -> None:
    assert all_pages(five, where) == list(found)
    assert sorted(all_pages(five, where, sort=RunSort.BEST)) == sorted(found)


def test_a_text_is_found_in_ids_too(index: RunIndex) -> None:
    listed(index, "grp-x-0001", run_group_id="grp-x")
    listed(index, "other", at=1)

    assert all_pages(index, RunFilter(text="GRP-X")) == ["grp-x-0001"]


def test_a_search_looks_so_far_back_and_goes_on_from_there(
    five: RunIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_listing, "SEARCHED", 2)

    page = five.reads.run_list(RunFilter(text="nowhere"), limit=10)

    assert page.runs == ()
    assert page.searched_back_to == T0 + seconds(3)
    assert page.next == RunCursor(created_at=T0 + seconds(3), run_id="d")
    assert all_pages(five, RunFilter(reward_min=0.0), limit=10) == ["e", "a"]
    oldest = all_pages(five, RunFilter(reward_min=0.0), sort=RunSort.OLDEST, limit=10)
    assert oldest == ["a", "e"]


def test_an_order_over_too_many_runs_says_that_it_is_cut(
    five: RunIndex, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_listing, "ORDERED", 3)

    page = five.reads.run_list(RunFilter(), sort=RunSort.WORST, limit=10)

    assert [run.run_id for run in page.runs] == ["e", "c", "d"]
    assert page.is_cut
    assert not five.reads.run_list(RunFilter(), sort=RunSort.NEWEST, limit=10).is_cut


def test_a_list_holds_the_beginning_of_an_error(index: RunIndex) -> None:
    listed(index, "long", took=1, status=RunStatus.FAILED, error="x" * 5000)

    (run,) = index.reads.run_list(RunFilter(), limit=1).runs

    assert run.error == "x" * 1000


def test_runs_that_are_newer_are_counted_up_to_a_limit(five: RunIndex) -> None:
    than = RunCursor(created_at=T0 + seconds(1), run_id="b")

    assert five.reads.count_newer(RunFilter(), than=than) == 3
    assert five.reads.count_newer(RunFilter(), than=than, limit=2) == 2
    assert five.reads.count_newer(RunFilter(reward_min=0.0), than=than) == 1
    assert five.reads.count_newer(RunFilter(status=(RunStatus.FAILED,)), than=than) == 1
    assert five.reads.count_newer(RunFilter(), than=None) == 5


def test_runs_by_id_come_in_the_order_asked_for(five: RunIndex) -> None:
    found = five.reads.runs_by_id(["d", "nobody", "a"])

    assert [run.run_id for run in found] == ["d", "a"]


def groups_found(index: RunIndex, where: GroupFilter) -> Sequence[str]:
    found: list[str] = []
    after: RunCursor | None = None
    while True:
        page = index.reads.group_list(where, after=after, limit=1)
        found += [group.run_group_id for group in page.groups]
        after = page.next
        if after is None:
            return found


def test_groups_are_filtered_page_by_page(index: RunIndex, monkeypatch: pytest.MonkeyPatch) -> None:
    for number, task in enumerate(("one", "two", "one")):
        group = new_group(f"g{number}", task_id=task, created_at=T0 + seconds(number))
        index.open_group(group, new_members(f"g{number}", task_id=task))
    monkeypatch.setattr(_listing, "SEARCHED", 2)

    assert groups_found(index, GroupFilter()) == ["g2", "g1", "g0"]
    assert groups_found(index, GroupFilter(task_id="one")) == ["g2", "g0"]
    assert groups_found(index, GroupFilter(text="G1")) == ["g1"]
    assert groups_found(index, GroupFilter(created_after=T0 + seconds(1))) == ["g2", "g1"]
    assert groups_found(index, GroupFilter(created_before=T0 + seconds(1))) == ["g0"]
    (newest,) = index.reads.group_list(GroupFilter(), limit=1).groups
    assert newest.figures.queued == 3
