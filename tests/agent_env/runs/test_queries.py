"""Lists of runs and of groups, their filters, their pages and their figures."""

from concurrent.futures import ThreadPoolExecutor
from datetime import timedelta
from itertools import count
from typing import Any

import pytest
from hypothesis import HealthCheck, example, given, settings
from hypothesis import strategies as st

from agent_env.errors import InvalidSpecError, RunNotFoundError
from agent_env.runs import NewRun, RunCursor, RunFilter, RunIndex
from agent_env.runs._database import Database
from agent_env.runs.tables import run_groups
from agent_env.scores import GroupFigures, group_figures
from agent_env.status import FINISHED, RunStatus
from tests.agent_env.runs.conftest import (
    T0,
    finished,
    new_group,
    new_members,
    new_run,
    opened,
    seconds,
)


def listed(index: RunIndex, run: NewRun, status: RunStatus, **outcome: Any) -> None:
    """A run with this status."""
    index.open_run(run, host="here", room=0 if status is RunStatus.QUEUED else 10**6, at=T0)
    if status in FINISHED:
        index.finish_run(finished(run, status, **outcome), at=T0)


def found(index: RunIndex, **where: Any) -> list[str]:
    return [row.run_id for row in index.page(RunFilter(**where)).runs]


def all_pages(index: RunIndex, where: RunFilter, limit: int) -> list[str]:
    ids: list[str] = []
    after: RunCursor | None = None
    while True:
        page = index.page(where, after=after, limit=limit)
        ids += [row.run_id for row in page.runs]
        after = page.next
        if after is None:
            return ids


def test_runs_are_listed_newest_first_and_by_id_where_time_is_the_same(index: RunIndex) -> None:
    for run_id, age in (("b", 1), ("a", 0), ("c", 1), ("d", 2)):
        listed(index, new_run(run_id, created_at=T0 - seconds(age)), RunStatus.RUNNING)

    assert found(index) == ["a", "c", "b", "d"]


def test_an_empty_index_has_one_empty_page(index: RunIndex) -> None:
    page = index.page(RunFilter())

    assert (page.runs, page.next) == ((), None)


@pytest.mark.parametrize("total", [4, 5, 6, 7])
def test_the_last_page_has_no_next(index: RunIndex, total: int) -> None:
    for number in range(total):
        opened(index, f"r{number}")

    assert len(all_pages(index, RunFilter(), 3)) == total


@pytest.mark.parametrize("limit", [0, -1, 501])
def test_a_page_of_an_impossible_size_is_refused(index: RunIndex, limit: int) -> None:
    with pytest.raises(InvalidSpecError, match="limit: is 1 to 500 rows"):
        index.page(RunFilter(), limit=limit)
    with pytest.raises(InvalidSpecError, match="limit: is 1 to 500 rows"):
        index.groups(limit=limit)


