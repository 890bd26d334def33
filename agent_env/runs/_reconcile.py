"""What the reconciler reads and writes, each in the caller's transaction."""

from __future__ import annotations

from datetime import datetime

from sqlalchemy import Connection, bindparam, literal, select, tuple_

from agent_env.disagreements import LiveRun, scored
from agent_env.errors import RunNotFoundError
from agent_env.runs import _writes, queries
from agent_env.runs.lists import RunCursor
from agent_env.runs.records import Ended, Finished, NewRun, RunRecord
from agent_env.runs.tables import runs
from agent_env.status import RunStatus

# Built once: building a statement takes longer than SQLite takes to run it.
_LIVE = (
    select(*(runs.c[name] for name in LiveRun._fields))
    .where(runs.c.status == bindparam("status"), runs.c.namespace == bindparam("namespace"))
    .order_by(runs.c.created_at, runs.c.run_id)
    .limit(bindparam("limit"))
)


def live_runs(
    connection: Connection,
    namespace: str,
    status: RunStatus,
    *,
    after: RunCursor | None,
    limit: int,
) -> tuple[LiveRun, ...]:
    """See ``RunIndex.live_runs``."""
    statement = _LIVE
    if after is not None:
        key = (runs.c.created_at, runs.c.run_id)
        last = (literal(after.created_at, key[0].type), literal(after.run_id, key[1].type))
        statement = statement.where(tuple_(*key) > tuple_(*last))
    values = {"status": status, "namespace": namespace, "limit": limit}
    rows = connection.execute(statement, values)
    return tuple(LiveRun._make(row)._replace(status=status) for row in rows)


def end_run(connection: Connection, ended: Ended, *, at: datetime) -> tuple[RunRecord, bool]:
    """See ``RunIndex.end_run``."""
    row = queries.find(connection, ended.run_id, lock=True)
    if row is None:
        raise RunNotFoundError(queries.no_run(ended.run_id))
    if row.workflow_run_id != ended.workflow_run_id:
        return row, False
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
