"""Reads that sum up: what is live, tasks over time, which steps a group reached, conversations."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from datetime import UTC, datetime, timedelta
from typing import Any

from sqlalchemy import (
    Connection,
    and_,
    case,
    func,
    literal,
    select,
    text,
    tuple_,
)

from agent_env.errors import InvalidSpecError, bounded
from agent_env.runs import _dialect
from agent_env.runs._columns import AnyText
from agent_env.runs._figures import is_latest
from agent_env.runs._literals import at_most, has_status
from agent_env.runs.lists import (
    GroupMark,
    LiveRow,
    MessagePage,
    MessagePlace,
    MessageRecord,
    StepTally,
    TaskSpan,
    WatchedRun,
)
from agent_env.runs.tables import has_still_up, messages, runs, steps
from agent_env.status import LIVE, RunStatus, StepStatus

MOST_COUNTED = 10_000
"""Where a count of live runs stops."""
MOST_MESSAGES = 100_000
"""Where a count of messages stops."""
_MOST_SEARCHED = 2_000
"""Messages that one page looks through for a text."""
_MOST_PAGE_CHARS = 2_000_000
"""Most text of one page of messages."""

_LIVE_COLUMNS = (
    runs.c.run_id,
    runs.c.run_group_id,
    runs.c.created_at,
    runs.c.status,
    runs.c.steps_done,
    runs.c.current_step,
    runs.c.host,
    runs.c.epoch,
    runs.c.cancel_requested_at,
    runs.c.reward,
    runs.c.prompt_tokens,
    runs.c.completion_tokens,
)


def live_counts(connection: Connection) -> tuple[int, int]:
    """See ``IndexReads.live_counts``."""
    counted = [_count(select(literal(1)).where(has_status(s)), MOST_COUNTED) for s in LIVE]
    row: Any = connection.execute(select(*counted)).one()
    return row[0], row[1]


def live_rows(connection: Connection, *, limit: int) -> tuple[LiveRow, ...]:
    """See ``IndexReads.live_rows``."""
    found: list[LiveRow] = []
    for status in (RunStatus.RUNNING, RunStatus.QUEUED):
        newest: Any = (
            select(*_LIVE_COLUMNS)
            .where(has_status(status))
            .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
            .limit(at_most(limit))
        )
        found += [LiveRow._make(row) for row in connection.execute(newest)]
    return tuple(found)


def new_rows(connection: Connection, *, since: datetime | None, limit: int) -> tuple[LiveRow, ...]:
    """See ``IndexReads.new_rows``."""
    statement = (
        select(*_LIVE_COLUMNS)
        .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
        .limit(at_most(limit))
    )
    if since is not None:
        statement = statement.where(runs.c.created_at >= since)
    return tuple(LiveRow._make(row) for row in connection.execute(statement))


def watched(connection: Connection, run_ids: Sequence[str]) -> Mapping[str, WatchedRun]:
    """See ``IndexReads.watched``."""
    said = select(literal(1)).where(messages.c.run_id == runs.c.run_id).correlate(runs)
    statement: Any = select(
        runs.c.run_id,
        runs.c.run_group_id,
        runs.c.status,
        runs.c.error,
        runs.c.still_up,
        _count(said, MOST_MESSAGES),
    ).where(runs.c.run_id.in_(run_ids))
    return {row[0]: WatchedRun._make(row[1:]) for row in connection.execute(statement)}


def hosts(connection: Connection) -> Mapping[str, int]:
    """See ``IndexReads.hosts``."""
    running = has_status(RunStatus.RUNNING)
    statement = select(runs.c.host, func.count()).where(running).group_by(runs.c.host)
    return {host: count for host, count in connection.execute(statement) if host is not None}


def count_still_up(connection: Connection) -> int:
    """See ``IndexReads.count_still_up``."""
    return connection.execute(
        select(_count(select(literal(1)).select_from(runs).where(has_still_up), MOST_COUNTED))
    ).scalar_one()


def task_ids(connection: Connection, *, limit: int) -> tuple[str, ...]:
    """See ``IndexReads.task_ids``."""
    # From one id to the next by the index: DISTINCT would walk past every run.
    ids = select(func.min(runs.c.task_id, type_=AnyText()).label("id")).cte("ids", recursive=True)
    following = select(func.min(runs.c.task_id, type_=AnyText()))
    following = following.where(runs.c.task_id > ids.c.id).scalar_subquery()
    ids = ids.union_all(select(following).where(ids.c.id.is_not(None)))
    found = connection.execute(select(ids.c.id).where(ids.c.id.is_not(None)).limit(at_most(limit)))
    return tuple(found.scalars())


def marks(
    connection: Connection, run_group_ids: Sequence[str], *, limit: int
) -> Mapping[str, tuple[GroupMark, ...]]:
    """See ``IndexReads.marks``."""
    order = (runs.c.member_index.is_(None), runs.c.member_index, runs.c.created_at, runs.c.run_id)
    numbered = (
        select(
            runs.c.run_group_id,
            runs.c.run_id,
            func.row_number().over(partition_by=runs.c.run_group_id, order_by=order).label("place"),
        )
        .where(runs.c.run_group_id.in_(run_group_ids), is_latest())
        .subquery()
    )
    statement = (
        select(
            runs.c.run_group_id,
            runs.c.run_id,
            runs.c.member_index,
            runs.c.status,
            runs.c.reward,
            runs.c.cancel_requested_at,
        )
        .join(numbered, numbered.c.run_id == runs.c.run_id)
        .where(numbered.c.place <= limit)
        .order_by(numbered.c.run_group_id, numbered.c.place)
    )
    found: dict[str, list[GroupMark]] = {}
    for row in connection.execute(statement):
        status = RunStatus(row.status)
        is_canceling = row.cancel_requested_at is not None and not status.is_finished
        found.setdefault(row.run_group_id, []).append(
            GroupMark(row.run_id, row.member_index, status, row.reward, is_canceling)
        )
    return {group: tuple(each) for group, each in found.items()}


def rewards(connection: Connection, run_group_id: str) -> tuple[float, ...]:
    """See ``IndexReads.rewards``."""
    statement = select(runs.c.reward).where(
        runs.c.run_group_id == run_group_id, runs.c.reward.is_not(None), is_latest()
    )
    return tuple(connection.execute(statement).scalars())


def step_tallies(connection: Connection, run_group_id: str) -> tuple[StepTally, ...]:
    """See ``IndexReads.step_tallies``."""
    in_group = and_(runs.c.run_group_id == run_group_id, is_latest())
    counts = [
        func.count(case((steps.c.status == status, 1))).label(status.value.lower())
        for status in StepStatus
    ]
    first = func.min(steps.c.started_at, type_=steps.c.started_at.type).label("first")
    recorded: Any = (
        select(
            steps.c.step_id, func.min(steps.c.type, type_=AnyText()).label("type"), *counts, first
        )
        .join(runs, runs.c.run_id == steps.c.run_id)
        .where(in_group, ~steps.c.retried)
        .group_by(steps.c.step_id)
    )
    at: Any = (
        select(runs.c.current_step.label("step"), func.count().label("n"))
        .where(
            in_group,
            has_status(RunStatus.RUNNING),
            runs.c.current_step.is_not(None),
        )
        .group_by(runs.c.current_step)
    )
    now_at = {row["step"]: row["n"] for row in connection.execute(at).mappings()}
    tallies: list[tuple[datetime, StepTally]] = []
    for row in connection.execute(recorded).mappings():
        step_id: str = row["step_id"]
        tally = StepTally(
            step_id,
            row["type"],
            max(row["running"], now_at.pop(step_id, 0)),
            row["completed"],
            row["failed"],
            row["canceled"],
        )
        tallies.append((row["first"] or datetime.max.replace(tzinfo=UTC), tally))
    found = [tally for _, tally in sorted(tallies, key=lambda item: item[0])]
    found += [StepTally(step, "", count, 0, 0, 0) for step, count in now_at.items()]
    return tuple(found)


def first_listed(connection: Connection, *, since: datetime, limit: int) -> datetime | None:
    """See ``IndexReads.first_listed``."""
    newest = (
        select(runs.c.created_at)
        .where(runs.c.created_at >= since)
        .order_by(runs.c.created_at.desc())
        .limit(at_most(limit))
        .subquery()
    )
    first = func.min(newest.c.created_at, type_=runs.c.created_at.type)
    return connection.execute(select(first)).scalar_one()


def task_spans(
    connection: Connection, *, since: datetime, stretch: timedelta, limit: int
) -> tuple[TaskSpan, ...]:
    """See ``IndexReads.task_spans``."""
    newest = (
        select(
            runs.c.task_id,
            runs.c.task_version,
            runs.c.created_at,
            runs.c.status,
            runs.c.reward,
        )
        .where(runs.c.created_at >= since)
        .order_by(runs.c.created_at.desc(), runs.c.run_id.desc())
        .limit(at_most(limit))
        .subquery()
    )
    dialect = connection.dialect.name
    start = int(since.timestamp())
    width = max(1, int(stretch.total_seconds()))
    # Integers, so the division is whole on both databases.
    place = ((_dialect.epoch_seconds(dialect, newest.c.created_at) - start) // width).label("place")
    # PostgreSQL refuses the sum of what is too large for a mean.
    usable = func.abs(newest.c.reward) < 1e300
    counts = [func.count(case((newest.c.status == status, 1))) for status in RunStatus]
    statement = select(
        newest.c.task_id,
        newest.c.task_version,
        place,
        func.count(),
        *counts,
        func.count(newest.c.reward),
        func.sum(case((usable, newest.c.reward))),
        func.max(newest.c.created_at, type_=runs.c.created_at.type),
    ).group_by(newest.c.task_id, newest.c.task_version, text("place"))
    return tuple(TaskSpan._make(row) for row in connection.execute(statement))


def count_messages(connection: Connection, run_id: str) -> int:
    """See ``IndexReads.count_messages``."""
    counted = _count(select(literal(1)).where(messages.c.run_id == run_id), MOST_MESSAGES)
    return connection.execute(select(counted)).scalar_one()


def message_page(
    connection: Connection,
    run_id: str,
    *,
    after: MessagePlace | None,
    find: str | None,
    limit: int,
) -> MessagePage:
    """See ``IndexReads.message_page``."""
    key = (messages.c.epoch, messages.c.step_id, messages.c.seq)
    statement = select(*key, messages.c.message).where(messages.c.run_id == run_id).order_by(*key)
    if after is not None:
        last = tuple_(literal(after.epoch), literal(after.step_id, AnyText), literal(after.seq))
        statement = statement.where(tuple_(*key) > last)
    statement = statement.limit(at_most(_MOST_SEARCHED if find else limit + 1))
    found: list[MessageRecord] = []
    chars = searched = 0
    place: MessagePlace | None = None
    for epoch, step_id, seq, message in connection.execute(statement):
        if len(found) == limit or chars >= _MOST_PAGE_CHARS:
            return MessagePage(tuple(found), place, searched)
        searched += 1
        place = MessagePlace(epoch, step_id, seq)
        plain = json.dumps(message, ensure_ascii=False)
        if find and find.lower() not in plain.lower():
            continue
        chars += len(plain)
        found.append(MessageRecord(place, message))
    more = find is not None and searched == _MOST_SEARCHED
    return MessagePage(tuple(found), place if more else None, searched)


def _count(statement: Any, limit: int) -> Any:
    return (
        select(func.count())
        .select_from(statement.limit(at_most(limit)).subquery())
        .scalar_subquery()
    )


def place_of(word: str) -> MessagePlace:
    """The place that ``MessagePlace.text`` wrote.

    Raises:
        InvalidSpecError: it is not one.
    """
    epoch, _, rest = word.partition(".")
    seq, _, step_id = rest.partition(".")
    try:
        return MessagePlace(int(epoch), step_id, int(seq))
    except ValueError:
        shown = bounded(word, 100)
        raise InvalidSpecError.of(
            "after", f"{shown!r} is not a place in a conversation; use one that came with a page"
        ) from None