@pytest.mark.parametrize(
    ("where", "ids"),
    [
        ({"status": [RunStatus.RUNNING]}, ["live"]),
        ({"status": [RunStatus.FAILED, RunStatus.QUEUED]}, ["bad", "waits"]),
        ({"status": list(RunStatus)}, ["bad", "good", "live", "off", "waits"]),
        ({"status": [RunStatus.FAILED, RunStatus.FAILED]}, ["bad"]),
        ({"task_id": "other"}, ["good", "off"]),
        ({"task_id": "other", "status": [RunStatus.CANCELED]}, ["off"]),
        ({"run_group_id": "grp"}, ["bad", "good"]),
        ({"run_group_id": "grp", "status": [RunStatus.FAILED]}, ["bad"]),
        ({"reward_min": 0.5}, ["good"]),
        ({"reward_max": 0.5}, ["bad", "good"]),
        ({"reward_min": 0.0, "reward_max": 0.4}, ["bad"]),
        ({"error_contains": "BROKEN 100%"}, ["bad"]),
        ({"error_contains": "1_0"}, []),
        ({"error_contains": "\0"}, ["off"]),
        ({"error_contains": "broken", "status": [RunStatus.COMPLETED]}, []),
        ({"error_contains": ""}, ["bad", "good", "live", "off", "waits"]),
        ({"tag": {"k\"'": "v\0"}}, ["live"]),
        ({"tag": {"k\"'": "w"}}, []),
        ({"tag": {"k\"'": "v\0", "also": "x"}}, ["live"]),
        ({"tag": {"also": "x"}}, ["live", "waits"]),
        ({"created_after": T0}, ["bad", "good", "live", "off", "waits"]),
        ({"created_after": T0 + timedelta(microseconds=1)}, []),
        ({"created_before": T0}, []),
        ({"created_before": T0 + timedelta(microseconds=1), "task_id": "other"}, ["good", "off"]),
        ({"task_id": "nobody's"}, []),
    ],
    ids=str,
)
def test_a_filter_finds_what_meets_all_its_conditions(
    index: RunIndex, where: dict[str, Any], ids: list[str]
) -> None:
    group = {"run_group_id": "grp"}
    tags = {"k\"'": "v\0", "also": "x"}
    listed(index, new_run("waits", tags={"also": "x"}), RunStatus.QUEUED)
    listed(index, new_run("live", tags=tags), RunStatus.RUNNING)
    listed(index, new_run("good", task_id="other", **group), RunStatus.COMPLETED, reward=0.5)
    failed = {"reward": 0.25, "error": "it is broken 100%"}
    listed(index, new_run("bad", **group), RunStatus.FAILED, **failed)
    listed(index, new_run("off", task_id="other"), RunStatus.CANCELED, error="a \0 in it")

    assert sorted(found(index, **where)) == ids


@pytest.mark.parametrize("where", [{}, {"status": list(RunStatus)}, {"task_id": "task"}], ids=str)
def test_pages_show_every_run_once_while_others_are_inserted(
    index: RunIndex, where: dict[str, Any]
) -> None:
    for number in range(5):
        created_at = T0 + seconds(number)
        members = new_members(f"g{number}", 1000, created_at=created_at)
        index.open_group(new_group(f"g{number}", 1000, created_at=created_at), members)
    before = [f"g{group}-{index:04d}" for group in range(5) for index in range(1000)]

    with ThreadPoolExecutor(1) as threads:
        # Newer, older and in between: anywhere a reader has been or is going.
        late = [new_run(f"n{i}", created_at=T0 + seconds(i % 7 - 1)) for i in range(500)]
        inserting = threads.submit(
            lambda: [index.open_run(run, host="here", room=9, at=T0) for run in late]
        )
        seen = all_pages(index, RunFilter(**where), 100)
        inserting.result()

    assert len(seen) == len(set(seen))
    assert [run_id for run_id in seen if run_id.startswith("g")] == before[::-1]
    assert len(all_pages(index, RunFilter(**where), 500)) == 5500


# -- groups


def test_groups_are_listed_newest_first_with_their_figures(index: RunIndex) -> None:
    for number in range(5):
        created_at = T0 + seconds(number)
        group = new_group(f"g{number}", number + 1, created_at=created_at)
        index.open_group(group, new_members(f"g{number}", number + 1, created_at=created_at))

    first = index.groups(limit=2)
    second = index.groups(limit=2, after=first.next)
    third = index.groups(limit=2, after=second.next)

    pages = [[group.run_group_id for group in page.groups] for page in (first, second, third)]
    assert pages == [["g4", "g3"], ["g2", "g1"], ["g0"]]
    assert third.next is None
    assert [group.figures.n for group in first.groups] == [5, 4]


def test_a_group_that_only_single_episodes_name_is_listed_with_them(index: RunIndex) -> None:
    for number in range(2):
        run = new_run(f"r{number}", run_group_id="mine", created_at=T0 + seconds(number))
        listed(index, run, RunStatus.COMPLETED, reward=float(number))

    group = index.group("mine")

    assert (group.size, group.task_id, group.created_at) == (None, "task", T0)
    assert (group.figures.n, group.figures.mean) == (2, 0.5)
    assert index.groups().groups == (group,)
    assert [row.run_id for row in index.members("mine")] == ["r0", "r1"]


