"""What a janitor asks of runs, many at once, and what it writes: that something is gone."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from typing import Any

from sqlalchemy import Connection, bindparam, select, update

from agent_env.results import SandboxRef
from agent_env.runs.records import RunPlace, StillUp
from agent_env.runs.tables import has_still_up, runs
from agent_env.status import RunStatus

MOST_IDS = 5_000
"""In one statement: SQLite takes 32,766 parameters."""

# Built once: building a statement takes longer than SQLite takes to run it.
_PLACES = select(runs.c.run_id, runs.c.status, runs.c.host, runs.c.epoch).where(
    runs.c.run_id.in_(bindparam("run_ids", expanding=True))
)
_STILL_UP = (
    select(runs.c.run_id, runs.c.host, runs.c.still_up)
    .where(has_still_up, runs.c.run_id > bindparam("after"))
    .order_by(runs.c.run_id)
    .limit(bindparam("limit"))
)
_NAMED = select(runs.c.still_up).where(runs.c.run_id == bindparam("run_id")).with_for_update()


def places(connection: Connection, run_ids: Sequence[str]) -> Mapping[str, RunPlace]:
    """See ``RunIndex.places``."""
    found: dict[str, RunPlace] = {}
    for start in range(0, len(run_ids), MOST_IDS):
        ids = run_ids[start : start + MOST_IDS]
        for row in connection.execute(_PLACES, {"run_ids": ids}):
            found[row.run_id] = RunPlace(RunStatus(row.status), row.host, row.epoch)
    return found


def still_up(connection: Connection, *, after: str, limit: int) -> tuple[StillUp, ...]:
    """See ``RunIndex.still_up``."""
    rows = connection.execute(_STILL_UP, {"after": after, "limit": limit})
    return tuple(
        StillUp(row.run_id, row.host, tuple(SandboxRef.model_validate(ref) for ref in row.still_up))
        for row in rows
    )


def record_destroyed(connection: Connection, run_id: str, refs: Collection[SandboxRef]) -> bool:
    """See ``RunIndex.record_destroyed``."""
    named: list[dict[str, Any]] = connection.execute(_NAMED, {"run_id": run_id}).scalar() or []
    gone = {(ref.type, ref.id) for ref in refs}
    left = [ref for ref in named if (ref["type"], ref["id"]) not in gone]
    if len(left) == len(named):
        return False
    connection.execute(update(runs).where(runs.c.run_id == run_id).values(still_up=left))
    return True
