"""Every write of the run index, and the way to its reads."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from datetime import datetime

from agent_env.disagreements import ComparedRun
from agent_env.group_specs import GroupState, Rerun
from agent_env.results import GroupResult, SandboxRef, StepReport
from agent_env.runs import (
    _group_reads,
    _group_writes,
    _leftovers,
    _reconcile,
    _writes,
    queries,
    schema,
)
from agent_env.runs._database import Database
from agent_env.runs.conversations import Conversations
from agent_env.runs.lists import GroupPage, RunCursor, RunFilter, RunPage
from agent_env.runs.reads import IndexReads
from agent_env.runs.records import (
    CancelAnswer,
    Ended,
    Finished,
    GroupRecord,
    NewRun,
    RunPlace,
    RunRecord,
    StillUp,
    Succeeded,
)
from agent_env.status import RunStatus


class RunIndex:
    """The index in one database. Thread-safe; every method blocks, so call it from a thread.

    Every method raises IndexUnavailableError when the database does not answer or refuses, after
    retrying a busy SQLite for up to 30 s itself. The message never holds a password.
    """

    def __init__(self, database: Database) -> None:
        self._database = database
        self.reads = IndexReads(database)
        """What only the explorer asks."""

    @classmethod
    def open(cls, url: str, *, migrate: bool | None = None) -> RunIndex:
        """Connect, and bring the schema up to date.

        Args:
            url: SQLAlchemy URL.
            migrate: None means "on SQLite yes, elsewhere only what is empty".

        Raises:
            IndexUnavailableError: no connection, or the database can't be written.
            ConfigError: the schema is older or newer than this code; the message says what to run.
        """
        database = Database(url)
        try:
            schema.prepare(database, migrate=migrate)
        except BaseException:
            database.close()
            raise
        return cls(database)

    def close(self) -> None:
        """Give every connection back."""
        self._database.close()

    @property
    def conversations(self) -> Conversations:
        """What is said in the turns of runs."""
        return Conversations(self._database)

    # -- an episode's life, in order; each compares before it sets and may run twice

    def open_run(self, run: NewRun, *, host: str, room: int, at: datetime) -> RunRecord:
        """List the run: RUNNING on this host while fewer than ``room`` are there, else QUEUED.

        In one transaction, so no count can drift. A row that was listed for a group's member
        without a workflow is adopted, and stays QUEUED if a cancel was asked for; a row of the same
        workflow is returned as it is (a finished one too).

        Raises:
            ConflictError: another run has the id; names its status, start and workflow.
        """
        return self._database.write(_writes.open_run, run, host=host, room=room, at=at)

    def begin_run(
        self, run_id: str, *, host: str, room: int, epoch: int, at: datetime
    ) -> RunRecord | None:
        """Take a QUEUED run for this host; None when the host is full, or a cancel was asked for.

        A run this host has already begun in this epoch, and a finished one, is returned as it is.

        Raises:
            RunNotFoundError: there is no such row.
        """
        return self._database.write(
            _writes.begin_run, run_id, host=host, room=room, epoch=epoch, at=at
        )

    def requeue_run(self, run_id: str, *, epoch: int) -> bool:
        """Put a live run whose host is lost back to QUEUED, in a later epoch.

        Returns:
            False if it is in that epoch already, has finished, or does not exist.
        """
        return self._database.write(_writes.requeue_run, run_id, epoch=epoch)

    def record_steps(
        self,
        run_id: str,
        reports: Sequence[StepReport],
        *,
        epoch: int,
        steps_done: int,
        current_step: str | None,
    ) -> None:
        """Progress of a live run: ignored from an older epoch, and once the run has finished."""
        self._database.write(
            _writes.record_steps,
            run_id,
            reports,
            epoch=epoch,
            steps_done=steps_done,
            current_step=current_step,
        )

    def finish_run(self, finished: Finished, *, at: datetime) -> tuple[RunRecord, bool]:
        """Write how a run ended, with its steps, in one transaction; list it if its row is missing.

        The first end stands.

        Returns:
            The row as it is now, and whether this call moved it.
        """
        return self._database.write(_writes.finish_run, finished, at=at)

    def succeed_run(self, done: Succeeded, *, at: datetime) -> RunRecord | None:
        """Write that a run ended well, with its steps, where it ran: one write of its whole end.

        Returns:
            The row as it is now, by this call or an earlier one. None, and nothing is written, when
            it is for its workflow to say: the row is another host's or a later epoch's by now, or
            there is none.
        """
        return self._database.write(_writes.succeed_run, done, at=at)

    def record_destroyed(self, run_id: str, refs: Collection[SandboxRef]) -> bool:
        """Take what has been destroyed from what a run names as still up.

        Returns:
            False if it names none of these, or there is no such row.
        """
        return self._database.write(_leftovers.record_destroyed, run_id, refs)

    def end_run(self, ended: Ended, *, at: datetime) -> tuple[RunRecord, bool]:
        """Write how a run ended whose workflow did not; its steps stay as they were recorded.

        Nothing is written when it belongs to another workflow than ``ended`` says; nor when it has
        finished, unless ``ended`` overrules that: then only its status and why it has that change.

        Returns:
            The row as it is now, and whether this call moved it.

        Raises:
            RunNotFoundError: there is no such row.
        """
        return self._database.write(_reconcile.end_run, ended, at=at)

    def restore_run(self, run: NewRun, *, host: str | None, at: datetime) -> bool:
        """List a run that is under way and has no row: RUNNING on ``host``, or QUEUED without one.

        Returns:
            False if there is a row.
        """
        return self._database.write(_writes.restore_run, run, host=host, at=at)

    def request_cancel(self, run_id: str, *, by: str, reason: str, at: datetime) -> CancelAnswer:
        """Record that somebody asked. The first request stands.

        Raises:
            RunNotFoundError: there is no such row.
        """
        return self._database.write(_writes.request_cancel, run_id, by=by, reason=reason, at=at)

    # -- groups

    def open_group(self, group: GroupRecord, members: Sequence[NewRun]) -> None:
        """List a group and all its members as QUEUED, in one transaction.

        Repeating it changes nothing.

        Raises:
            ConflictError: the group's id or a member's is taken by something else, or two members
                have one id or index.
        """
        self._database.write(_group_writes.open_group, group, members)

    def request_group_cancel(self, run_group_id: str, *, by: str, reason: str, at: datetime) -> int:
        """Record a request on every live member that has none; ends nothing.

        Returns:
            How many live members there were.

        Raises:
            RunNotFoundError: nothing has that group id.
        """
        return self._database.write(
            _group_writes.request_group_cancel, run_group_id, by=by, reason=reason, at=at
        )

    def cancel_group(
        self, run_group_id: str, *, by: str, reason: str, at: datetime
    ) -> tuple[int, int]:
        """Record a request on every live member that has none, and end those without a workflow.

        Returns:
            How many live members there were, and how many of those were ended here.
        """
        return self._database.write(
            _group_writes.cancel_group, run_group_id, by=by, reason=reason, at=at
        )

    def list_member(self, run: NewRun) -> Rerun:
        """List a run that replaces the latest one of its member; asked twice, it is listed once.

        Its id is made from the group's. A member that no workflow has begun is left as it is.

        Raises:
            RunNotFoundError: the group has no member of this index.
            ConflictError: the id is taken by a run that is not of this group.
        """
        return self._database.write(_group_writes.list_member, run)

    # -- reads

    def ended_runs(self, namespace: str, run_ids: Sequence[str]) -> tuple[ComparedRun, ...]:
        """Those of these runs of a Temporal namespace that have ended. One query for many."""
        return self._database.read(_reconcile.ended_runs, namespace, run_ids)

    def count_running(self, host: str) -> int:
        """Live runs of a host: what its room is counted by."""
        return self._database.read(queries.count_running, host)

    def live_runs(
        self,
        namespace: str,
        status: RunStatus,
        *,
        after: RunCursor | None = None,
        limit: int = 500,
    ) -> tuple[ComparedRun, ...]:
        """Live runs of a Temporal namespace with this status, oldest first, cut by key."""
        return self._database.read(
            _reconcile.live_runs, namespace, status, after=after, limit=limit
        )

    def get(self, run_id: str) -> RunRecord:
        """One run.

        Raises:
            RunNotFoundError: there is no such row.
        """
        return self._database.read(queries.get, run_id)

    def places(self, run_ids: Sequence[str]) -> Mapping[str, RunPlace]:
        """Where each of these runs is; an id without a row is left out. One query for many."""
        return self._database.read(_leftovers.places, run_ids)

    def still_up(self, *, after: str = "", limit: int = 500) -> tuple[StillUp, ...]:
        """Runs that name something as still up, by id; the next page starts after the last one."""
        return self._database.read(_leftovers.still_up, after=after, limit=limit)

    def steps(self, run_id: str) -> tuple[StepReport, ...]:
        """A run's steps, in order of epoch and start; those never started last."""
        return self._database.read(queries.step_reports, run_id)

    def page(self, where: RunFilter, *, after: RunCursor | None = None, limit: int = 50) -> RunPage:
        """One page of runs, newest first, cut by key. ``limit`` is 1 to 500."""
        return self._database.read(queries.page, where, after=after, limit=limit)

    def members(self, run_group_id: str) -> tuple[RunRecord, ...]:
        """A group's runs: by member index, then by creation. A re-run replaces what it re-ran."""
        return self._database.read(queries.members, run_group_id)

    def group_result(self, run_group_id: str) -> GroupResult:
        """A group as a trainer sees it: its members and the figures over them.

        Raises:
            RunNotFoundError: nothing has that group id.
        """
        return self._database.read(queries.group_result, run_group_id)

    def group(self, run_group_id: str) -> GroupRecord:
        """One group with figures computed in SQL; also a group that only single episodes name.

        Raises:
            RunNotFoundError: nothing has that group id.
        """
        return self._database.read(queries.group, run_group_id)

    def group_state(self, run_group_id: str) -> GroupState:
        """How many members wait for a host, have a reward and have ended. Cheap, for polling."""
        return self._database.read(_group_reads.state, run_group_id)

    def running_members(self, run_group_id: str) -> Mapping[str, str]:
        """Runs of the group that are asked to cancel and still run: their hosts, by run id."""
        return self._database.read(_group_reads.running, run_group_id)

    def groups(self, *, after: RunCursor | None = None, limit: int = 50) -> GroupPage:
        """One page of groups, newest first, figures for the groups on the page only."""
        return self._database.read(queries.groups, after=after, limit=limit)
