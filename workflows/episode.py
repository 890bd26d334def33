"""One episode: list it, begin it, run its steps, tear down, record how it ended."""

import asyncio
from datetime import datetime, timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

with workflow.unsafe.imports_passed_through():
    from activities.finish import FinishActivities
    from activities.groups import GroupActivities
    from activities.records import RecordActivities
    from agent_env import names
    from agent_env.group_specs import CancelRuns
    from agent_env.outcome import Fault, Outcome
    from agent_env.outcome import outcome as decided
    from agent_env.results import EpisodeResult
    from agent_env.specs import BeginRun, EpisodeStart, Finish, OpenRun, Placement, Resumed
    from agent_env.status import RunStatus
    from agent_env.turns import EndTurn, NextTurn, OpenTurns, Recorded, RecordTurn, TurnOffer
    from workflows import _calls
    from workflows._faults import fault_of, is_host_lost, root, unlisted
    from workflows._host import Host
    from workflows._play import HistoryFullError, HostLostError, Play
    from workflows._shield import shielded
    from workflows.turns import Turns


@workflow.defn(name=names.EPISODE)
class EpisodeWorkflow:
    """Runs one episode, whatever happens to the worker.

    The outcome is decided once; then teardown and the row follow on every path, and the workflow
    closes as the row does.
    """

    @workflow.init
    def __init__(self, start: EpisodeStart) -> None:
        resumed = start.resumed
        self._start = start
        self._turns = Turns(start)
        self._play = Play(start, self._turns)
        self._created_at: datetime = resumed.created_at if resumed else workflow.now()
        self._deadline_at = resumed.deadline_at if resumed else None
        self._losses = resumed.losses if resumed else 0
        self._placement: Placement | None = resumed.placement if resumed else None
        self._host = Host(resumed.placement) if resumed else None
        self._refusal: ApplicationError | None = None
        self._outcome: Outcome | None = None

    @workflow.run
    async def run(self, start: EpisodeStart) -> EpisodeResult:
        """Play the episode.

        Raises:
            ApplicationError: it FAILED; its detail is the EpisodeResult. Or it could not be listed.
            asyncio.CancelledError: it was CANCELED.
        """
        fault: Fault | None = None
        try:
            fault = await self._run()
        except asyncio.CancelledError:
            pass  # the reason is asked for below
        except HistoryFullError:
            workflow.continue_as_new(start.model_copy(update={"resumed": self._resumed()}))
        except Exception as error:
            fault = fault_of(error)
        self._turns.close()
        if self._refusal is not None:
            await workflow.wait_condition(workflow.all_handlers_finished)
            raise self._refusal
        self._outcome = self._play.outcome or decided(
            start.task,
            self._play.reports,
            fault=fault,
            cancellation=workflow.cancellation_reason(),
        )
        result = self._play.ended or await shielded(self._finish(self._outcome))
        self._placement = self._placement or Placement(host=None, finished=True)
        await shielded(workflow.wait_condition(workflow.all_handlers_finished))
        if result.status is RunStatus.CANCELED and workflow.cancellation_reason() is None:
            await shielded(self._cancel_itself(result.error or ""))
        return _closed(result)

    @workflow.update(name=names.LISTED)
    async def listed(self) -> Placement:
        """Answer once the row exists, or fail with what kept it from existing."""
        await workflow.wait_condition(lambda: bool(self._placement or self._refusal))
        if self._refusal is not None:
            raise self._refusal
        assert self._placement is not None
        return self._placement

    @workflow.update(name=names.OUTCOME)
    async def outcome_known(self) -> Outcome:
        """Answer as soon as the outcome is known, before teardown."""
        await workflow.wait_condition(
            lambda: bool(self._outcome or self._refusal or self._turns.must_continue)
        )
        if self._refusal is not None:
            raise self._refusal
        if self._outcome is None:
            raise ApplicationError("ask again", type=names.ASK_AGAIN, non_retryable=True)
        return self._outcome

    @workflow.update(name=names.NEXT_TURN)
    async def next_turn(self, order: NextTurn) -> TurnOffer:
        """Answer with an open turn that the caller does not hold, or once none will come."""
        return await self._turns.next(order)

    @workflow.update(name=names.RECORD_TURN)
    async def record_turn(self, order: RecordTurn) -> Recorded:
        """Take up a message of a turn's player, and answer once its tools have run."""
        return await self._turns.record(order)

    @record_turn.validator
    def check_record(self, order: RecordTurn) -> None:
        """Refuse a message that is not the turn's next one."""
        self._turns.check(order)

    @workflow.update(name=names.END_TURN)
    async def end_turn(self, order: EndTurn) -> None:
        """Hand a turn back."""
        await self._turns.end(order)

    @end_turn.validator
    def check_end(self, order: EndTurn) -> None:
        """Refuse the end of a turn that is not at its end."""
        self._turns.check(order)

    @workflow.query(name=names.OPEN_TURNS)
    def open_turns(self) -> OpenTurns:
        """Which turns are open."""
        return OpenTurns(turns=tuple(state.turn for state in self._turns.states))

    async def _run(self) -> Fault | None:
        """List it and play it. What ended it, other than its steps."""
        if workflow.cancellation_reason() is not None:
            return None  # canceled before the first task: `finish` lists it
        if self._start.resumed is None:
            await shielded(self._open())
        if self._refusal is not None:
            return None
        try:
            async with asyncio.timeout(self._time_left_s()):
                return await self._play_on_hosts()
        except TimeoutError:
            return Fault(
                type="DeadlineExceeded",
                message=f"the episode took longer than {self._start.deadline_s:g} s",
            )

    async def _play_on_hosts(self) -> Fault | None:
        """Play on the host that took it; when that is lost, begin again on another."""
        placement = self._listed_at()
        while not placement.finished:
            if placement.host is None:
                self._placement = placement = await self._begin()
            self._host = Host(placement)
            try:
                await self._play.on(self._host)
            except HostLostError:
                self._losses += 1
                if self._losses > placement.policy.max_host_losses:
                    return Fault(
                        type="HostLost", message=f"host {placement.host!r} stopped answering"
                    )
                self._play.start_over()
                self._host = None
                self._placement = placement = placement.model_copy(update={"host": None})
            else:
                return None
        return None

    def _time_left_s(self) -> float | None:
        """Seconds until the episode's deadline."""
        if self._deadline_at is not None:
            return max(0.0, (self._deadline_at - workflow.now()).total_seconds())
        limit_s = self._start.deadline_s
        if limit_s is not None:
            self._deadline_at = workflow.now() + timedelta(seconds=limit_s)
        return limit_s

    def _resumed(self) -> Resumed:
        """What a new execution goes on from."""
        # Another worker may run it, so that nothing comes to the right one without a queue.
        placement = self._listed_at().model_copy(update={"eager": False})
        return Resumed(
            created_at=self._created_at,
            placement=placement,
            losses=self._losses,
            epoch=self._play.epoch,
            reports=self._play.reports,
            destroy=self._play.destroy,
            turns=self._turns.states,
            usage=self._turns.usage,
            deadline_at=self._deadline_at,
        )

    async def _open(self) -> None:
        """List the run. A refusal ends the workflow, unless a group has listed the run already."""
        order = OpenRun(
            start=self._start,
            workflow_run_id=workflow.info().run_id,
            namespace=workflow.info().namespace,
            created_at=self._created_at,
        )
        try:
            self._placement = await workflow.execute_local_activity_method(
                RecordActivities.open, order, **_calls.OPEN
            )
        except FailureError as error:
            cause = root(error)
            if self._start.member_index is not None and not _is_conflict(cause):
                self._placement = Placement(host=None)  # `begin` waits until the index is back
                return
            fault = unlisted(error)
            self._refusal = ApplicationError(fault.message, type=fault.type, non_retryable=True)

    async def _begin(self) -> Placement:
        """Wait for a host with room to take it.

        Raises:
            asyncio.CancelledError: asked to cancel, or past the deadline.
        """
        try:
            return await workflow.execute_activity_method(
                RecordActivities.begin,
                BeginRun(run_id=self._start.run_id, epoch=self._play.epoch),
                **_calls.on(
                    names.TASK_QUEUE,
                    _calls.BEGIN,
                    fair_to=self._start.run_group_id or self._start.run_id,
                ),
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                # What `asyncio.timeout` takes for its own.
                raise asyncio.CancelledError from error
            raise

    async def _finish(self, ended: Outcome) -> EpisodeResult:
        """Tear down, then write how it ended: on the host that has the sandboxes, else anywhere."""
        order = Finish(
            start=self._start,
            workflow_run_id=workflow.info().run_id,
            namespace=workflow.info().namespace,
            created_at=self._created_at,
            epoch=self._play.epoch,
            outcome=ended,
            reports=self._play.reports,
        )
        if self._host is not None:
            try:
                return await self._host.call(FinishActivities.finish, order, _calls.FINISH)
            except FailureError as error:
                if not is_host_lost(error):
                    raise
        return await workflow.execute_activity_method(
            FinishActivities.finish, order, **_calls.on(names.CONTROL_QUEUE, _calls.FINISH)
        )

    async def _cancel_itself(self, reason: str) -> None:
        """The row was ended as CANCELED from outside: only one that was asked to can close so."""
        await workflow.execute_activity_method(
            GroupActivities.cancel_runs,
            CancelRuns(run_ids=(self._start.run_id,), reason=reason),
            **_calls.on(names.CONTROL_QUEUE, _calls.CANCEL_RUNS),
        )
        await workflow.wait_condition(lambda: workflow.cancellation_reason() is not None)

    def _listed_at(self) -> Placement:
        assert self._placement is not None
        return self._placement


def _is_conflict(error: BaseException) -> bool:
    return isinstance(error, ApplicationError) and error.type == "Conflict"


def _closed(result: EpisodeResult) -> EpisodeResult:
    """Close the workflow as the row is."""
    if result.status is RunStatus.COMPLETED:
        return result
    if result.status is RunStatus.CANCELED:
        raise asyncio.CancelledError(result.error or "")
    raise ApplicationError(result.error or "", result, type=result.error_type, non_retryable=True)