def test_a_group_whose_row_is_gone_is_found_by_its_runs(
    index: RunIndex, database: Database
) -> None:
    for number in range(2):
        listed(index, new_run(f"r{number}", run_group_id="mine"), RunStatus.RUNNING)
    database.write(lambda connection: connection.execute(run_groups.delete()))

    assert index.group("mine").figures.n == 2
    assert index.group("mine").created_at == T0
    assert index.groups().groups == ()


def test_a_group_that_does_not_exist_is_not_found(index: RunIndex) -> None:
    with pytest.raises(RunNotFoundError, match="'nobody'"):
        index.group("nobody")
    assert index.members("nobody") == ()


def test_members_come_by_index_and_those_without_one_last(index: RunIndex) -> None:
    for run_id, member_index, age in (("a", None, 0), ("b", 1, 0), ("c", 0, 5), ("d", None, 5)):
        created_at = T0 - seconds(age)
        run = new_run(run_id, run_group_id="g", member_index=member_index, created_at=created_at)
        opened_run = index.open_run(run, host="here", room=9, at=T0)
        assert opened_run.member_index == member_index

    assert [row.run_id for row in index.members("g")] == ["c", "b", "d", "a"]


def test_a_member_that_is_run_again_is_replaced(index: RunIndex) -> None:
    group = {"run_group_id": "g"}
    for number in range(3):
        run = new_run(f"r{number}", member_index=number, **group)
        listed(index, run, RunStatus.COMPLETED, reward=0.0)
    again = new_run("again", member_index=1, created_at=T0 + seconds(1), **group)
    listed(index, again, RunStatus.COMPLETED, reward=3.0)

    figures = index.group("g").figures

    assert [row.run_id for row in index.members("g")] == ["r0", "again", "r2"]
    assert (figures.n, figures.n_scored, figures.mean, figures.max) == (3, 3, 1.0, 3.0)


def test_figures_leave_out_the_unscored(index: RunIndex) -> None:
    rewards = [1.0, 0.0, None, 1.0, None, 0.5, 1.0, None]
    for number, reward in enumerate(rewards):
        status = RunStatus.FAILED if reward is None else RunStatus.COMPLETED
        listed(index, new_run(f"r{number}", run_group_id="g"), status, reward=reward)

    figures = index.group("g").figures

    assert (figures.n, figures.n_scored, figures.failed, figures.n_passed) == (8, 5, 3, 3)
    assert figures.mean == 0.7


def test_a_group_without_a_score_has_no_mean(index: RunIndex) -> None:
    listed(index, new_run(run_group_id="g"), RunStatus.FAILED)

    assert index.group("g").figures == GroupFigures(n=1, failed=1)


_names = count()
_rewards = st.one_of(
    st.none(),
    st.floats(allow_nan=False, allow_infinity=False),
    st.floats(0, 1e-3).map(lambda small: 1e9 + small),
    st.sampled_from([0.0, 0.1, 1.0, -1.0]),
)


def approx(figure: float | None) -> object:
    return None if figure is None else pytest.approx(figure, rel=1e-14, abs=0.0)


@settings(max_examples=60, suppress_health_check=[HealthCheck.function_scoped_fixture])
@example(members=[(RunStatus.COMPLETED, sign * 1.7e308) for sign in (1, -1)])
@given(members=st.lists(st.tuples(st.sampled_from(RunStatus), _rewards), min_size=1, max_size=8))
def test_figures_are_those_of_the_pure_function(
    index: RunIndex, members: list[tuple[RunStatus, float | None]]
) -> None:
    group = f"g{next(_names)}"
    for number, (status, reward) in enumerate(members):
        run = new_run(f"{group}-{number}", run_group_id=group, member_index=number)
        listed(index, run, status, reward=reward)

    expected = group_figures(
        (status, reward if status in FINISHED else None) for status, reward in members
    )
    found = index.group(group).figures
    # PostgreSQL computes them as decimals, of 16 digits at least.
    close = {"mean": approx(expected.mean), "std": approx(expected.std)}
    assert found.model_dump() == expected.model_dump() | close
