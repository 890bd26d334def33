"""Turns that wait for their player: what is open, what the player asks, and what it is told."""

import asyncio
from collections.abc import Sequence
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError, is_cancelled_exception

from activities.turns import TurnActivities
from agent_env.errors import bounded
from agent_env.results import StepReport
from agent_env.specs import EpisodeStart, Policy
from agent_env.task import StepSpec
from agent_env.turn_rules import Order, is_repeat, refusal
from agent_env.turns import (
    TURN_TIMEOUT,
    BeginTurn,
    EndTurn,
    LastRecord,
    NextTurn,
    OpenTurn,
    PlayTurn,
    Recorded,
    RecordTurn,
    TurnKey,
    TurnOffer,
    Usage,
    remaining_s,
)
from workflows import _calls
from workflows._faults import is_host_lost, root
from workflows._host import Host
from workflows._turn_reports import ended, timed_out

_MAX_POLLS = 4
"""Most callers that wait for a turn. The engine takes ten updates at a time, and one whose caller
died stays among them until it is answered."""


class _Turn:
    """An open turn, and what its player has asked for last."""

    def __init__(self, state: OpenTurn) -> None:
        self.state = state
        self.order: Order | None = None
        """What is under way."""
        self.answer: Recorded | None = None
        self.refusal: ApplicationError | None = None
        """Why what was asked for could not be done; the turn stays as it was."""
        self.is_over = False


