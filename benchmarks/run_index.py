"""Measures the run index with few and with many runs: pages, figures, counts, writes, size.

Run as ``python -m benchmarks.run_index --database sqlite|postgresql``. Fills a database of its own
with 10,000 runs and then with 1,000,000, in groups of 8 and one of 1,000. Times are of the database
alone: each statement is sent again by the bare driver, and all that it answers is fetched.
"""

import argparse
import json
import statistics
import sys
import tempfile
import time
from collections.abc import Callable, Generator
from contextlib import contextmanager
from functools import partial
from multiprocessing import get_context
from pathlib import Path
from typing import Any

from sqlalchemy import Connection, Engine, event, text

from agent_env.runs import RunCursor, RunFilter, RunIndex
from agent_env.runs._database import Database
from agent_env.runs.reads import IndexReads
from agent_env.runs.tables import metadata
from agent_env.status import LIVE as LIVE_STATUSES
from agent_env.status import RunStatus
from benchmarks._many_runs import END, LARGE, TASKS, fill, group_id, moment, run_id
from benchmarks._run_writer import writes
from benchmarks.report import write_table
from tests.postgres import running_postgres

ROOT = Path(__file__).parents[1]
SCALES = (10_000, 1_000_000)
WRITERS = (1, 4, 16)
WRITES_S = 5.0
ROUNDS = 200


def _cursor(at: int) -> RunCursor:
    return RunCursor(created_at=moment(at), run_id=run_id(at))


