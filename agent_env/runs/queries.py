"""Every read: filters, ordering, keyset pages, the figures of groups."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    RowMapping,
    Select,
    Subquery,
    Text,
    and_,
    bindparam,
    cast,
    exists,
    false,
    func,
    literal,
    null,
    or_,
    select,
    tuple_,
    union_all,
)

from agent_env.errors import InvalidSpecError, RunNotFoundError
from agent_env.results import GroupResult, StepReport
from agent_env.runs import _dialect
from agent_env.runs._columns import AnyText
from agent_env.runs._figures import figures_of, is_latest
from agent_env.runs._literals import at_most, has_status
from agent_env.runs.lists import GroupPage, RunCursor, RunFilter, RunPage
from agent_env.runs.records import GroupRecord, RunRecord
from agent_env.runs.tables import run_groups, runs, steps
from agent_env.scores import GroupFigures, group_figures
from agent_env.status import RunStatus

MAX_PAGE = 500
"""Most rows of one page."""

_WITH_ERRORS = (RunStatus.FAILED, RunStatus.CANCELED)

# Built once: building a statement takes longer than SQLite takes to run it.
_FIND = select(runs).where(runs.c.run_id == bindparam("run_id"))
_FIND_LOCKED = _FIND.with_for_update()
_COUNT_RUNNING = select(func.count()).where(
    runs.c.host == bindparam("host"), has_status(RunStatus.RUNNING)
)


def run_record(row: RowMapping) -> RunRecord:
    """A row of ``runs``."""
    return RunRecord(**row)


def no_run(run_id: str) -> str:
    """What to say of an id that no run has."""
    return f"no run has the id {run_id!r}; list the runs to find the right one"


def no_group(run_group_id: str) -> str:
    """What to say of an id that no group has."""
    return f"no group has the id {run_group_id!r}; list the groups to find the right one"


def count_running(connection: Connection, host: str) -> int:
    """See ``RunIndex.count_running``."""
    return connection.execute(_COUNT_RUNNING, {"host": host}).scalar_one()


def find(connection: Connection, run_id: str, *, lock: bool = False) -> RunRecord | None:
    """The run, if there is one; nobody else changes it in this transaction if it is locked."""
    statement = _FIND_LOCKED if lock else _FIND
    row = connection.execute(statement, {"run_id": run_id}).mappings().first()
    return None if row is None else run_record(row)


def get(connection: Connection, run_id: str) -> RunRecord:
    """See ``RunIndex.get``."""
    row = find(connection, run_id)
    if row is None:
        raise RunNotFoundError(no_run(run_id))
    return row


def step_reports(connection: Connection, run_id: str) -> tuple[StepReport, ...]:
    """See ``RunIndex.steps``."""
    rows = connection.execute(
        select(steps)
        .where(steps.c.run_id == run_id)
        .order_by(
            steps.c.epoch,
            steps.c.started_at.is_(None),
            steps.c.started_at,
            steps.c.finished_at,
            steps.c.step_id,
        )
    )
    return tuple(StepReport(**row) for row in rows.mappings())


def page(
    connection: Connection, where: RunFilter, *, after: RunCursor | None, limit: int
) -> RunPage:
    """See ``RunIndex.page``."""
    _check_limit(limit)
    statement = _page(where, after, limit + 1, connection.dialect.name)
    rows = [run_record(row) for row in connection.execute(statement).mappings()]
    following = None
    if len(rows) > limit:
        last = rows[limit - 1]
        following = RunCursor(created_at=last.created_at, run_id=last.run_id)
    return RunPage(runs=tuple(rows[:limit]), next=following)


def members(connection: Connection, run_group_id: str) -> tuple[RunRecord, ...]:
    """See ``RunIndex.members``."""
    rows = connection.execute(
        select(runs)
        .where(runs.c.run_group_id == run_group_id, is_latest())
        .order_by(
            runs.c.member_index.is_(None), runs.c.member_index, runs.c.created_at, runs.c.run_id
        )
    )
    return tuple(run_record(row) for row in rows.mappings())


def group_result(connection: Connection, run_group_id: str) -> GroupResult:
    """See ``RunIndex.group_result``."""
    rows = members(connection, run_group_id)
    return GroupResult(
        run_group_id=run_group_id,
        task_id=group(connection, run_group_id).task_id,
        members=tuple(row.result() for row in rows),
        figures=group_figures((row.status, row.reward) for row in rows),
    )


def has_group(connection: Connection, run_group_id: str) -> bool:
    """Whether a group was listed, or a run names it."""
    named = select(runs.c.run_id).where(runs.c.run_group_id == run_group_id)
    row = select(run_groups.c.run_group_id).where(run_groups.c.run_group_id == run_group_id)
    return bool(connection.execute(select(exists(named) | exists(row))).scalar_one())


def group(connection: Connection, run_group_id: str) -> GroupRecord:
    """See ``RunIndex.group``."""
    listed = select(run_groups).where(run_groups.c.run_group_id == run_group_id)
    first = (
        select(runs.c.run_group_id, runs.c.task_id, runs.c.created_at, null().label("size"))
        .where(runs.c.run_group_id == run_group_id)
        .order_by(runs.c.created_at, runs.c.run_id)
        .limit(1)
    )
    for statement in (listed, first):
        if row := connection.execute(statement).mappings().first():
            return _group_record(row, figures_of(connection, [run_group_id]))
    raise RunNotFoundError(no_group(run_group_id))


def groups(connection: Connection, *, after: RunCursor | None, limit: int) -> GroupPage:
    """See ``RunIndex.groups``."""
    _check_limit(limit)
    key = (run_groups.c.created_at, run_groups.c.run_group_id)
    statement = (
        select(run_groups).order_by(*(column.desc() for column in key)).limit(at_most(limit + 1))
    )
    if after is not None:
        statement = statement.where(_is_before(after, *key))
    rows = connection.execute(statement).mappings().all()
    figures = figures_of(connection, [row["run_group_id"] for row in rows[:limit]])
    found = tuple(_group_record(row, figures) for row in rows[:limit])
    following = None
    if len(rows) > limit:
        following = RunCursor(created_at=found[-1].created_at, run_id=found[-1].run_group_id)
    return GroupPage(groups=found, next=following)


def _page(where: RunFilter, after: RunCursor | None, limit: int, dialect: str) -> Select[Any]:
    """The statement of a page.

    Of several statuses, the newest runs of each are found by an index and then merged: a database
    would else sort all that match, or walk past all that don't. Of a group, all that match are
    found first: a database that can't tell how few they are walks past all that are newer.
    """
    demands = list(conditions(where, dialect))
    if after is not None:
        demands.append(_is_before(after, runs.c.created_at, runs.c.run_id))
    newest_first = (runs.c.created_at.desc(), runs.c.run_id.desc())
    statuses = _statuses(where)
    if where.run_group_id is not None:
        found = select(runs.c.run_id, runs.c.created_at).where(*demands).cte("found")
        found = found.prefix_with("MATERIALIZED")
        first = select(found).order_by(found.c.created_at.desc(), found.c.run_id.desc())
        return _rows_of(first.limit(at_most(limit)).subquery(), limit)
    if statuses is None:
        return select(runs).where(*demands).order_by(*newest_first).limit(at_most(limit))
    if not statuses:
        return select(runs).where(false())
    newest = [
        select(runs.c.run_id, runs.c.created_at)
        .where(has_status(status), *demands)
        .order_by(*newest_first)
        .limit(at_most(limit))
        .subquery()
        for status in statuses
    ]
    return _rows_of(union_all(*(select(each) for each in newest)).subquery(), limit)


def _rows_of(keys: Subquery, limit: int) -> Select[Any]:
    """The runs of these keys, newest first."""
    return (
        select(runs)
        .join(keys, keys.c.run_id == runs.c.run_id)
        .order_by(keys.c.created_at.desc(), keys.c.run_id.desc())
        .limit(at_most(limit))
    )


def _statuses(where: RunFilter) -> Sequence[RunStatus] | None:
    """Statuses to look through one by one; None when the statement needs no such help."""
    if where.run_group_id is not None:
        return None
    asked = tuple(dict.fromkeys(where.status))
    if where.error_contains:  # the others have no error, and are most of all runs
        return [status for status in asked or _WITH_ERRORS if status in _WITH_ERRORS]
    return asked or (tuple(RunStatus) if where.task_id is not None else None)


def conditions(where: RunFilter, dialect: str) -> Iterator[ColumnElement[bool]]:
    """What a filter demands of a row, but for statuses that are looked through one by one."""
    if where.run_group_id is not None:
        yield runs.c.run_group_id == where.run_group_id
        if where.status:
            yield runs.c.status.in_(where.status)
    if where.task_id is not None:
        yield runs.c.task_id == where.task_id
    if where.created_after is not None:
        yield runs.c.created_at >= where.created_after
    if where.created_before is not None:
        yield runs.c.created_at < where.created_before
    if where.reward_min is not None:
        yield runs.c.reward >= where.reward_min
    if where.reward_max is not None:
        yield runs.c.reward <= where.reward_max
    if where.error_contains:
        yield runs.c.error.icontains(where.error_contains, autoescape=True)
    if where.text:
        texts = (runs.c.run_id, runs.c.run_group_id, runs.c.task_id, runs.c.error)
        tags = cast(runs.c.tags, Text)
        yield or_(*(each.icontains(where.text, autoescape=True) for each in (*texts, tags)))
    for key, value in where.tag.items():
        tag = _dialect.tag_items(dialect)
        wanted = and_(tag.c.key == literal(key, AnyText), tag.c.value == literal(value, AnyText))
        yield exists(select(literal(1)).select_from(tag).where(wanted))


def _group_record(row: RowMapping, figures: Mapping[str, GroupFigures]) -> GroupRecord:
    return GroupRecord(**row, figures=figures.get(row["run_group_id"], GroupFigures(n=0)))


def _is_before(cursor: RunCursor, created_at: Column[Any], key: Column[Any]) -> ColumnElement[bool]:
    """Whether a row comes after the cursor in a list that shows the newest first."""
    last = tuple_(literal(cursor.created_at, created_at.type), literal(cursor.run_id, key.type))
    return tuple_(created_at, key) < last


def _check_limit(limit: int) -> None:
    if not 1 <= limit <= MAX_PAGE:
        raise InvalidSpecError.of("limit", f"is 1 to {MAX_PAGE} rows, not {limit}")