class Turns:
    """The turns of one episode. Players speak through the updates of its workflow.

    Args:
        start: The episode; one that goes on in a new execution brings its open turns along.
    """

    def __init__(self, start: EpisodeStart) -> None:
        resumed = start.resumed
        self._start = start
        # What is asked of them may come before the workflow's code has run for the first time.
        self._open = {t.turn.step_id: _Turn(t) for t in resumed.turns} if resumed else {}
        self._polls: list[object] = []
        self._policy = Policy()
        self._updates = 0
        self._is_closed = False
        self.usage = resumed.usage if resumed else Usage()
        self.stand_alone = False
        """Whether nothing but turns is under way in the episode."""

    # -- what a player asks

    async def next(self, order: NextTurn) -> TurnOffer:
        """Wait for a turn that the caller does not hold, or until none will come.

        An offer of nothing means: ask again.
        """
        self._updates += 1
        poll = object()
        self._polls.append(poll)
        try:
            await workflow.wait_condition(
                lambda: (
                    self._is_closed
                    or self._offered(order) is not None
                    or self.must_continue
                    or poll not in self._polls[-_MAX_POLLS:]
                )
            )
        finally:
            self._polls.remove(poll)
        return TurnOffer(turn=self._offered(order), is_over=self._is_closed)

    def check(self, order: Order) -> None:
        """Refuse what can't be done; nothing is written of it.

        Raises:
            ApplicationError: of type ``Turn`` or ``TurnOver``.
        """
        turn = self._open.get(order.turn.step_id)
        if turn is None or turn.state.turn != order.turn or turn.is_over:
            raise _over(order)
        why = refusal(turn.state, order, is_busy=turn.order is not None)
        if why is not None:
            raise _refused(why)

    async def record(self, order: RecordTurn) -> Recorded:
        """Take a message up, and answer once its tools have run.

        Raises:
            ApplicationError: it could not be done, or the turn has ended meanwhile.
        """
        self._updates += 1
        turn = self._open[order.turn.step_id]
        if is_repeat(turn.state, order) and turn.state.last is not None:
            return turn.state.last.answer
        return await self._done(turn, order)

    async def end(self, order: EndTurn) -> None:
        """Take the last message up, and hand the turn back."""
        self._updates += 1
        await self._done(self._open[order.turn.step_id], order)

    async def _done(self, turn: _Turn, order: Order) -> Recorded:
        turn.order, turn.answer, turn.refusal = order, None, None
        await workflow.wait_condition(lambda: turn.order is not order or turn.is_over)
        if turn.refusal is not None:
            raise turn.refusal
        if turn.answer is None:
            raise _over(order)
        return turn.answer

    # -- what the episode does with a turn

    async def play(
        self, step: StepSpec, epoch: int, reports: Sequence[StepReport], host: Host
    ) -> StepReport:
        """Open a turn on a host and wait until it is ended. How its step ended.

        Raises:
            asyncio.CancelledError: it was stopped.
            FailureError: the host is lost, or the turn could not be begun at all.
        """
        self._policy = host.policy
        turn = self._open.get(step.id)
        if turn is None:
            begun = await self._begun(step, epoch, reports, host)
            if isinstance(begun, StepReport):
                return begun
            turn = self._open[step.id] = _Turn(begun)
        try:
            async with asyncio.timeout(remaining_s(turn.state, workflow.now())):
                return await self._played(turn, step, reports, host)
        except TimeoutError:
            return timed_out(step, turn.state)
        finally:
            turn.is_over = True
            self._open.pop(step.id, None)

    @property
    def needs_no_interrupt(self) -> frozenset[str]:
        """Steps whose turn just waits: nothing of them runs anywhere."""
        return frozenset(id for id, turn in self._open.items() if turn.order is None)

    def close(self) -> None:
        """No turn will come any more, and what is asked of an open one is answered."""
        self._is_closed = True
        for turn in self._open.values():
            turn.is_over = True

    @property
    def must_continue(self) -> bool:
        """Whether the history has grown so long that the episode goes on in a new execution."""
        if not self._open or not self.stand_alone:
            return False
        info = workflow.info()
        return (
            self._updates >= self._policy.max_updates
            or info.is_continue_as_new_suggested()
            or info.get_current_history_length() >= self._policy.max_events
        )

    @property
    def can_continue(self) -> bool:
        """Whether it can do so now: all that is open waits."""
        return (
            self.must_continue
            and all(turn.order is None and not turn.is_over for turn in self._open.values())
            and workflow.all_handlers_finished()
        )

    @property
    def states(self) -> tuple[OpenTurn, ...]:
        """The open turns, in the order they were opened."""
        return tuple(turn.state for turn in self._open.values())

    async def _begun(
        self, step: StepSpec, epoch: int, reports: Sequence[StepReport], host: Host
    ) -> OpenTurn | StepReport:
        order = BeginTurn(
            run_id=self._start.run_id,
            epoch=epoch,
            spec=step,
            seed=self._start.seed,
            reports=tuple(reports),
        )
        now = workflow.now()
        begun = await host.call(TurnActivities.begin_turn, order, _calls.BEGIN_TURN)
        if begun.failure is not None:
            times = {"started_at": now, "finished_at": workflow.now()}
            return begun.failure.model_copy(update=times)
        limit_s = step.timeout_seconds or TURN_TIMEOUT.total_seconds()
        opened_at = workflow.now()
        return OpenTurn(
            turn=TurnKey(step_id=step.id, epoch=epoch),
            agent=begun.agent,
            tools=begun.tools,
            tools_digest=begun.tools_digest,
            messages=begun.messages,
            opened_at=opened_at,
            deadline_at=opened_at + timedelta(seconds=limit_s),
        )

    async def _played(
        self, turn: _Turn, step: StepSpec, reports: Sequence[StepReport], host: Host
    ) -> StepReport:
        while True:
            await workflow.wait_condition(lambda: turn.order is not None)
            order = turn.order
            assert order is not None
            try:
                answer = await self._taken_up(turn, order, step, reports, host)
            except FailureError as error:
                if is_cancelled_exception(error):
                    # What `asyncio.timeout` takes for its own.
                    raise asyncio.CancelledError from error
                if is_host_lost(error):
                    raise
                turn.refusal = _unplayed(error)
                turn.order = None
                continue
            turn.answer, turn.order = answer, None
            if isinstance(order, EndTurn):
                return ended(step, turn.state, order)

    async def _taken_up(
        self, turn: _Turn, order: Order, step: StepSpec, reports: Sequence[StepReport], host: Host
    ) -> Recorded:
        """Have a message written down and its tools run."""
        record = order.record
        if record is None:
            return Recorded(messages=turn.state.messages)
        usage = self.usage.plus(record.usage)
        play = PlayTurn(
            run_id=self._start.run_id,
            epoch=turn.state.turn.epoch,
            spec=step,
            seed=self._start.seed,
            reports=tuple(reports),
            seq=order.seq,
            record=record,
            usage=usage,
            tool_timeout_s=order.tool_timeout_s if isinstance(order, RecordTurn) else 0,
        )
        answer = await host.call(TurnActivities.play_turn, play, _calls.PLAY_TURN)
        if answer.is_cut:
            raise asyncio.CancelledError
        self.usage = usage
        changes: dict[str, object] = {
            "messages": answer.messages,
            "model_calls": turn.state.model_calls + record.by_model,
            "last": LastRecord(seq=order.seq, digest=record.digest, answer=answer),
        }
        turn.state = turn.state.model_copy(update=changes)
        return answer

    def _offered(self, order: NextTurn) -> OpenTurn | None:
        for turn in self._open.values():
            if turn.order is None and not turn.is_over and turn.state.turn not in order.holding:
                return turn.state
        return None


def _refused(message: str) -> ApplicationError:
    return ApplicationError(message, type="Turn", non_retryable=True)


def _over(order: Order) -> ApplicationError:
    message = f"the turn of step {order.turn.step_id!r} is over"
    return ApplicationError(message, type="TurnOver", non_retryable=True)


def _unplayed(error: FailureError) -> ApplicationError:
    found = root(error)
    said = found.message if isinstance(found, FailureError) else str(found)
    return _refused(bounded(f"the message could not be taken up: {said}", 1_000))
