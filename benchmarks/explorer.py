"""How fast the explorer's first pages are over a large run index, and what open pages cost.

    python -m benchmarks.explorer [--runs N] [--rounds N] [--pages N] [--keep FILE] [--write]

A real server over HTTP on SQLite; times are from a request to the last byte of its answer. CPU time
is that of server and client, which are one process. The last line of output is JSON; ``--write``
puts the figures into the table of docs/performance.md.
"""

import argparse
import asyncio
import json
import math
import random
import sqlite3
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Iterator
from contextlib import AsyncExitStack, asynccontextmanager
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, NamedTuple

import httpx

from agent_env.artifacts import ArtifactStore
from agent_env.errors import UnavailableError
from agent_env.explorer.app import ExplorerServices
from agent_env.explorer.server import Explorer, explorer_serving
from agent_env.runs import RunIndex
from benchmarks.report import write_table

ROOT = Path(__file__).parents[1]
GROUP = 8
TASKS = 20
LIVE = 500
WATCHED_S = 10
"""How long polls are counted, in seconds."""
NOW = datetime.now(UTC)
EVERY = timedelta(milliseconds=600)
"""Between two runs: a million of them are a week of work."""

PAGES = {
    "runs": "/runs",
    "runs, as JSON": "/runs.json",
    "runs, the next page": "/runs?after={after}",
    "runs that failed": "/runs?status=FAILED",
    "runs of one task": "/runs?task=task-07",
    "runs, the best first": "/runs?sort=-reward",
    "runs with a text that one in ten has": "/runs?text=discrete",
    "runs with a text that none has": "/runs?text=nowhere",
    "groups": "/groups",
    "groups, as JSON": "/groups.json",
    "groups of one task": "/groups?task=task-07",
    "one group": "/group?id={group}",
    "one run": "/run?id={run}",
    "tasks": "/tasks",
}


def main() -> None:
    """Fill an index, or take one that was kept; measure; print."""
    options = _options()
    with tempfile.TemporaryDirectory() as folder:
        file = Path(options.keep or f"{folder}/episodes.sqlite")
        if not file.exists():
            _say(f"filling {file} with {options.runs:,} runs")
            RunIndex.open(f"sqlite:///{file}").close()
            fill(file, options.runs)
        figures = asyncio.run(_measured(file, options.rounds, options.pages))
    for name, (p95, cpu) in figures.pages.items():
        _say(f"{name:<40} p95 {p95:>7.1f} ms   CPU {cpu:>7.1f} ms")
    for many, polls in figures.polls.items():
        _say(f"{many} pages open: {polls} polls in {WATCHED_S} s, {figures.poll_ms:.1f} ms each")
    if options.write:
        write_table(ROOT / "docs/performance.md", "explorer", _table(figures))
    sys.stdout.write(json.dumps(figures._asdict()) + "\n")


def fill(file: Path, count: int) -> None:
    """Write so many runs in groups of eight, the oldest first, and the newest of them live."""
    connection = sqlite3.connect(file)
    connection.execute("PRAGMA synchronous = OFF")
    with connection:
        names = [row[1] for row in connection.execute("PRAGMA table_info(runs)")]
        marks = ", ".join(f":{name}" for name in names)
        connection.executemany(f"INSERT INTO runs VALUES ({marks})", _rows(count, names))
        connection.executemany(
            "INSERT INTO run_groups VALUES (?, ?, ?, ?)",
            (
                (_group(g), _task(g), _text(_listed_at(g * GROUP, count)), GROUP)
                for g in range(math.ceil(count / GROUP))
            ),
        )
    connection.execute("PRAGMA optimize")
    connection.close()