def _deep(index: RunIndex, runs: int, turn: int) -> object:
    return index.page(RunFilter(), after=_cursor(runs - 50 * min(1000, runs // 100) - turn))


def _filtered(index: RunIndex, runs: int, turn: int) -> object:
    where = RunFilter(
        status=(RunStatus.COMPLETED,),  # of which ten thousand runs hold a page, too
        task_id=f"task-{turn % TASKS}",
        created_after=moment(runs // 4),
        created_before=END,
    )
    return index.page(where)


Ask = Callable[[RunIndex, int, int], object]
"""Asks an index with so many runs; the last number varies what is asked."""
PAGES: dict[str, Ask] = {
    "newest 50 groups with figures": lambda index, _, __: index.groups(),
    "newest 50 runs": lambda index, _, __: index.page(RunFilter()),
    "page of runs by status, task and time": _filtered,
    "page of live runs": lambda index, _, __: index.page(RunFilter(status=tuple(LIVE_STATUSES))),
    "page 1,000 of runs, by key": _deep,
    "one group of 8: figures": lambda i, runs, turn: i.group(group_id(turn % (runs // 8))),
    "one group of 8: members": lambda i, runs, turn: i.members(group_id(turn % (runs // 8))),
    "one group of 1,000: figures": lambda index, _, __: index.group(LARGE),
    "one group of 1,000: page of 50": lambda i, _, __: i.page(RunFilter(run_group_id=LARGE)),
    "one run": lambda index, runs, turn: index.get(run_id(turn * 37 % runs)),
    "runs of a host: what its room is": lambda index, _, __: index.count_running("host-1"),
}
COUNTS: dict[str, Callable[[IndexReads, int, int], object]] = {
    "count of live runs": lambda reads, _, __: reads.live_counts(),
    "count of runs newer than one, to 100": lambda reads, runs, turn: reads.count_newer(
        RunFilter(), than=_cursor(runs - 500 - turn)
    ),
    "count of runs with something still up": lambda reads, _, __: reads.count_still_up(),
}
ALL_RUNS = "exact count of all runs, for comparison: no page asks for it"


def measured(url: str, *, counts: tuple[int, ...]) -> dict[str, Any]:
    """All figures of one database."""
    figures: dict[str, Any] = {"pages": {}, "bytes": {}}
    RunIndex.open(url).close()
    for runs in counts:
        _say(f"fills {runs:,} runs")
        fill(url, runs)
        database = Database(url)
        index = RunIndex(database)
        _say("asks")
        reads = IndexReads(database)
        asks = {what: partial(ask, index, runs) for what, ask in PAGES.items()}
        asks |= {what: partial(ask, reads, runs) for what, ask in COUNTS.items()}
        pages = {what: _timed(database, ask) for what, ask in asks.items()}
        pages[ALL_RUNS] = _replayed(database, [[("SELECT count(*) FROM runs", ())]] * 20)
        figures["pages"][runs] = pages
        figures["bytes"][runs] = database.read(_size)
        database.close()
    figures["written"] = {}
    for writers in WRITERS:
        _say(f"{writers} write")
        figures["written"][writers] = _written(url, writers)
    return figures


def _timed(database: Database, ask: Callable[[int], object]) -> dict[str, float]:
    asked: list[list[tuple[str, Any]]] = []
    for turn in range(ROUNDS):
        with statements() as found:
            ask(turn)
        asked.append(found)
    return _replayed(database, asked)


def _replayed(database: Database, asked: list[list[tuple[str, Any]]]) -> dict[str, float]:
    """Milliseconds of the driver alone."""

    def again(connection: Connection) -> list[float]:
        driver: Any = connection.connection.driver_connection
        cursor = driver.cursor()
        took: list[float] = []
        for statements in asked:
            began = time.perf_counter()
            for sql, values in statements:
                cursor.execute(sql, values)
                cursor.fetchall()
            took.append((time.perf_counter() - began) * 1000)
        return took

    took = database.read(again)
    return {"p50": statistics.median(took), "p95": statistics.quantiles(took, n=20)[-1]}


@contextmanager
def statements() -> Generator[list[tuple[str, Any]]]:
    """What is asked while entered."""
    found: list[tuple[str, Any]] = []

    def executed(_c: object, _cursor: object, sql: str, values: Any, *_: object) -> None:
        if sql.startswith(("SELECT", "WITH")):
            found.append((sql, values))

    event.listen(Engine, "before_cursor_execute", executed)
    try:
        yield found
    finally:
        event.remove(Engine, "before_cursor_execute", executed)


def _size(connection: Connection) -> int:
    if connection.dialect.name == "sqlite":
        pages = connection.exec_driver_sql("PRAGMA page_count").scalar_one()
        return pages * connection.exec_driver_sql("PRAGMA page_size").scalar_one()
    names = ", ".join(f"pg_total_relation_size('{name}')" for name in metadata.tables)
    return connection.execute(text(f"SELECT {names.replace(',', ' +')}")).scalar_one()


def _written(url: str, writers: int) -> float:
    """Episodes a second that are listed and ended."""
    context = get_context("spawn")
    with context.Pool(writers) as pool:
        done = pool.starmap(writes, [(url, f"w{writers}-{n}", WRITES_S) for n in range(writers)])
    return sum(done) / WRITES_S


def _say(what: str) -> None:
    sys.stderr.write(f"{time.strftime('%H:%M:%S')} {what}\n")


def rows(figures: dict[str, Any]) -> list[tuple[str, ...]]:
    """The figures of one database as a table of docs/performance.md."""
    few, many = figures["pages"]
    table: list[tuple[str, ...]] = [
        (
            "question",
            *(f"{int(runs):,} runs: p50, p95" for runs in (few, many)),
            "to that of few",
        )
    ]
    for what in figures["pages"][few]:
        small, large = figures["pages"][few][what], figures["pages"][many][what]
        table.append(
            (
                what,
                f"{small['p50']:.2f} ms, {small['p95']:.2f} ms",
                f"{large['p50']:.2f} ms, {large['p95']:.2f} ms",
                f"{large['p50'] / small['p50']:.2f} ×",
            )
        )
    for writers, per_s in figures["written"].items():
        table.append((f"listed and ended, {writers} writing", "", f"{per_s:.0f} a second", ""))
    per_run = figures["bytes"][many] / int(many)
    table.append(("size on disk", "", f"{figures['bytes'][many] / 1e6:,.0f} MB", ""))
    table.append(("of that, a run", "", f"{per_run:,.0f} bytes", ""))
    return table


@contextmanager
def _database(kind: str) -> Generator[str]:
    if kind == "sqlite":
        with tempfile.TemporaryDirectory() as folder:
            yield f"sqlite:///{Path(folder) / 'index.sqlite'}"
    else:
        # As it is installed: what is committed is on the disk, and little of it in memory.
        with (
            running_postgres(settings={"fsync": "on", "shared_buffers": "128MB"}) as server,
            server.database() as url,
        ):
            yield url


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--database", choices=("sqlite", "postgresql"), default="sqlite")
    parser.add_argument("--runs", type=int, default=SCALES[-1], help="the many")
    parser.add_argument("--write", action="store_true", help="update docs/performance.md")
    options = parser.parse_args()
    with _database(options.database) as url:
        figures = measured(url, counts=(SCALES[0], options.runs))
    if options.write:
        page = ROOT / "docs" / "performance.md"
        write_table(page, f"run-index-{options.database}", rows(figures))
    print(json.dumps(figures))  # noqa: T201 - a script


if __name__ == "__main__":
    main()
