"""Lists of runs and groups as people search them: any order, any filter, and never a long scan.

What an index can't answer is looked for among the newest rows only, and the page says how far back
that was: the next page goes on from there.
"""

from __future__ import annotations

from collections.abc import Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple

from sqlalchemy import (
    Column,
    ColumnElement,
    Connection,
    Label,
    Select,
    false,
    func,
    literal,
    select,
    tuple_,
    union_all,
)

from agent_env.runs import _dialect
from agent_env.runs._columns import AnyText
from agent_env.runs._figures import figures_of
from agent_env.runs._literals import at_most, has_status
from agent_env.runs.lists import GroupFilter, GroupPage, RunCursor, RunFilter, RunList, RunSort
from agent_env.runs.queries import conditions, run_record
from agent_env.runs.records import GroupRecord, RunRecord
from agent_env.runs.tables import run_groups, runs
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus

SEARCHED = 20_000
"""Most rows that one page looks through for what no index knows."""
ORDERED = 10_000
"""Most rows that are put into another order than that of creation."""
_ERROR_CHARS = 1_000

_LISTED: list[Column[Any] | Label[Any]] = [
    column
    if column is not runs.c.error
    else func.substr(column, 1, _ERROR_CHARS, type_=AnyText()).label("error")
    for column in runs.c
]
_FAR_PAST = datetime(1, 1, 1, tzinfo=UTC)
_FAR_FUTURE = datetime(9999, 12, 31, tzinfo=UTC)


class _Key(NamedTuple):
    """The key of a row in the order of creation."""

    created_at: datetime
    id: str

    @property
    def cursor(self) -> RunCursor:
        return RunCursor(created_at=self.created_at, run_id=self.id)


def run_list(
    connection: Connection,
    where: RunFilter,
    *,
    sort: RunSort,
    after: RunCursor | None,
    limit: int,
) -> RunList:
    """See ``IndexReads.run_list``."""
    if sort not in (RunSort.NEWEST, RunSort.OLDEST):
        return _ordered(connection, where, sort, after, limit)
    is_oldest = sort is RunSort.OLDEST
    dialect = connection.dialect.name
    edge = None
    extra: list[ColumnElement[bool]] = []
    if _is_loose(where):
        indexed = _without_loose(where)
        keys = _keys(indexed, [], after, SEARCHED, dialect, is_oldest=is_oldest)
        edge = _last(connection, keys, SEARCHED)
        if edge is not None:
            extra.append(~_is_past(edge.cursor, is_oldest=is_oldest))
    keys = _keys(where, extra, after, limit + 1, dialect, is_oldest=is_oldest).subquery()
    statement = (
        select(*_LISTED)
        .join(keys, keys.c.run_id == runs.c.run_id)
        .order_by(*_by_creation(keys.c.created_at, keys.c.run_id, is_oldest=is_oldest))
    )
    rows = [run_record(row) for row in connection.execute(statement).mappings()]
    if len(rows) > limit:
        return RunList(runs=tuple(rows[:limit]), next=_cursor(rows[limit - 1]))
    if edge is not None:
        return RunList(runs=tuple(rows), next=edge.cursor, searched_back_to=edge.created_at)
    return RunList(runs=tuple(rows), next=None)


def count_newer(
    connection: Connection, where: RunFilter, *, than: RunCursor | None, limit: int
) -> int:
    """See ``IndexReads.count_newer``."""
    newer = [] if than is None else [_is_past(than, is_oldest=True)]
    dialect = connection.dialect.name
    # Only what is new is looked through, so nothing more bounds the search.
    looked_at = SEARCHED if _is_loose(where) else limit
    keys = _keys(_without_loose(where), newer, None, looked_at, dialect, is_oldest=True)
    found = keys.subquery()
    if _is_loose(where):
        loose = conditions(_only_loose(where), dialect)
        matching = select(literal(1)).where(runs.c.run_id.in_(select(found.c.run_id)), *loose)
        found = matching.limit(at_most(limit)).subquery()
    return connection.execute(select(func.count()).select_from(found)).scalar_one()


