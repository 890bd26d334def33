"""Downloads: tables and lines, page by page, so that no download fills the memory."""

from __future__ import annotations

import csv
import io
from collections.abc import AsyncGenerator, Callable, Iterable
from typing import Any

from agent_env.explorer.queries import MAX_ROWS, GroupsQuery, RunsQuery
from agent_env.explorer.reader import Views
from agent_env.explorer.views import GroupRow, RunRow
from agent_env.runs.reads import IndexReads

MOST_ROWS = 100_000
_RUN_COLUMNS = (
    "run_id",
    "task_id",
    "task_version",
    "run_group_id",
    "member_index",
    "status",
    "reward",
    "steps_done",
    "steps_total",
    "created_at",
    "started_at",
    "finished_at",
    "took_s",
    "host",
    "epoch",
    "model",
    "cancel_requested_by",
    "cancel_requested_reason",
)
_GROUP_COLUMNS = ("run_group_id", "task_id", "created_at", "size")
_FIGURES = (
    "n",
    "queued",
    "running",
    "completed",
    "failed",
    "canceled",
    "n_scored",
    "mean",
    "std",
    "min",
    "max",
    "n_passed",
)
_FORMULAS = ("=", "+", "-", "@", "\t", "\r")


async def runs_csv(views: Views, query: RunsQuery) -> AsyncGenerator[str]:
    """A line a run, the first with names."""
    yield _line([*_RUN_COLUMNS, "error_type", "error"])
    async for page in _run_pages(views, query):
        yield "".join(_line(_run_cells(row)) for row in page)


async def runs_jsonl(
    views: Views, query: RunsQuery, dumped: Callable[[Any], str]
) -> AsyncGenerator[str]:
    """A JSON object a run."""
    async for page in _run_pages(views, query):
        yield "".join(f"{dumped(row)}\n" for row in page)


async def groups_csv(views: Views, query: GroupsQuery) -> AsyncGenerator[str]:
    """A line a group, the first with names."""
    yield _line([*_GROUP_COLUMNS, *_FIGURES])
    left, after = MOST_ROWS, query.after
    while left > 0:
        asked = query.model_copy(update={"after": after, "limit": min(left, MAX_ROWS)})
        page = await views.groups(asked)
        yield "".join(_line(_group_cells(row)) for row in page.groups)
        left -= len(page.groups)
        after = page.next
        if after is None:
            return


async def messages_jsonl(reads: IndexReads, views: Views, run_id: str) -> AsyncGenerator[str]:
    """A run's conversation, a JSON object a message."""
    from agent_env.explorer.api import dumped

    after = None
    while True:
        page = await views.in_thread(reads.message_page, run_id, after=after, limit=200)
        yield "".join(
            dumped({**found.place._asdict(), "message": found.message}) + "\n"
            for found in page.messages
        )
        after = page.next
        if after is None:
            return


async def _run_pages(views: Views, query: RunsQuery) -> AsyncGenerator[tuple[RunRow, ...]]:
    left, after = MOST_ROWS, query.after
    while left > 0:
        asked = query.model_copy(update={"after": after, "limit": min(left, MAX_ROWS)})
        page = await views.runs(asked)
        yield page.runs
        left -= len(page.runs)
        after = page.next
        if after is None:
            return


def _run_cells(row: RunRow) -> Iterable[object]:
    yield from (getattr(row, name) for name in _RUN_COLUMNS)
    yield from ("", "") if row.cause is None else (row.cause.type, row.cause.said)


def _group_cells(row: GroupRow) -> Iterable[object]:
    yield from (getattr(row, name) for name in _GROUP_COLUMNS)
    yield from (getattr(row.figures, name) for name in _FIGURES)


def _line(cells: Iterable[object]) -> str:
    line = io.StringIO()
    csv.writer(line).writerow([_cell(cell) for cell in cells])
    return line.getvalue()


def _cell(value: object) -> str:
    """A cell that no spreadsheet takes for a formula: texts come from agents."""
    if value is None:
        return ""
    if isinstance(value, int | float):
        return repr(value)
    text = str(value).encode("utf-8", "replace").decode()
    return f"'{text}" if text.startswith(_FORMULAS) else text
