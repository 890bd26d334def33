"""What the reconciler reads and writes, each in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, literal, select, tuple_

from agent_env.disagreements import ComparedRun, scored
from agent_env.errors import RunNotFoundError
from agent_env.runs import _writes, queries
from agent_env.runs._leftovers import MOST_IDS
from agent_env.runs.lists import RunCursor
from agent_env.runs.records import Ended, Finished, NewRun, RunRecord
from agent_env.runs.tables import runs
from agent_env.status import FINISHED, RunStatus

# Built once: building a statement takes longer than SQLite takes to run it.
_LIVE = (
    select(*(runs.c[name] for name in ComparedRun._fields))
    .where(runs.c.status == bindparam("status"), runs.c.namespace == bindparam("namespace"))
    .order_by(runs.c.created_at, runs.c.run_id)
    .limit(bindparam("limit"))
)
_ENDED = select(*(runs.c[name] for name in ComparedRun._fields)).where(
    runs.c.run_id.in_(bindparam("run_ids", expanding=True)),
    runs.c.namespace == bindparam("namespace"),
    runs.c.status.in_(FINISHED),
)


def live_runs(
    connection: Connection,
    namespace: str,
    status: RunStatus,
    *,
    after: RunCursor | None,
    limit: int,
) -> tuple[ComparedRun, ...]:
    """See ``RunIndex.live_runs``."""
    statement = _LIVE
    if after is not None:
        key = (runs.c.created_at, runs.c.run_id)
        last = (literal(after.created_at, key[0].type), literal(after.run_id, key[1].type))
        statement = statement.where(tuple_(*key) > tuple_(*last))
    values = {"status": status, "namespace": namespace, "limit": limit}
    rows = connection.execute(statement, values)
    return tuple(ComparedRun._make(row)._replace(status=status) for row in rows)


def ended_runs(
    connection: Connection, namespace: str, run_ids: Sequence[str]
) -> tuple[ComparedRun, ...]:
    """See ``RunIndex.ended_runs``."""
    found: list[ComparedRun] = []
    for start in range(0, len(run_ids), MOST_IDS):
        ids = run_ids[start : start + MOST_IDS]
        rows = connection.execute(_ENDED, {"run_ids": ids, "namespace": namespace})
        found += [ComparedRun._make(row)._replace(status=RunStatus(row.status)) for row in rows]
    return tuple(found)


def end_run(connection: Connection, ended: Ended, *, at: datetime) -> tuple[RunRecord, bool]:
    """See ``RunIndex.end_run``."""
    row = queries.find(connection, ended.run_id, lock=True)
    if row is None:
        raise RunNotFoundError(queries.no_run(ended.run_id))
    if row.workflow_run_id != ended.workflow_run_id:
        return row, False
    if ended.overrules and row.status.is_finished and row.status is not ended.outcome.status:
        return _writes.overrule_run(connection, row, ended.outcome, at=at), True
    steps = queries.step_reports(connection, ended.run_id)
    outcome = ended.outcome if ended.is_own else scored(ended.outcome, steps, ended.reward_step)
    finished = Finished(
        run=NewRun.model_validate(row.model_dump()),
        epoch=row.epoch,
        outcome=outcome,
        reports=steps,
        still_up=ended.still_up,
    )
    return _writes.finish_run(connection, finished, at=at)
