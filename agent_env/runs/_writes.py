"""Every write of one run's life, each in the caller's transaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import datetime

from sqlalchemy import Connection, bindparam, update

from agent_env.errors import ConflictError, RunNotFoundError, bounded
from agent_env.outcome import Outcome
from agent_env.results import SandboxRef, StepReport
from agent_env.runs import _dialect, queries
from agent_env.runs.records import (
    CancelAnswer,
    CancelState,
    End,
    Finished,
    NewRun,
    RunRecord,
    Succeeded,
)
from agent_env.runs.tables import run_groups, runs, steps
from agent_env.status import LIVE, RunStatus, StepStatus

FIRST_EPOCH = 1
_TEMPORAL = "Temporal"
"""Who asked for a cancel that came by no way of ours."""

Values = dict[str, object]
"""Of columns, by name."""

# Built once: building a statement takes longer than SQLite takes to run it.
_CHANGE = (
    update(runs)
    .where(runs.c.run_id == bindparam("this_run"), runs.c.status == bindparam("this_status"))
    .returning(runs)
)
_DROP_STEPS = update(steps).where(steps.c.run_id == bindparam("this_run"), ~steps.c.retried)


def open_run(
    connection: Connection, run: NewRun, *, host: str, room: int, at: datetime
) -> RunRecord:
    """See ``RunIndex.open_run``."""
    _dialect.lock_host(connection, host)
    has_room = queries.count_running(connection, host) < room
    place = _place(host, max(at, run.created_at)) if has_room else {}
    if (row := _inserted(connection, listed(run) | place)) is not None:
        return row
    row = _locked(connection, run.run_id)
    is_only_listed = row.workflow_run_id is None and _is_same_member(row, run)
    if is_only_listed and not row.status.is_finished:
        adopted: Values = {"workflow_run_id": run.workflow_run_id}
        begins = row.status is RunStatus.QUEUED and row.cancel_requested_at is None
        return _changed(connection, row, adopted | (place if begins else {}))
    if is_only_listed or row.workflow_run_id == run.workflow_run_id:
        return row
    raise ConflictError(taken(row))


def begin_run(
    connection: Connection, run_id: str, *, host: str, room: int, epoch: int, at: datetime
) -> RunRecord | None:
    """See ``RunIndex.begin_run``."""
    _dialect.lock_host(connection, host)
    row = _locked(connection, run_id)
    if row.status is not RunStatus.QUEUED or row.epoch > epoch:
        return row
    if row.cancel_requested_at is not None or queries.count_running(connection, host) >= room:
        return None
    place = _place(host, row.started_at or max(at, row.created_at))
    return _changed(connection, row, {**place, "epoch": epoch})


def requeue_run(connection: Connection, run_id: str, *, epoch: int) -> bool:
    """See ``RunIndex.requeue_run``."""
    moved = connection.execute(
        update(runs)
        .where(runs.c.run_id == run_id, runs.c.status.in_(LIVE), runs.c.epoch < epoch)
        .values(status=RunStatus.QUEUED, host=None, epoch=epoch, steps_done=0, current_step=None)
    )
    return moved.rowcount == 1


def record_steps(
    connection: Connection,
    run_id: str,
    reports: Sequence[StepReport],
    *,
    epoch: int,
    steps_done: int,
    current_step: str | None,
) -> None:
    """See ``RunIndex.record_steps``."""
    noted = connection.execute(
        update(runs)
        .where(runs.c.run_id == run_id, runs.c.status.in_(LIVE), runs.c.epoch <= epoch)
        .values(epoch=epoch, steps_done=steps_done, current_step=current_step)
    )
    if noted.rowcount == 1:
        _write_steps(connection, run_id, reports)


def finish_run(
    connection: Connection, finished: Finished, *, at: datetime
) -> tuple[RunRecord, bool]:
    """See ``RunIndex.finish_run``."""
    run_id = finished.run.run_id
    row = queries.find(connection, run_id, lock=True)
    if row is None:
        row = _inserted(connection, _restored(finished, at))
        if row is None:  # another writer was faster
            return finish_run(connection, finished, at=at)
    elif row.status.is_finished:
        return row, False
    else:
        end = _end(finished, row, at)
        if row.workflow_run_id is None:
            end["workflow_run_id"] = finished.run.workflow_run_id
        return _ended(connection, finished, row, end), True
    _write_steps(connection, run_id, finished.reports)
    return row, True


def succeed_run(connection: Connection, done: Succeeded, *, at: datetime) -> RunRecord | None:
    """See ``RunIndex.succeed_run``."""
    row = queries.find(connection, done.run_id, lock=True)
    if row is None or row.workflow_run_id != done.workflow_run_id:
        return None
    if row.status.is_finished:
        return row
    if row.host != done.host or row.epoch > done.epoch:
        return None
    return _ended(connection, done, row, _end(done, row, at))


def overrule_run(
    connection: Connection, row: RunRecord, outcome: Outcome, *, at: datetime
) -> RunRecord:
    """Have a run that has ended read otherwise: see ``RunIndex.end_run``.

    What it scored, when it ended and what it left up stay: all that is as true as before.
    """
    return _changed(connection, row, _how(outcome) | _unasked(outcome, row, at))


def _ended(connection: Connection, end: End, row: RunRecord, values: Values) -> RunRecord:
    row = _changed(connection, row, values)
    # What was written live, and is not in the record, counts for nothing.
    connection.execute(_DROP_STEPS, {"this_run": row.run_id, "retried": True})
    _write_steps(connection, row.run_id, end.reports)
    return row


def restore_run(connection: Connection, run: NewRun, *, host: str | None, at: datetime) -> bool:
    """See ``RunIndex.restore_run``."""
    place = {} if host is None else _place(host, max(at, run.created_at))
    return _inserted(connection, listed(run) | place) is not None


def request_cancel(
    connection: Connection, run_id: str, *, by: str, reason: str, at: datetime
) -> CancelAnswer:
    """See ``RunIndex.request_cancel``."""
    row = _locked(connection, run_id)
    if row.status.is_finished:
        return CancelAnswer(state=CancelState.FINISHED, run=row)
    if row.cancel_requested_at is not None:
        return CancelAnswer(state=CancelState.ALREADY_ASKED, run=row)
    row = _changed(connection, row, cancel_request(by, reason, at))
    return CancelAnswer(state=CancelState.ASKED, run=row)


def cancel_request(by: str, reason: str, at: datetime) -> Values:
    """The columns of a request."""
    return {
        "cancel_requested_at": at,
        "cancel_requested_by": by,
        "cancel_requested_reason": bounded(reason.strip()),
    }


def listed(run: NewRun) -> Values:
    """The columns of a run that is QUEUED."""
    return {
        "run_id": run.run_id,
        "instance_id": run.instance_id or run.run_id,
        "runner": "episode",
        "task_id": run.task_id,
        "task_version": run.task_version,
        "run_group_id": run.run_group_id,
        "member_index": run.member_index,
        "status": RunStatus.QUEUED,
        "created_at": run.created_at,
        "started_at": None,
        "host": None,
        "scores": {},
        "steps_total": run.steps_total,
        "steps_done": 0,
        "epoch": FIRST_EPOCH,
        "still_up": [],
        "seed": dict(run.seed),
        "tags": dict(run.tags),
        "workflow_run_id": run.workflow_run_id,
        "namespace": run.namespace,
    }


def taken(row: RunRecord) -> str:
    """What to say to another who wants the id of this row."""
    workflow = f"workflow run {row.workflow_run_id}" if row.workflow_run_id else "no workflow yet"
    return (
        f"the run id {row.run_id!r} is taken by a run of {row.created_at.isoformat()}"
        f" ({row.status}, {workflow}); choose another id"
    )


def _is_same_member(row: RunRecord, run: NewRun) -> bool:
    return (row.run_group_id, row.member_index) == (run.run_group_id, run.member_index)


def _place(host: str, started_at: datetime) -> Values:
    return {"status": RunStatus.RUNNING, "host": host, "started_at": started_at}


def _restored(finished: Finished, at: datetime) -> Values:
    """The columns of a run that ended and is not listed: as much as is still known."""
    begun = [report.started_at for report in finished.reports if report.started_at is not None]
    row = listed(finished.run)
    return {**row, **_end(finished, None, at), "started_at": min(begun, default=None)}


def _end(finished: End, row: RunRecord | None, at: datetime) -> Values:
    """The columns that say how a run ended."""
    outcome = finished.outcome
    counted = [report.status for report in finished.reports if not report.retried]
    earlier = [] if row is None else [time for time in (row.created_at, row.started_at) if time]
    end: Values = {
        **_how(outcome),
        # Another machine's clock may be ahead of this one: nothing ends before it began.
        "finished_at": max([at, *earlier]),
        "reward": outcome.reward,
        "scores": dict(outcome.scores),
        "still_up": _refs(finished.still_up),
        "steps_done": sum(s in (StepStatus.COMPLETED, StepStatus.FAILED) for s in counted),
        "current_step": None,
        "epoch": finished.epoch if row is None else max(finished.epoch, row.epoch),
    }
    return end | _unasked(outcome, row, at)


def _how(outcome: Outcome) -> Values:
    return {
        "status": outcome.status,
        "error_type": outcome.error_type,
        "error": None if outcome.error is None else bounded(outcome.error),
    }


def _unasked(outcome: Outcome, row: RunRecord | None, at: datetime) -> Values:
    """The request for a cancel that nobody has put on the row."""
    is_unasked = row is None or row.cancel_requested_at is None
    if outcome.status is RunStatus.CANCELED and is_unasked:
        return cancel_request(_TEMPORAL, outcome.error or "", at)
    return {}


def _write_steps(connection: Connection, run_id: str, reports: Sequence[StepReport]) -> None:
    rows = {(report.epoch, report.step_id): _step(run_id, report) for report in reports}
    if rows:
        statement = _dialect.insert_or_replace(connection.dialect.name, steps)
        connection.execute(statement, list(rows.values()))


def _step(run_id: str, report: StepReport) -> Values:
    return {
        "run_id": run_id,
        "epoch": report.epoch,
        "step_id": report.step_id,
        "type": report.type,
        "status": report.status,
        "started_at": report.started_at,
        "finished_at": report.finished_at,
        "error_type": report.error_type,
        "error": None if report.error is None else bounded(report.error),
        "score": report.score,
        "output": report.output,
        "sandboxes": _refs(report.sandboxes),
        "retried": report.retried,
    }


def _refs(refs: Sequence[SandboxRef]) -> list[Values]:
    return [{**ref.model_dump(), "created_at": ref.created_at.isoformat()} for ref in refs]


def _inserted(connection: Connection, values: Values) -> RunRecord | None:
    """List the run, and the group that it names; None if its id is taken."""
    dialect = connection.dialect.name
    found = connection.execute(_dialect.insert_new(dialect, runs), values).mappings().first()
    if found is None:
        return None
    if values["run_group_id"] is not None:
        group = {key: values[key] for key in ("run_group_id", "task_id", "created_at")}
        connection.execute(_dialect.insert_missing(dialect, run_groups), {**group, "size": None})
    return queries.run_record(found)


def _locked(connection: Connection, run_id: str) -> RunRecord:
    row = queries.find(connection, run_id, lock=True)
    if row is None:
        raise RunNotFoundError(queries.no_run(run_id))
    return row


def _changed(connection: Connection, row: RunRecord, values: Values) -> RunRecord:
    """The row after it was changed. ``row`` is locked, so it is still as it was read."""
    this: Values = {"this_run": row.run_id, "this_status": row.status}
    return queries.run_record(connection.execute(_CHANGE, values | this).mappings().one())