def runs_by_id(connection: Connection, run_ids: Sequence[str]) -> tuple[RunRecord, ...]:
    """See ``IndexReads.runs_by_id``."""
    statement = select(*_LISTED).where(runs.c.run_id.in_(run_ids))
    found = {row["run_id"]: run_record(row) for row in connection.execute(statement).mappings()}
    return tuple(found[run_id] for run_id in run_ids if run_id in found)


def group_list(
    connection: Connection, where: GroupFilter, *, after: RunCursor | None, limit: int
) -> GroupPage:
    """See ``IndexReads.group_list``."""
    key = tuple_(run_groups.c.created_at, run_groups.c.run_group_id)
    newest_first = (run_groups.c.created_at.desc(), run_groups.c.run_group_id.desc())
    statement = select(run_groups).order_by(*newest_first)
    if where.created_after is not None:
        statement = statement.where(run_groups.c.created_at >= where.created_after)
    if where.created_before is not None:
        statement = statement.where(run_groups.c.created_at < where.created_before)
    if after is not None:
        statement = statement.where(key < _bound(after, run_groups.c.run_group_id))
    edge = None
    if where.task_id is not None or where.text:
        keys = statement.with_only_columns(run_groups.c.created_at, run_groups.c.run_group_id)
        edge = _last(connection, keys.limit(at_most(SEARCHED)), SEARCHED)
        if edge is not None:
            statement = statement.where(key >= _bound(edge.cursor, run_groups.c.run_group_id))
        if where.task_id is not None:
            statement = statement.where(run_groups.c.task_id == where.task_id)
        if where.text:
            statement = statement.where(
                run_groups.c.run_group_id.icontains(where.text, autoescape=True)
            )
    rows = connection.execute(statement.limit(at_most(limit + 1))).mappings().all()
    figures = figures_of(connection, [row["run_group_id"] for row in rows[:limit]])
    found = tuple(
        GroupRecord(**row, figures=figures.get(row["run_group_id"], GroupFigures(n=0)))
        for row in rows[:limit]
    )
    following = edge.cursor if edge is not None else None
    if len(rows) > limit:
        following = RunCursor(created_at=found[-1].created_at, run_id=found[-1].run_group_id)
    return GroupPage(groups=found, next=following)


def _ordered(
    connection: Connection,
    where: RunFilter,
    sort: RunSort,
    after: RunCursor | None,
    limit: int,
) -> RunList:
    """In another order than that of creation: the newest that match, put in order."""
    dialect = connection.dialect.name
    is_descending = sort.startswith("-")
    newest = _keys(_without_loose(where), [], None, ORDERED, dialect, is_oldest=False)
    is_cut = _last(connection, newest, ORDERED) is not None
    among = newest.subquery()
    value = _value(dialect, sort)
    row_key = tuple_(value, runs.c.run_id)
    statement = (
        select(*_LISTED)
        .join(among, among.c.run_id == runs.c.run_id)
        .where(*conditions(_only_loose(where), dialect))
        .order_by(
            *((value.desc(), runs.c.run_id.desc()) if is_descending else (value, runs.c.run_id))
        )
        .limit(at_most(limit + 1))
    )
    if after is not None:
        last = select(value).where(runs.c.run_id == after.run_id)
        # Its value as it is now; a row that changed meanwhile may be seen twice or not.
        found = connection.execute(last).first()
        if found is not None:
            bound = tuple_(literal(found[0], value.type), literal(after.run_id, AnyText))
            statement = statement.where(row_key < bound if is_descending else row_key > bound)
    rows = [run_record(row) for row in connection.execute(statement).mappings()]
    following = _cursor(rows[limit - 1]) if len(rows) > limit else None
    return RunList(runs=tuple(rows[:limit]), next=following, is_cut=is_cut)


