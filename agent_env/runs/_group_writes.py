"""Every write that concerns a whole group, each in the caller's transaction."""

from __future__ import annotations

from collections import Counter
from collections.abc import Sequence
from datetime import datetime, timedelta

from sqlalchemy import Connection, case, func, literal, select, update

from agent_env import ids
from agent_env.errors import ConflictError, RunNotFoundError, bounded
from agent_env.group_specs import Rerun
from agent_env.outcome import CANCELED_IN_TEMPORAL
from agent_env.runs import _dialect, _writes, queries
from agent_env.runs.records import GroupRecord, NewRun, RunRecord
from agent_env.runs.tables import run_groups, runs
from agent_env.status import LIVE, RunStatus


def open_group(connection: Connection, group: GroupRecord, members: Sequence[NewRun]) -> None:
    """See ``RunIndex.open_group``."""
    group_id = group.run_group_id
    _check_distinct(group_id, members)
    dialect = connection.dialect.name
    wanted = group.model_dump(include={"run_group_id", "task_id", "created_at", "size"})
    connection.execute(_dialect.insert_missing(dialect, run_groups), wanted)
    found = (
        connection.execute(select(run_groups).where(run_groups.c.run_group_id == group_id))
        .mappings()
        .one()
    )
    if dict(found) != wanted:
        raise ConflictError(
            f"the group id {group_id!r} is taken by a group of {found['created_at'].isoformat()}"
            f" (task {found['task_id']!r}, size {found['size']}); choose another id"
        )
    if not members:
        return
    connection.execute(
        _dialect.insert_missing(dialect, runs), [_writes.listed(run) for run in members]
    )
    rows = connection.execute(
        select(runs.c.run_id, runs.c.member_index).where(runs.c.run_group_id == group_id)
    )
    indexes: dict[str, int | None] = {row.run_id: row.member_index for row in rows}
    for run in members:
        if indexes.get(run.run_id, -1) != run.member_index:
            raise ConflictError(_writes.taken(queries.get(connection, run.run_id)))


def list_member(connection: Connection, run: NewRun) -> Rerun:
    """See ``RunIndex.list_member``."""
    group_id, index = str(run.run_group_id), int(run.member_index or 0)
    rows = (
        connection.execute(
            select(runs)
            .where(runs.c.run_group_id == group_id, runs.c.member_index == index)
            .order_by(runs.c.created_at, runs.c.run_id)
        )
        .mappings()
        .all()
    )
    if not rows:
        raise RunNotFoundError(f"the group {bounded(group_id, 200)!r} has no member {index}")
    found = [queries.run_record(row) for row in rows]
    earlier = [row for row in found if row.created_at < run.created_at]
    if 0 < len(earlier) < len(found):  # asked before
        return _rerun(found[len(earlier)].run_id, earlier[-1])
    latest = found[-1]
    if latest.workflow_run_id is None and not latest.status.is_finished:
        return Rerun(run_id=latest.run_id, index=index, is_new=False)
    run_id = ids.rerun_id(group_id, index, len(found))
    # The newest stands for the member, whatever the clocks say.
    created_at = max(run.created_at, latest.created_at + timedelta(microseconds=1))
    changes = {"run_id": run_id, "workflow_run_id": None, "created_at": created_at}
    listed = _writes.listed(run.model_copy(update=changes))
    statement = _dialect.insert_new(connection.dialect.name, runs)
    if connection.execute(statement, listed).mappings().first() is None:
        raise ConflictError(_writes.taken(queries.get(connection, run_id)))
    return _rerun(run_id, latest)


def request_group_cancel(
    connection: Connection, run_group_id: str, *, by: str, reason: str, at: datetime
) -> int:
    """See ``RunIndex.request_group_cancel``."""
    asked = _ask(connection, run_group_id, by=by, reason=reason, at=at)
    if asked == 0 and not queries.has_group(connection, run_group_id):
        raise RunNotFoundError(queries.no_group(run_group_id))
    return asked


def cancel_group(
    connection: Connection, run_group_id: str, *, by: str, reason: str, at: datetime
) -> tuple[int, int]:
    """See ``RunIndex.cancel_group``."""
    live = _ask(connection, run_group_id, by=by, reason=reason, at=at)
    created_at = runs.c.created_at  # by another machine's clock: nothing ends before it began
    ended = connection.execute(
        update(runs)
        .where(
            runs.c.run_group_id == run_group_id,
            runs.c.status == RunStatus.QUEUED,
            runs.c.workflow_run_id.is_(None),
        )
        .values(
            status=RunStatus.CANCELED,
            finished_at=case((created_at > at, created_at), else_=literal(at, created_at.type)),
            error_type="Canceled",
            error=func.coalesce(
                func.nullif(runs.c.cancel_requested_reason, ""), CANCELED_IN_TEMPORAL
            ),
        )
    )
    return live, ended.rowcount


def _rerun(run_id: str, replaced: RunRecord) -> Rerun:
    return Rerun(
        run_id=run_id,
        index=int(replaced.member_index or 0),
        replaces=None if replaced.status.is_finished else replaced.run_id,
    )


def _ask(connection: Connection, run_group_id: str, *, by: str, reason: str, at: datetime) -> int:
    """Record a request on every live member that has none; how many live members there are."""
    is_live = (runs.c.run_group_id == run_group_id) & runs.c.status.in_(LIVE)
    connection.execute(
        update(runs)
        .where(is_live, runs.c.cancel_requested_at.is_(None))
        .values(_writes.cancel_request(by, reason, at))
    )
    return connection.execute(select(func.count()).where(is_live)).scalar_one()


def _check_distinct(run_group_id: str, members: Sequence[NewRun]) -> None:
    for what, values in (
        ("id", [run.run_id for run in members]),
        ("index", [run.member_index for run in members]),
    ):
        ((value, times),) = Counter(values).most_common(1) or [(None, 1)]
        if times > 1:
            raise ConflictError(
                f"{times} members of the group {bounded(run_group_id, 200)!r} have the {what}"
                f" {value!r}; give each its own"
            )
