"""What the explorer reads: lists in any order, what is live, tasks over time, conversations."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import datetime, timedelta

from agent_env.runs import _listing, _looks
from agent_env.runs._database import Database
from agent_env.runs.lists import (
    GroupFilter,
    GroupMark,
    GroupPage,
    LiveRow,
    MessagePage,
    MessagePlace,
    RunCursor,
    RunFilter,
    RunList,
    RunSort,
    StepTally,
    TaskSpan,
    WatchedRun,
)
from agent_env.runs.records import RunRecord


class IndexReads:
    """Reads of a run index, each bounded. Thread-safe; they block, and raise as its others do."""

    def __init__(self, database: Database) -> None:
        self._database = database

    @property
    def database(self) -> str:
        """Its file, or its URL without secrets."""
        return self._database.name

    def run_list(
        self,
        where: RunFilter,
        *,
        sort: RunSort = RunSort.NEWEST,
        after: RunCursor | None = None,
        limit: int = 50,
    ) -> RunList:
        """One page of runs in any order, cut by key.

        What no index knows (text, tags, rewards) is looked for among 20,000 rows a page; an order
        other than that of creation is over the newest 10,000.
        """
        return self._database.read(_listing.run_list, where, sort=sort, after=after, limit=limit)

    def count_newer(self, where: RunFilter, *, than: RunCursor | None, limit: int = 100) -> int:
        """How many runs that match are newer, up to the limit."""
        return self._database.read(_listing.count_newer, where, than=than, limit=limit)

    def runs_by_id(self, run_ids: Sequence[str]) -> tuple[RunRecord, ...]:
        """These runs as a list shows them, in this order; an id without a row is left out."""
        return self._database.read(_listing.runs_by_id, run_ids)

    def group_list(
        self, where: GroupFilter, *, after: RunCursor | None = None, limit: int = 50
    ) -> GroupPage:
        """One page of groups that match, newest first, figures for the groups on it only."""
        return self._database.read(_listing.group_list, where, after=after, limit=limit)

    def marks(
        self, run_group_ids: Sequence[str], *, limit: int
    ) -> Mapping[str, tuple[GroupMark, ...]]:
        """The first members of each group, in order. A re-run replaces what it re-ran."""
        return self._database.read(_looks.marks, run_group_ids, limit=limit)

    def rewards(self, run_group_id: str) -> tuple[float, ...]:
        """The rewards of a group's scored members, in no order."""
        return self._database.read(_looks.rewards, run_group_id)

    def step_tallies(self, run_group_id: str) -> tuple[StepTally, ...]:
        """Which steps the members of a group got to, in the order they were first reached."""
        return self._database.read(_looks.step_tallies, run_group_id)

    def live_counts(self) -> tuple[int, int]:
        """How many runs are QUEUED and RUNNING; each count stops at 10,000."""
        return self._database.read(_looks.live_counts)

    def live_rows(self, *, limit: int) -> tuple[LiveRow, ...]:
        """The newest live runs of each status."""
        return self._database.read(_looks.live_rows, limit=limit)

    def new_rows(self, *, since: datetime | None, limit: int) -> tuple[LiveRow, ...]:
        """Runs listed since then, newest first."""
        return self._database.read(_looks.new_rows, since=since, limit=limit)

    def watched(self, run_ids: Sequence[str]) -> Mapping[str, WatchedRun]:
        """What a page about one run must hear of, by id; an id without a row is left out."""
        return self._database.read(_looks.watched, run_ids)

    def hosts(self) -> Mapping[str, int]:
        """How many runs are RUNNING on each host that has any."""
        return self._database.read(_looks.hosts)

    def count_still_up(self) -> int:
        """Runs that name something as still up; a count stops at 10,000."""
        return self._database.read(_looks.count_still_up)

    def task_ids(self, *, limit: int = 100) -> tuple[str, ...]:
        """Tasks that have runs, by id, the first in alphabetical order."""
        return self._database.read(_looks.task_ids, limit=limit)

    def first_listed(self, *, since: datetime, limit: int) -> datetime | None:
        """When the first of the newest runs since then was listed; None if there are none."""
        return self._database.read(_looks.first_listed, since=since, limit=limit)

    def task_spans(
        self, *, since: datetime, stretch: timedelta, limit: int
    ) -> tuple[TaskSpan, ...]:
        """The newest runs since then, summed up by task, version and stretch of time."""
        return self._database.read(_looks.task_spans, since=since, stretch=stretch, limit=limit)

    def count_messages(self, run_id: str) -> int:
        """Length of a run's conversation; a count stops at 100,000."""
        return self._database.read(_looks.count_messages, run_id)

    def message_page(
        self,
        run_id: str,
        *,
        after: MessagePlace | None = None,
        find: str | None = None,
        limit: int = 100,
    ) -> MessagePage:
        """A part of a run's conversation, in order; 2,000 messages are searched for a text."""
        return self._database.read(_looks.message_page, run_id, after=after, find=find, limit=limit)
