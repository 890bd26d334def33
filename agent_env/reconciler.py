"""Compares the run index with Temporal, and repairs what is only a row or a request.

What needs a host, the end of a run with its teardown, is left to the workflow
``agent_env.Reconcile``. A row whose workflow is open is never ended.
"""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Awaitable, Callable, Collection, Sequence
from datetime import datetime, timedelta
from functools import partial
from typing import NamedTuple

from temporalio.client import Client

from agent_env._executions import (
    Execution,
    closed,
    described,
    ended_from_outside,
    of_row,
    open_workflows,
    overruling,
    started_with,
)
from agent_env._mend import canceled, restored
from agent_env.disagreements import (
    ComparedRun,
    Disagreement,
    GroupTally,
    Kind,
    Standing,
    ending,
    is_fresh,
    is_from_outside,
    overrules,
    standing,
    why_never_started,
)
from agent_env.runs import RunCursor, RunIndex
from agent_env.specs import CancelMembers, Repair, Repaired
from agent_env.status import LIVE
from agent_env.task import sandbox_types

_PAGE = 500
_AT_ONCE = 16
"""Most questions to Temporal at one time."""
_DOUBTFUL = (Standing.SUSPECT, Standing.UNHEARD, Standing.ORPHANED)
_LAGS = timedelta(minutes=10)
"""How long after its workflow was ended from outside a row may still be written, or be listed."""

Question = Callable[[], Awaitable[Disagreement | None]]


class Look(NamedTuple):
    """What one pass found."""

    found: tuple[Disagreement, ...]
    is_whole: bool
    """False when there were more than it may find."""
    live: int
    """Live rows that were compared."""
    open: int
    """Open episodes and groups in Temporal."""


