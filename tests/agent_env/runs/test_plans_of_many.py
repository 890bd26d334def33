"""With thousands of runs both databases still choose the index: none reads a table through."""

import re
from collections.abc import Callable, Generator
from pathlib import Path

import pytest
from sqlalchemy import Connection

from agent_env.runs import RunCursor, RunFilter, RunIndex
from agent_env.runs._database import Database
from agent_env.runs.reads import IndexReads
from agent_env.status import RunStatus
from benchmarks._many_runs import LARGE, fill, moment, run_id
from benchmarks.run_index import COUNTS, PAGES, statements
from tests.postgres import PostgresServer

RUNS = 10_000
MOST_PASSED = 200
"""Rows that a page may look at and leave out."""
CURSOR = RunCursor(created_at=moment(RUNS // 2), run_id=run_id(RUNS // 2))
MORE: dict[str, Callable[[RunIndex, int, int], object]] = {
    "page of a group, after a cursor": lambda i, _, __: i.page(
        RunFilter(run_group_id=LARGE), after=CURSOR
    ),
    "page of a group, by status": lambda i, _, __: i.page(
        RunFilter(run_group_id=LARGE, status=(RunStatus.FAILED,))
    ),
    "page of errors": lambda i, _, __: i.page(RunFilter(error_contains="exit code 1")),
    "page of a task": lambda i, _, __: i.page(RunFilter(task_id="task-3"), after=CURSOR),
    "live runs of a namespace": lambda i, _, __: i.live_runs("default", RunStatus.RUNNING),
    "places of runs": lambda i, _, __: i.places([run_id(7), run_id(8)]),
    "what is still up": lambda i, _, __: i.still_up(),
    "steps of a run": lambda i, _, __: i.steps(run_id(7)),
}
CASES: dict[str, Callable[[Database], object]] = {
    **{
        what: lambda database, ask=ask: ask(RunIndex(database), RUNS, 3)
        for what, ask in (PAGES | MORE).items()
    },
    **{
        what: lambda database, ask=ask: ask(IndexReads(database), RUNS, 3)
        for what, ask in COUNTS.items()
    },
}


@pytest.fixture(scope="module")
def filled(
    postgres_of_the_session: PostgresServer, tmp_path_factory: pytest.TempPathFactory
) -> Generator[dict[str, Database]]:
    """An index with many runs on each database."""
    postgres_of_the_session.start()
    path: Path = tmp_path_factory.mktemp("many") / "index.sqlite"
    with postgres_of_the_session.database() as url:
        urls = {"sqlite": f"sqlite:///{path}", "postgresql": url}
        for each in urls.values():
            RunIndex.open(each).close()
            fill(each, RUNS)
        databases = {kind: Database(each) for kind, each in urls.items()}
        yield databases
        for database in databases.values():
            database.close()


@pytest.mark.parametrize("what", CASES)
def test_a_question_is_answered_by_an_index(
    kind: str, what: str, filled: dict[str, Database]
) -> None:
    lines = plan(kind, filled[kind], CASES[what])
    assert any("ix_run" in line or "pkey" in line or "autoindex" in line for line in lines), lines
    assert [line for line in lines if is_scan(line)] == [], "\n".join(lines)
    passed = [
        int(found) for line in lines for found in re.findall(r"Removed by Filter: (\d+)", line)
    ]
    assert max(passed, default=0) <= MOST_PASSED, "\n".join(lines)


def test_figures_come_from_one_walk_along_one_index(kind: str, filled: dict[str, Database]) -> None:
    """So there is no join for which a database may choose to read all runs."""
    lines = plan(kind, filled[kind], lambda database: RunIndex(database).groups())

    reading = [line for line in lines if re.search(r"\b(on|SEARCH|SCAN) runs\b", line)]
    assert len(reading) == 1
    assert "ix_runs_group" in reading[0]


def plan(kind: str, database: Database, ask: Callable[[Database], object]) -> list[str]:
    """How the database answers what is asked of it."""
    with statements() as asked:
        ask(database)

    def explained(connection: Connection) -> list[str]:
        explain = {
            "sqlite": "EXPLAIN QUERY PLAN",
            "postgresql": "EXPLAIN (ANALYZE, TIMING OFF, SUMMARY OFF)",
        }[kind]
        return [
            str(line[-1])
            for sql, values in asked
            for line in connection.exec_driver_sql(f"{explain} {sql}", values)
        ]

    return database.read(explained)


def is_scan(line: str) -> bool:
    """Whether one of our tables is read from one end to the other."""
    sqlite = re.search(r"^SCAN (runs|run_groups|steps)\b(?!.* INDEX)", line)
    return bool(sqlite or re.search(r"Seq Scan on (runs|run_groups)\b", line))
