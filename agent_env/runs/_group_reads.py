"""What a group's workflow asks of its members' rows, each in the caller's transaction."""

from __future__ import annotations

from collections.abc import Mapping

from sqlalchemy import Connection, case, func, select

from agent_env.group_specs import GroupState
from agent_env.runs import queries
from agent_env.runs.tables import runs
from agent_env.status import LIVE, RunStatus


def state(connection: Connection, run_group_id: str) -> GroupState:
    """See ``RunIndex.group_state``."""
    is_waiting = (runs.c.status == RunStatus.QUEUED) & runs.c.workflow_run_id.is_not(None)
    counted = connection.execute(
        select(
            func.count(case((is_waiting, 1))).label("waiting"),
            func.count(case((runs.c.status.not_in(LIVE), 1))).label("ended"),
        ).where(runs.c.run_group_id == run_group_id)
    ).one()
    figures = queries.group(connection, run_group_id).figures
    return GroupState(
        waiting=counted.waiting,
        ended=counted.ended,
        scored=figures.n_scored,
        is_finished=figures.is_finished,
    )


def running(connection: Connection, run_group_id: str) -> Mapping[str, str]:
    """See ``RunIndex.running_members``."""
    rows = connection.execute(
        select(runs.c.run_id, runs.c.host).where(
            runs.c.run_group_id == run_group_id,
            runs.c.status == RunStatus.RUNNING,
            runs.c.host.is_not(None),
            runs.c.cancel_requested_at.is_not(None),
        )
    )
    return {row.run_id: row.host for row in rows}