def _value(dialect: str, sort: RunSort) -> ColumnElement[Any]:
    """What rows are ordered by; those without it come last."""
    is_descending = sort.startswith("-")
    if sort in (RunSort.BEST, RunSort.WORST):
        # Larger than any reward: those are finite.
        return func.coalesce(runs.c.reward, -1.8e308 if is_descending else 1.8e308)
    if sort in (RunSort.LONGEST, RunSort.SHORTEST):
        took = _dialect.seconds_between(dialect, runs.c.started_at, runs.c.finished_at)
        return func.coalesce(took, -1e15 if is_descending else 1e15)
    is_start = sort in (RunSort.LAST_STARTED, RunSort.FIRST_STARTED)
    column = runs.c.started_at if is_start else runs.c.finished_at
    nothing = literal(_FAR_PAST if is_descending else _FAR_FUTURE, column.type)
    return func.coalesce(column, nothing, type_=column.type)


def _keys(
    where: RunFilter,
    extra: Sequence[ColumnElement[bool]],
    after: RunCursor | None,
    limit: int,
    dialect: str,
    *,
    is_oldest: bool,
) -> Select[Any, Any]:
    """Keys of the runs that match, in order of creation.

    Of several statuses, those of each are found by an index and then merged: a database would else
    sort all that match, or walk past all that don't.
    """
    plain = where.model_copy(update={"status": ()})
    demands = [*conditions(plain, dialect), *extra]
    if after is not None:
        demands.append(_is_past(after, is_oldest=is_oldest))
    key = (runs.c.created_at, runs.c.run_id)
    order = _by_creation(*key, is_oldest=is_oldest)
    statuses = _statuses(where)
    if statuses is None:
        one = select(*key).where(*demands).order_by(*order).limit(at_most(limit))
        return one.where(runs.c.status.in_(where.status)) if where.status else one
    if not statuses:
        return select(*key).where(false())
    each = [
        select(*key).where(has_status(status), *demands).order_by(*order).limit(at_most(limit))
        for status in statuses
    ]
    if len(each) == 1:
        return each[0]
    merged = union_all(*(select(part.subquery()) for part in each)).subquery()
    merged_order = _by_creation(merged.c.created_at, merged.c.run_id, is_oldest=is_oldest)
    return (
        select(merged.c.created_at, merged.c.run_id).order_by(*merged_order).limit(at_most(limit))
    )


def _statuses(where: RunFilter) -> Sequence[RunStatus] | None:
    """Statuses to look through one by one; None when the statement needs no such help."""
    if where.run_group_id is not None:
        return None
    asked = tuple(dict.fromkeys(where.status))
    return asked or (tuple(RunStatus) if where.task_id is not None else None)


_LOOSE = ("reward_min", "reward_max", "error_contains", "text", "tag")
"""What no index knows."""


def _is_loose(where: RunFilter) -> bool:
    """Whether the filter asks for something that needs a search. In one group nothing does."""
    asked = any(getattr(where, name) not in (None, "", {}) for name in _LOOSE)
    return asked and where.run_group_id is None


def _without_loose(where: RunFilter) -> RunFilter:
    return RunFilter(**{k: v for k, v in where if k not in _LOOSE})


def _only_loose(where: RunFilter) -> RunFilter:
    return RunFilter(**{k: v for k, v in where if k in _LOOSE})


def _last(connection: Connection, keys: Select[Any, Any], count: int) -> _Key | None:
    """The last of so many keys; None when there are fewer."""
    row = connection.execute(keys.offset(at_most(count - 1)).limit(at_most(1))).first()
    return None if row is None else _Key(row[0], row[1])


def _is_past(cursor: RunCursor, *, is_oldest: bool) -> ColumnElement[bool]:
    """Whether a run comes after the cursor in this order."""
    key, last = tuple_(runs.c.created_at, runs.c.run_id), _bound(cursor, runs.c.run_id)
    return key > last if is_oldest else key < last


def _bound(cursor: RunCursor, key: Column[Any]) -> Any:
    return tuple_(
        literal(cursor.created_at, runs.c.created_at.type), literal(cursor.run_id, key.type)
    )


def _by_creation(created_at: Any, id: Any, *, is_oldest: bool) -> tuple[Any, Any]:
    return (created_at, id) if is_oldest else (created_at.desc(), id.desc())


def _cursor(run: RunRecord) -> RunCursor:
    return RunCursor(created_at=run.created_at, run_id=run.run_id)