def _rows(count: int, names: list[str]) -> Iterator[dict[str, Any]]:
    chance = random.Random(7)
    for number in range(count):
        listed = _listed_at(number, count)
        is_live = number >= count - LIVE
        status = (
            chance.choice(("QUEUED", "RUNNING"))
            if is_live
            else chance.choices(("COMPLETED", "FAILED", "CANCELED"), (85, 10, 5))[0]
        )
        yield dict.fromkeys(names) | {
            "run_id": f"{_group(number // GROUP)}-{number % GROUP:04d}",
            "instance_id": f"{_group(number // GROUP)}-{number % GROUP:04d}",
            "runner": "episode",
            "task_id": _task(number // GROUP),
            "task_version": "1",
            "run_group_id": _group(number // GROUP),
            "member_index": number % GROUP,
            "status": status,
            "created_at": _text(listed),
            "started_at": None if status == "QUEUED" else _text(listed + EVERY),
            "finished_at": None
            if is_live
            else _text(listed + timedelta(seconds=chance.uniform(1, 90))),
            "reward": chance.random() if status == "COMPLETED" else None,
            "error_type": "StepFailed" if status == "FAILED" else None,
            "error": f"action {number} is not in Discrete(2)" if status == "FAILED" else None,
            "scores": "{}",
            "steps_total": 4,
            "steps_done": 4 if status == "COMPLETED" else 2,
            "epoch": 1,
            "host": f"host-{number % 4}",
            "still_up": "[]",
            "seed": f'{{"seed":"{number}"}}',
            "tags": '{"model":"policy"}',
            "namespace": "default",
        }


def _group(number: int) -> str:
    return f"grp-20260131-{number:07d}"


def _task(group: int) -> str:
    return f"task-{group % TASKS:02d}"


def _listed_at(number: int, count: int) -> datetime:
    return NOW - (count - number) * EVERY


def _text(at: datetime) -> str:
    return at.replace(tzinfo=None).isoformat(sep=" ", timespec="microseconds")


class Figures(NamedTuple):
    """What was measured."""

    pages: dict[str, tuple[float, float]]
    """Of each page, in milliseconds: the 95th percentile of its time, and of its CPU time."""
    polls: dict[int, int]
    """How often the index was read, by how many pages were open."""
    poll_ms: float


async def _measured(file: Path, rounds: int, pages: int) -> Figures:
    index = await asyncio.to_thread(RunIndex.open, f"sqlite:///{file}")
    try:
        async with _served(index, file.parent) as explorer, _browser(explorer.url) as browser:
            first = (await browser.get("/runs.json")).json()
            given = {
                "after": first["next"],
                "run": first["runs"][-1]["run_id"],
                "group": first["runs"][-1]["run_group_id"],
            }
            found: dict[str, tuple[float, float]] = {}
            for name, path in PAGES.items():
                times = [await _timed(browser, path.format(**given)) for _ in range(rounds)]
                found[name] = (
                    _p95([wall for wall, _ in times]) * 1000,
                    _p95([cpu for _, cpu in times]) * 1000,
                )
            polls = {many: await _polls(explorer, browser, many) for many in (1, pages)}
            return Figures(found, polls, explorer.app.state.poller.poll_ms)
    finally:
        index.close()


async def _polls(explorer: Explorer, browser: httpx.AsyncClient, count: int) -> int:
    """How often the index is read while so many pages are open."""
    async with AsyncExitStack() as stack:
        for _ in range(count):
            await stack.enter_async_context(browser.stream("GET", "/live", timeout=60))
        before = explorer.app.state.poller.polls
        await asyncio.sleep(WATCHED_S)
        return explorer.app.state.poller.polls - before


@asynccontextmanager
async def _served(index: RunIndex, folder: Path) -> AsyncGenerator[Explorer]:
    async def nowhere() -> None:
        raise UnavailableError("there is no Temporal server here")

    services = ExplorerServices(
        index=index,
        connect=nowhere,  # pyright: ignore[reportArgumentType] - it never answers
        store=ArtifactStore(folder / "artifacts"),
    )
    async with explorer_serving(services, host="127.0.0.1", port=0) as explorer:
        yield explorer


def _browser(url: str) -> httpx.AsyncClient:
    limits = httpx.Limits(max_connections=None)
    return httpx.AsyncClient(base_url=url, limits=limits, timeout=60, trust_env=False)


async def _timed(browser: httpx.AsyncClient, path: str) -> tuple[float, float]:
    """How long an answer took, and how much CPU."""
    began, cpu = time.perf_counter(), time.process_time()
    answer = await browser.get(path)
    took = time.perf_counter() - began, time.process_time() - cpu
    answer.raise_for_status()
    return took


def _p95(times: list[float]) -> float:
    return sorted(times)[math.ceil(0.95 * len(times)) - 1]


def _table(figures: Figures) -> list[tuple[str, ...]]:
    pages = [(name, f"{p95:.0f}", f"{cpu:.0f}") for name, (p95, cpu) in figures.pages.items()]
    return [("page", "time, ms", "CPU, ms"), *pages]


def _say(line: str) -> None:
    sys.stderr.write(f"{line}\n")


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=1_000_000)
    parser.add_argument("--rounds", type=int, default=100)
    parser.add_argument("--pages", type=int, default=50, help="open at one time")
    parser.add_argument("--keep", metavar="FILE", help="an index to use, filled if it is not there")
    parser.add_argument("--write", action="store_true")
    return parser.parse_args()


if __name__ == "__main__":
    main()
