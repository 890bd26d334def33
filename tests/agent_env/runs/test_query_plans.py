"""Reads find their rows by an index: no list of runs costs more when there are more of them."""

from collections.abc import Callable, Generator
from contextlib import contextmanager
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event

from agent_env.runs import RunCursor, RunFilter, RunIndex
from agent_env.runs._database import Database
from agent_env.runs.lists import RunSort
from agent_env.status import RunStatus
from tests.agent_env.runs.conftest import T0, finished, new_group, new_members, new_run, opened

CURSOR = RunCursor(created_at=T0, run_id="run-1")
LIVE = (RunStatus.QUEUED, RunStatus.RUNNING)


@pytest.fixture
def kind() -> str:
    """PostgreSQL plans by how much there is: test_plans_of_many asks both."""
    return "sqlite"


@contextmanager
def statements() -> Generator[list[tuple[str, Any]]]:
    """What is executed while entered, on any database."""
    found: list[tuple[str, Any]] = []

    def executed(
        _connection: object, _cursor: object, statement: str, parameters: Any, *_: object
    ) -> None:
        if statement.startswith(("SELECT", "UPDATE", "INSERT", "WITH")):
            found.append((statement, parameters))

    event.listen(Engine, "before_cursor_execute", executed)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", executed)


def plan_of(database: Database, index: RunIndex, do: Callable[[RunIndex], object]) -> list[str]:
    with statements() as executed:
        do(index)
    return [line for sql, values in executed for line in database.read(explained, sql, values)]


def explained(connection: Connection, sql: str, values: Any) -> list[str]:
    plan = connection.exec_driver_sql(f"EXPLAIN QUERY PLAN {sql}", values)
    return [line.detail for line in plan]


def filled(index: RunIndex) -> None:
    index.open_group(new_group(), new_members())
    opened(index)


CASES: list[tuple[Callable[[RunIndex], object], str]] = [
    (lambda i: i.page(RunFilter()), "ix_runs_created"),
    (lambda i: i.page(RunFilter(), after=CURSOR), "ix_runs_created"),
    (lambda i: i.page(RunFilter(status=LIVE)), "ix_runs_status"),
    (lambda i: i.page(RunFilter(status=LIVE), after=CURSOR), "ix_runs_status"),
    (lambda i: i.page(RunFilter(error_contains="x")), "ix_runs_status"),
    (lambda i: i.page(RunFilter(task_id="task")), "ix_runs_task"),
    (lambda i: i.page(RunFilter(task_id="task"), after=CURSOR), "ix_runs_task"),
    (lambda i: i.page(RunFilter(task_id="task", status=LIVE), after=CURSOR), "ix_runs_task"),
    (lambda i: i.page(RunFilter(run_group_id="grp")), "ix_runs_group"),
    (lambda i: i.groups(), "ix_run_groups_created"),
    (lambda i: i.groups(after=CURSOR), "ix_run_groups_created"),
    (lambda i: i.groups(), "runs USING COVERING INDEX ix_runs_group"),
    (lambda i: i.group("grp"), "runs USING COVERING INDEX ix_runs_group"),
    (lambda i: i.members("grp"), "ix_runs_group"),
    (lambda i: i.count_running("here"), "ix_runs_running"),
    (lambda i: opened(i, "run-2"), "ix_runs_running"),
    (lambda i: i.live_runs("default", RunStatus.QUEUED), "ix_runs_status"),
    (lambda i: i.live_runs("default", RunStatus.RUNNING, after=CURSOR), "ix_runs_status"),
    (lambda i: i.finish_run(finished(), at=T0), "sqlite_autoindex_runs_1"),
    (lambda i: i.steps("run-1"), "sqlite_autoindex_steps_1"),
    (lambda i: i.requeue_run("run-1", epoch=2), "sqlite_autoindex_runs_1"),
    (lambda i: i.still_up(after="run-1"), "ix_runs_still_up"),
    (lambda i: i.places(["run-1", "run-2"]), "sqlite_autoindex_runs_1"),
    (lambda i: i.cancel_group("grp", by="a", reason="", at=T0), "ix_runs_group"),
    (lambda i: i.reads.run_list(RunFilter()), "COVERING INDEX ix_runs_created"),
    (lambda i: i.reads.run_list(RunFilter(), sort=RunSort.BEST), "COVERING INDEX ix_runs_created"),
    (lambda i: i.reads.run_list(RunFilter(text="x"), after=CURSOR), "ix_runs_created"),
    (lambda i: i.reads.run_list(RunFilter(task_id="t", status=LIVE)), "ix_runs_task"),
    (lambda i: i.reads.count_newer(RunFilter(), than=CURSOR), "ix_runs_created"),
    (lambda i: i.reads.live_counts(), "COVERING INDEX ix_runs_status"),
    (lambda i: i.reads.live_rows(limit=9), "ix_runs_status"),
    (lambda i: i.reads.new_rows(since=T0, limit=9), "ix_runs_created"),
    (lambda i: i.reads.watched(["run-1", "x"]), "sqlite_autoindex_runs_1"),
    (lambda i: i.reads.watched(["run-1", "x"]), "COVERING INDEX sqlite_autoindex_messages_1"),
    (lambda i: i.reads.hosts(), "ix_runs_status"),
    (lambda i: i.reads.count_still_up(), "ix_runs_still_up"),
    (lambda i: i.reads.first_listed(since=T0, limit=9), "COVERING INDEX ix_runs_created"),
    (lambda i: i.reads.task_ids(), "COVERING INDEX ix_runs_task"),
    (lambda i: i.reads.marks(["grp"], limit=9), "ix_runs_group"),
    (lambda i: i.reads.rewards("grp"), "COVERING INDEX ix_runs_group"),
    (lambda i: i.reads.step_tallies("grp"), "ix_runs_group"),
    (lambda i: i.reads.message_page("run-1"), "sqlite_autoindex_messages_1"),
    (lambda i: i.reads.count_messages("run-1"), "sqlite_autoindex_messages_1"),
]


@pytest.mark.parametrize(("do", "uses"), CASES)
def test_a_statement_finds_its_rows_by_an_index(
    index: RunIndex, database: Database, do: Callable[[RunIndex], object], uses: str
) -> None:
    filled(index)

    plan = plan_of(database, index, do)

    assert any(uses in line for line in plan), plan
    scans = [line for line in plan if line.startswith("SCAN") and " INDEX " not in line]
    # A derived table or a row's tags may be read through; a table of ours may not.
    assert [line for line in scans if "runs" in line or "run_groups" in line] == [], plan


def test_the_newest_of_all_runs_need_no_sorting(index: RunIndex, database: Database) -> None:
    filled(index)

    plan = plan_of(database, index, lambda i: i.page(RunFilter(), after=CURSOR))

    assert [line for line in plan if "B-TREE" in line] == []


def test_only_the_newest_of_each_status_are_sorted(index: RunIndex, database: Database) -> None:
    filled(index)

    plan = plan_of(database, index, lambda i: i.page(RunFilter(status=LIVE), after=CURSOR))

    # Each status is read in order, and cut; one sort merges what is left of them.
    assert [line for line in plan if "B-TREE" in line] == ["USE TEMP B-TREE FOR ORDER BY"]
    assert "B-TREE" in plan[-1]


def test_a_page_of_groups_takes_two_statements_however_long_it_is(index: RunIndex) -> None:
    for number in range(30):
        run = new_run(f"r{number}", run_group_id=f"g{number}")
        index.open_run(run, host="here", room=1, at=T0)

    with statements() as executed:
        page = index.groups(limit=30)

    assert len(page.groups) == 30
    assert len(executed) == 2