class Reconciler:
    """One index against one namespace.

    Args:
        client: Of the namespace.
        index: Of the rows.
        now: The clock that rows are written by.
    """

    def __init__(self, client: Client, index: RunIndex, *, now: Callable[[], datetime]) -> None:
        self._client = client
        self._index = index
        self._now = now
        self._agreed_until: datetime | None = None
        """When the last one closed that was ended from outside, while all such rows agreed."""

    async def look(self, *, ignore: Collection[str] = (), limit: int = 1000) -> Look:
        """Find what disagrees; changes nothing.

        Live rows are read page by page, open workflows and those ended from outside are listed
        once; only rows that do not go with the lists cost a question each.

        Args:
            ignore: Runs and groups to leave alone.
            limit: About how many to find, at most.

        Raises:
            RPCError: Temporal does not answer. Safe to retry.
            IndexUnavailableError: the run index does not answer. Safe to retry.
        """
        opened = await open_workflows(self._client)
        unlisted = {
            id for id, found in opened.episodes.items() if not self._is_fresh(found.started_at)
        }
        tally, doubtful, live = GroupTally(), list[ComparedRun](), 0
        async for rows in self._live_rows():
            live += len(rows)
            unlisted.difference_update(row.run_id for row in rows)
            for row in rows:
                how = standing(row, opened, self._now())
                tally.add(row, how, self._now())
                if how in _DOUBTFUL and row.run_id not in ignore:
                    doubtful.append(row)
        questions = [partial(self._examined, row) for row in doubtful]
        questions += [
            partial(self._stranded, group, count)
            for group, count in tally.stranded
            if group not in ignore
        ]
        questions += [partial(self._unheard_group, *group) for group in tally.unheard]
        questions += [partial(self._unlisted, id) for id in await self._without_row(unlisted)]
        questions += [
            partial(self._overruled, row)
            for row in await self._otherwise_ended()
            if row.run_id not in ignore
        ]
        found, is_whole = await self._answered(questions, limit)
        return Look(found, is_whole, live, len(opened.episodes) + len(opened.groups))

    async def mend(self, found: Disagreement) -> Repaired:
        """Repair an unlisted run or an unheard cancel, which needs no host.

        Raises:
            RPCError: Temporal does not answer. Safe to retry.
            IndexUnavailableError: the run index does not answer. Safe to retry.
        """
        done = (
            await restored(self._client, self._index, found, at=self._now())
            if found.kind is Kind.UNLISTED
            else await canceled(self._client, found)
        )
        detail = found.detail if done else f"not yet: {found.detail}"
        return Repaired(target=found.target, changed=done, detail=detail, agrees=done)

    async def _live_rows(self) -> AsyncIterator[Sequence[ComparedRun]]:
        for status in LIVE:
            after: RunCursor | None = None
            while True:
                rows = await asyncio.to_thread(
                    self._index.live_runs,
                    self._client.namespace,
                    status,
                    after=after,
                    limit=_PAGE,
                )
                yield rows
                if len(rows) < _PAGE:
                    break
                after = RunCursor(created_at=rows[-1].created_at, run_id=rows[-1].run_id)

    async def _otherwise_ended(self) -> Sequence[ComparedRun]:
        """Rows that have ended otherwise than Temporal lists it. All at first, then of late."""
        since = self._agreed_until and self._agreed_until - _LAGS
        outside = await ended_from_outside(self._client, since=since)
        rows = await asyncio.to_thread(
            self._index.ended_runs, self._client.namespace, sorted(outside)
        )
        found = [row for row in rows if overrules(outside[row.run_id].status, row.status)]
        if outside and not found:
            self._agreed_until = max(end.closed_at for end in outside.values())
        return found

    async def _without_row(self, run_ids: Collection[str]) -> list[str]:
        ids = sorted(run_ids)
        places = await asyncio.to_thread(self._index.places, ids)
        return [id for id in ids if id not in places]

    async def _answered(
        self, questions: Sequence[Question], limit: int
    ) -> tuple[tuple[Disagreement, ...], bool]:
        """Ask in order, some at a time, until enough is found; whether that was all."""
        found: list[Disagreement] = []
        for first in range(0, len(questions), _AT_ONCE):
            if len(found) >= limit:
                return tuple(found), False
            asked = (question() for question in questions[first : first + _AT_ONCE])
            found += [answer for answer in await asyncio.gather(*asked) if answer is not None]
        return tuple(found), True

    async def _examined(self, row: ComparedRun) -> Disagreement | None:
        """Look closely at a row that may disagree: a listing may lag, a description does not."""
        latest = await described(self._client, row.run_id)
        if latest is not None and latest.is_open:
            return self._unheard(row, latest) or await self._orphaned(row, latest)
        its = await of_row(self._client, row, latest)
        return await self._ended(Kind.ENDED, row, its)

    async def _overruled(self, row: ComparedRun) -> Disagreement | None:
        its = await overruling(self._client, row)
        return None if its is None else await self._ended(Kind.OVERRULED, row, its)

    async def _ended(self, kind: Kind, row: ComparedRun, its: Execution | None) -> Disagreement:
        how = await closed(self._client, row.run_id, its)
        outcome = ending(how)
        start = its and await started_with(self._client, row.run_id, its.run_id)
        repair = Repair(
            run_id=row.run_id,
            workflow_run_id=row.workflow_run_id,
            host=row.host,
            outcome=outcome,
            is_own=how.result is not None,
            reward_step=start.task.reward if start else None,
            sandbox_types=tuple(sorted(sandbox_types(start.task))) if start else (),
            overrules=is_from_outside(how.status),
        )
        was = f"{row.status}, and should be " if kind is Kind.OVERRULED else ""
        detail = f"{was}{outcome.status} {outcome.error or ''}".rstrip()
        return Disagreement(kind, row.run_id, detail, repair=repair)

    def _unheard(self, row: ComparedRun, latest: Execution) -> Disagreement | None:
        if row.cancel_requested_at is None or latest.is_cancel_requested:
            return None
        return _unheard(row.run_id, row.cancel_requested_reason or "", latest)

    async def _orphaned(self, row: ComparedRun, latest: Execution) -> Disagreement | None:
        """A member that goes on while its group was ended from outside: nobody waits for it."""
        if row.run_group_id is None or row.member_index is None or latest.is_cancel_requested:
            return None
        group = await described(self._client, row.run_group_id)
        if group is None or group.closed_at is None or self._is_fresh(group.closed_at):
            return None  # none was ever there to wait for it, or the listing lags
        reason = why_never_started(await closed(self._client, row.run_group_id, group))
        return _unheard(row.run_id, reason, latest)

    async def _unheard_group(self, group: str, reason: str) -> Disagreement | None:
        latest = await described(self._client, group)
        if latest is None or not latest.is_open or latest.is_cancel_requested:
            return None
        return _unheard(group, reason, latest)

    async def _stranded(self, group: str, count: int) -> Disagreement | None:
        latest = await described(self._client, group)
        if latest is not None and (latest.closed_at is None or self._is_fresh(latest.closed_at)):
            return None  # open, or a member may be about to start
        reason = why_never_started(await closed(self._client, group, latest))
        return Disagreement(
            Kind.STRANDED,
            group,
            f"{count} members never started: CANCELED {reason}",
            members=CancelMembers(run_group_id=group, reason=reason),
        )

    async def _unlisted(self, run_id: str) -> Disagreement | None:
        latest = await described(self._client, run_id)
        if latest is None or not latest.is_open or not latest.is_begun:
            return None  # over by now, or no worker has had the chance to list it
        detail = "listed again: its workflow is open and it had no row"
        return Disagreement(Kind.UNLISTED, run_id, detail, workflow_run_id=latest.run_id)

    def _is_fresh(self, at: datetime) -> bool:
        return is_fresh(at, self._now())


def _unheard(target: str, reason: str, latest: Execution) -> Disagreement:
    return Disagreement(
        Kind.UNHEARD,
        target,
        f"asked Temporal to cancel it: {reason or 'no reason was given'}",
        workflow_run_id=latest.run_id,
        reason=reason,
    )
