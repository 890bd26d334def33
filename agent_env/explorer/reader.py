"""Makes what pages show of the run index and of Temporal. Never waits for a server that is away."""

from __future__ import annotations

import asyncio
import shlex
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime, timedelta
from typing import Any, ParamSpec, TypeVar

from temporalio.service import RPCError

from agent_env.errors import InvalidSpecError, RunNotFoundError, UnavailableError
from agent_env.explorer import rows
from agent_env.explorer._cut import cut_texts
from agent_env.explorer.group_views import CompareView, GroupView, MemberRow
from agent_env.explorer.health_views import TasksView
from agent_env.explorer.links import Links
from agent_env.explorer.queries import (
    GroupsQuery,
    MessagesQuery,
    RunsQuery,
    TasksQuery,
    moment,
)
from agent_env.explorer.run_views import MessagesView, MessageView, RunView
from agent_env.explorer.temporal import Temporal
from agent_env.explorer.views import (
    GroupRow,
    GroupsView,
    LiveCounts,
    Mark,
    May,
    NewerView,
    RunRow,
    RunsView,
)
from agent_env.runs import GroupRecord, RunCursor, RunIndex, RunRecord
from agent_env.runs._looks import place_of
from agent_env.runs.lists import GroupFilter

MARKS_IN_LIST = 100
MARKS_OF_GROUP = 2_000
MEMBERS = 200
COMPARED = (2, 8)
_TASK_ROWS = 10_000
_TASKS = 200
_STRETCHES = 60
_NEWER = 100

P = ParamSpec("P")
T = TypeVar("T")


