"""The columns of a list of runs: which there are, which are shown, what a click on one sorts by."""

from __future__ import annotations

from typing import NamedTuple

from agent_env.explorer.queries import RunsQuery
from agent_env.runs.lists import RunSort


class Column(NamedTuple):
    """One column of a list of runs."""

    name: str
    title: str
    width: str
    """The class that says how wide it is."""
    drops: str = ""
    """The class that says on how narrow a screen it is left out."""
    is_number: bool = False
    first: RunSort | None = None
    """What a click on its head sorts by; None: it can't be sorted by."""
    then: RunSort | None = None
    """And what a second click does."""


RUN = Column("run", "run", "w-run")
COLUMNS = (
    RUN,
    Column("task", "task", "w-task", "p2"),
    Column("group", "group", "w-group", "p3"),
    Column("member", "member", "w-few", "p2", is_number=True),
    Column("step", "step", "w-step", "p2"),
    Column("reward", "reward", "w-reward", "", True, RunSort.BEST, RunSort.WORST),
    Column("listed", "listed", "w-time", "p2", True, RunSort.NEWEST, RunSort.OLDEST),
    Column("started", "started", "w-time", "p2", True, RunSort.LAST_STARTED, RunSort.FIRST_STARTED),
    Column(
        "finished", "finished", "w-time", "p2", True, RunSort.LAST_FINISHED, RunSort.FIRST_FINISHED
    ),
    Column("took", "took", "w-took", "", True, RunSort.LONGEST, RunSort.SHORTEST),
    Column("host", "host", "w-some", "p3"),
    Column("epoch", "epoch", "w-few", "p3", is_number=True),
    Column("model", "model", "w-some", "p3"),
    Column("seed", "seed", "w-some", "p3"),
    Column("tags", "tags", "w-some", "p3"),
)
"""In the order in which they stand."""

USUAL = ("run", "task", "group", "step", "reward", "started", "took")
ADVANTAGE = Column("advantage", "advantage", "w-reward", "p1", is_number=True)
MEMBER = tuple(column for column in COLUMNS if column.name in ("run", "step", "reward", "took"))
"""Of a group's page."""


def shown(names: str | None) -> tuple[Column, ...]:
    """The columns with these names, in their own order. Unknown names are left out."""
    asked = [name.strip() for name in names.split(",")] if names else []
    known = {column.name for column in COLUMNS}
    wanted = {"run", *asked} if any(name in known for name in asked) else set(USUAL)
    return tuple(column for column in COLUMNS if column.name in wanted)


def sort_after_click(column: Column, query: RunsQuery) -> RunSort | None:
    """What a click on a column's head sorts by."""
    return column.then if query.sort is column.first else column.first


def direction(column: Column, query: RunsQuery) -> str | None:
    """For ``aria-sort``; None when the list is not sorted by this column."""
    if query.sort not in (column.first, column.then):
        return None
    return "descending" if query.sort is column.first else "ascending"