class Views:
    """Every page's data. Errors are those of the run index: not found, or unavailable.

    Args:
        index: What is read. Its reads block, so they have a few threads of their own.
        temporal: What live runs are asked of.
        links: Addresses outside the explorer.
        now: The clock.
        force_after: How long a cancel may take before a forced stop is offered.
        read_only: Nothing may be changed from here.
    """

    def __init__(
        self,
        index: RunIndex,
        temporal: Temporal,
        *,
        links: Links,
        now: Callable[[], datetime],
        force_after: timedelta,
        read_only: bool,
        threads: ThreadPoolExecutor,
    ) -> None:
        self._index = index
        self._temporal = temporal
        self._links = links
        self._now = now
        self._force_after = force_after
        self._read_only = read_only
        self._threads = threads

    async def runs(self, query: RunsQuery) -> RunsView:
        """One page of runs."""
        return await self.in_thread(self._runs, query)

    def _runs(self, query: RunsQuery) -> RunsView:
        now, reads = self._now(), self._index.reads
        found = reads.run_list(
            query.filter(now), sort=query.sort, after=query.place, limit=query.limit
        )
        newest = reads.new_rows(since=None, limit=1)
        first = None
        if newest:
            first = RunCursor(created_at=newest[0].created_at, run_id=newest[0].run_id).text()
        queued, running = reads.live_counts()
        return RunsView(
            now=now,
            runs=tuple(rows.run_row(run, now) for run in found.runs),
            next=None if found.next is None else found.next.text(),
            first=first,
            searched_back_to=found.searched_back_to,
            is_cut=found.is_cut,
            live=LiveCounts(queued=queued, running=running),
            tasks=reads.task_ids(),
            is_empty=not newest,
        )

    async def rows(self, run_ids: Sequence[str]) -> tuple[RunRow, ...]:
        """These runs, in this order; unknown ones are left out."""
        found = await self.in_thread(self._index.reads.runs_by_id, run_ids)
        now = self._now()
        return tuple(rows.run_row(run, now) for run in found)

    async def newer(self, query: RunsQuery, *, than: str | None) -> NewerView:
        """How many runs that match were listed after ``first`` of a page."""
        cursor = None if than is None else RunCursor.of(than)
        where = query.filter(self._now())
        count = await self.in_thread(
            self._index.reads.count_newer, where, than=cursor, limit=_NEWER + 1
        )
        return NewerView(count=min(count, _NEWER), is_more=count > _NEWER)

    async def groups(self, query: GroupsQuery) -> GroupsView:
        """One page of groups."""
        return await self.in_thread(self._groups, query)

    def _groups(self, query: GroupsQuery) -> GroupsView:
        now, reads = self._now(), self._index.reads
        where = GroupFilter(
            task_id=query.task,
            text=query.text,
            created_after=None if query.since is None else moment(query.since, now),
            created_before=None if query.until is None else moment(query.until, now),
        )
        found = reads.group_list(where, after=query.place, limit=query.limit)
        newest = reads.group_list(GroupFilter(), limit=1).groups
        first = None
        if newest:
            first = RunCursor(created_at=newest[0].created_at, run_id=newest[0].run_group_id).text()
        return GroupsView(
            now=now,
            groups=self._group_rows(found.groups),
            next=None if found.next is None else found.next.text(),
            first=first,
            tasks=reads.task_ids(),
            is_empty=not newest,
        )

    async def group_rows(self, run_group_ids: Sequence[str]) -> tuple[GroupRow, ...]:
        """These groups, in this order; unknown ones are left out."""

        def read() -> tuple[GroupRow, ...]:
            found: list[GroupRecord] = []
            for run_group_id in run_group_ids:
                try:
                    found.append(self._index.group(run_group_id))
                except RunNotFoundError:
                    continue
            return self._group_rows(found)

        return await self.in_thread(read)

    def _group_rows(self, groups: Sequence[GroupRecord]) -> tuple[GroupRow, ...]:
        ids = [group.run_group_id for group in groups]
        marks = self._index.reads.marks(ids, limit=MARKS_IN_LIST)
        return tuple(_group_row(group, marks.get(group.run_group_id, ())) for group in groups)

    async def run(self, run_id: str) -> RunView:
        """Everything about one run."""
        run, steps, messages, neighbors = await self.in_thread(self._run, run_id)
        pending, trouble = (), self._temporal.trouble
        if not run.status.is_finished:
            try:
                pending = await self._temporal.pending(run_id)
                trouble = None
            except (UnavailableError, RPCError) as error:
                trouble = str(error)
        now = self._now()
        starts_at, ends_at = rows.axis(run, steps, now)
        asked = rows.canceling(run, now, self._force_after)
        return RunView(
            now=now,
            run=run,
            row=rows.run_row(run, now),
            steps=rows.step_views(steps, now),
            starts_at=starts_at,
            ends_at=ends_at,
            messages=messages,
            previous_member=neighbors[0],
            next_member=neighbors[1],
            pending=pending,
            temporal_url=self._links.workflow(run.run_id, run.workflow_run_id, run.namespace),
            temporal_trouble=trouble,
            commands=_commands(run),
            canceling=asked,
            cancel=self._may_cancel(run.status.is_finished, run),
            run_again=self._may_change(
                None if run.status.is_finished else "it has not ended yet: cancel it first"
            ),
            terminate=self._may_change(
                None
                if asked is not None and asked.is_past_budget
                else "only a cancel that takes too long can be forced"
            ),
        )

    def _run(self, run_id: str) -> Any:
        run = self._found(run_id)
        around: tuple[str | None, str | None] = (None, None)
        if run.run_group_id is not None:
            marks = self._index.reads.marks([run.run_group_id], limit=MARKS_OF_GROUP)
            ids = [mark.run_id for mark in marks.get(run.run_group_id, ())]
            if run_id in ids:
                at = ids.index(run_id)
                around = (
                    ids[at - 1] if at > 0 else None,
                    ids[at + 1] if at + 1 < len(ids) else None,
                )
        messages = self._index.reads.count_messages(run_id)
        return run, self._index.steps(run_id), messages, around

    def _found(self, run_id: str) -> RunRecord:
        try:
            return self._index.get(run_id)
        except RunNotFoundError:
            raise RunNotFoundError(f"no run has the id {run_id!r}") from None

    async def messages(self, query: MessagesQuery) -> MessagesView:
        """A part of a run's conversation."""
        after = None if query.after is None else place_of(query.after)
        page = await self.in_thread(
            self._index.reads.message_page,
            query.id,
            after=after,
            find=query.find,
            limit=query.limit,
        )
        shown: list[MessageView] = []
        for found in page.messages:
            message, is_cut = cut_texts(found.message)
            epoch, step_id, seq = found.place
            shown.append(
                MessageView(
                    key=found.place.text(),
                    epoch=epoch,
                    step_id=step_id,
                    seq=seq,
                    message=message,
                    is_cut=is_cut,
                )
            )
        return MessagesView(
            run_id=query.id,
            messages=tuple(shown),
            next=None if page.next is None else page.next.text(),
            searched=page.searched if query.find and page.next is not None else None,
        )

    async def group(self, run_group_id: str) -> GroupView:
        """Everything about one group."""
        return await self.in_thread(self._group, run_group_id)

    def _group(self, run_group_id: str) -> GroupView:
        now, reads = self._now(), self._index.reads
        group = self._index.group(run_group_id)
        marks = reads.marks([run_group_id], limit=MARKS_OF_GROUP).get(run_group_id, ())
        shown = reads.runs_by_id([mark.run_id for mark in marks[:MEMBERS]])
        figures = group.figures
        advantages = figures.advantages(run.reward for run in shown)
        ks = [1 << power for power in range(14) if 1 << power <= figures.n_scored]
        return GroupView(
            now=now,
            group=group,
            pass_at={k: figures.pass_at(k) for k in ks},
            histogram=rows.histogram(reads.rewards(run_group_id)),
            marks=tuple(rows.mark(found) for found in marks),
            members=tuple(
                MemberRow(row=rows.run_row(run, now), advantage=advantage)
                for run, advantage in zip(shown, advantages, strict=True)
            ),
            members_left_out=max(0, figures.n - len(shown)),
            steps=tuple(rows.reached(tally) for tally in reads.step_tallies(run_group_id)),
            temporal_url=self._links.workflow(run_group_id, None, None),
            commands=(
                shlex.join(["episodes", "groups", "show", run_group_id]),
                shlex.join(["episodes", "groups", "cancel", run_group_id]),
            ),
            cancel=self._may_cancel(figures.is_finished, None),
        )

    async def compare(self, run_ids: Sequence[str]) -> CompareView:
        """Two to eight runs side by side.

        Raises:
            InvalidSpecError: there are fewer or more.
        """
        ids = list(dict.fromkeys(run_ids))
        least, most = COMPARED
        if not least <= len(ids) <= most:
            raise InvalidSpecError.of("run", f"compare {least} to {most} runs, not {len(ids)}")

        def read() -> Any:
            runs = [self._found(run_id) for run_id in ids]
            return runs, [self._index.steps(run_id) for run_id in ids]

        runs, steps = await self.in_thread(read)
        now = self._now()
        return CompareView(
            runs=tuple(rows.run_row(run, now) for run in runs),
            facts=rows.facts_compared(runs, now),
            steps=rows.steps_compared(steps),
        )

    async def tasks(self, query: TasksQuery) -> TasksView:
        """Every task that was played lately."""
        now = self._now()
        asked = moment(query.since or "7d", now)
        first = await self.in_thread(self._index.reads.first_listed, since=asked, limit=_TASK_ROWS)
        # Whole seconds, as the stretches are counted in.
        since = (first or asked).replace(microsecond=0)
        stretch = timedelta(seconds=int((now - since).total_seconds() / _STRETCHES) + 1)
        spans = await self.in_thread(
            self._index.reads.task_spans, since=since, stretch=stretch, limit=_TASK_ROWS
        )
        is_empty = first is None and not await self.in_thread(
            self._index.reads.new_rows, since=None, limit=1
        )
        looked_at = sum(span.n for span in spans)
        return TasksView(
            now=now,
            since=since,
            looked_at=looked_at,
            is_cut=looked_at >= _TASK_ROWS,
            stretch_s=stretch.total_seconds(),
            tasks=rows.task_rows(spans, since=since, stretch=stretch)[:_TASKS],
            is_empty=is_empty,
        )

    async def in_thread(self, work: Callable[P, T], *args: P.args, **kwargs: P.kwargs) -> T:
        """Do what blocks in one of the threads for that."""
        loop = asyncio.get_running_loop()
        return await loop.run_in_executor(self._threads, lambda: work(*args, **kwargs))

    def _may_change(self, why_not: str | None) -> May:
        if self._read_only:
            return May(allowed=False, why_not="this explorer only shows: it is read-only")
        return May(allowed=why_not is None, why_not=why_not)

    def _may_cancel(self, is_finished: bool, run: RunRecord | None) -> May:
        if is_finished:
            return May(allowed=False, why_not="it has ended")
        if run is not None and run.is_canceling:
            return May(allowed=False, why_not="it was asked already")
        return self._may_change(None)


def _group_row(group: GroupRecord, marks: Sequence[Any]) -> GroupRow:
    shown: tuple[Mark, ...] = tuple(rows.mark(found) for found in marks)
    return GroupRow(
        **{name: getattr(group, name) for name in GroupRecord.model_fields},
        marks=shown,
        marks_left_out=max(0, group.figures.n - len(shown)),
    )


def _commands(run: RunRecord) -> tuple[str, ...]:
    lines = [["episodes", "show", run.run_id]]
    if not run.status.is_finished:
        lines.append(["episodes", "cancel", run.run_id])
    if run.run_group_id is not None:
        lines.append(["episodes", "groups", "show", run.run_group_id])
    return tuple(shlex.join(line) for line in lines)
