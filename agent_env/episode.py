"""One episode, as a trainer asks for it and as it watches it."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError, RPCStatusCode

from agent_env import names
from agent_env._executions import overruling
from agent_env._held_turns import ASK_AGAIN_S, HeldTurns
from agent_env._players import played, prompts
from agent_env._unlisted import list_unlisted
from agent_env.errors import RunNotFoundError
from agent_env.outcome import Outcome
from agent_env.results import EpisodeResult
from agent_env.runs import CancelAnswer, RunIndex, RunRecord
from agent_env.runs.records import CancelState
from agent_env.steps import Steps
from agent_env.task import Task
from agent_env.turn import Turn

if TYPE_CHECKING:
    from agent_env.trainer import Trainer

_POLL_S = 1.0
"""How often a row is read while something else than the workflow will end it."""


@dataclass(frozen=True)
class EpisodeSpec:
    """What to play: a checked task and how. Starts any number of episodes."""

    task: Task
    seed: Mapping[str, str] = field(default_factory=dict[str, str])
    """What ``<key>`` in the steps' parameters is replaced with."""
    tags: Mapping[str, str] = field(default_factory=dict[str, str])
    deadline: timedelta | None = None
    """Longest time from the start to the outcome. None means the task's own, or no limit."""
    trainer_agents: tuple[str, ...] = ()
    """Agents whose turns the trainer plays."""

    @property
    def prompts(self) -> tuple[tuple[str, str | None], ...]:
        """Prompt and system prompt of each turn that the trainer plays, in the task's order."""
        return prompts(self.task, self.seed)

    @classmethod
    def from_task(
        cls,
        task: Task,
        *,
        seed: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: timedelta | None = None,
        trainer_agents: Sequence[str] | None = None,
        turn_timeout: float | timedelta | None = None,
        steps: Steps | None = None,
    ) -> EpisodeSpec:
        """Check everything that can be known before a run.

        Args:
            task: What to play.
            seed: Values for the task's ``<key>`` places. None means a ``seed`` of 0.
            tags: Labels, to find runs by.
            deadline: Longest time from the start to the outcome.
            trainer_agents: Agents whose turns the trainer plays. None means the only one that the
                task prompts.
            turn_timeout: Longest each of their turns may be open, in seconds. None means what its
                step says, or an hour.
            steps: Step types beside the built-in and installed ones.

        Raises:
            InvalidSpecError: with every problem of the task, each naming its step and field; also
                when nobody would play one of its turns.
        """
        seed = {"seed": "0"} if seed is None else dict(seed)
        checked = (steps or Steps()).check(task, seed)
        agents, checked = played(checked, seed, trainer_agents, turn_timeout)
        return cls(checked, seed, dict(tags or {}), deadline, agents)

    async def start(
        self,
        *,
        run_id: str | None = None,
        run_group_id: str | None = None,
        trainer: Trainer | None = None,
    ) -> Episode:
        """Start one episode with the trainer that is entered, or with this one.

        See ``Trainer.start`` for arguments and errors.
        """
        from agent_env.trainer import current_trainer

        chosen = trainer or current_trainer()
        return await chosen.start(self, run_id=run_id, run_group_id=run_group_id)


class Episode:
    """One episode, started or found again by its id. Drop it, attach anew: nothing is lost.

    Canceling a caller of any of its methods cancels that call, never the episode.
    """

    def __init__(
        self,
        run_id: str,
        handle: WorkflowHandle[object, EpisodeResult],
        index: RunIndex,
        client: Client,
    ) -> None:
        self.run_id = run_id
        self._client = client
        self._handle = handle
        self._index = index
        self._turns = HeldTurns(run_id, handle, index)

    @classmethod
    def attach(cls, run_id: str, *, trainer: Trainer | None = None) -> Episode:
        """An episode by its id, from any process, with the trainer that is entered or this one.

        Nothing is asked until it is used. Its ``next_turn()`` hands out the turns that are open.
        """
        from agent_env.trainer import current_trainer

        return (trainer or current_trainer()).attach(run_id)

    @property
    def finished(self) -> bool:
        """Whether it has ended, teardown included. Reads its row; ``result()`` is at once then."""
        return self._index.get(self.run_id).status.is_finished

    async def next_turn(self) -> Turn | None:
        """The next turn that this object does not hold, once there is one; None after the end.

        A turn that another process held, or holds, is handed out with all that was recorded.

        Raises:
            UnavailableError: Temporal has not answered for minutes. Safe to retry.
            IndexUnavailableError: the run index does not answer. Safe to retry.
        """
        turn = await self._turns.next()
        if turn is None:
            await self._ended()
        return turn

    async def abandon(self, reason: str) -> None:
        """Cancel the episode, and wait for its teardown. One that has ended stays as it is."""
        await self.cancel(reason)
        await self._ended()

    async def record(self) -> RunRecord:
        """The episode's row as it is now.

        Raises:
            RunNotFoundError: there is no such row.
            IndexUnavailableError: the run index does not answer. Safe to retry.
        """
        return await asyncio.to_thread(self._index.get, self.run_id)

    async def result(self, *, teardown: bool = True) -> EpisodeResult:
        """Wait for the episode's end. A failed or canceled one is a result, never an exception.

        Args:
            teardown: False answers as soon as the outcome is known, while teardown goes on; such a
                result has no times.

        Raises:
            TurnError: a turn that this object holds is not ended, so the end would never come.
            UnavailableError: Temporal has not answered for minutes. Safe to retry.
            IndexUnavailableError: the run index does not answer. Safe to retry.
        """
        await self._turns.refuse_open()
        return await self._ended(teardown=teardown)

    async def _ended(self, *, teardown: bool = True) -> EpisodeResult:
        if not teardown and (early := await self._outcome()) is not None:
            return early
        try:
            return await self._handle.result()
        except WorkflowFailureError as failure:
            cause = failure.cause
            if isinstance(cause, ApplicationError) and cause.details:
                return EpisodeResult.model_validate(cause.details[0])
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        # Canceled, or ended from outside without a word: its row says how.
        while True:
            row = await self.record()
            if row.status.is_finished and await overruling(self._client, row) is None:
                return row.result()
            await asyncio.sleep(_POLL_S)

    async def cancel(self, reason: str = "", *, by: str | None = None) -> CancelAnswer:
        """Ask the episode to stop; it ends CANCELED after teardown. Returns without waiting.

        One that waits in Temporal for the first worker is listed, so that the request is kept.

        Args:
            reason: Kept, and shown wherever the run is.
            by: Who asks; None means the user of this process.

        Returns:
            Whether this was the first to ask, and the row; for a finished run, how it ended.

        Raises:
            RunNotFoundError: there is no such run.
        """
        by = by or getpass.getuser()
        try:
            answer = await self._requested(by, reason)
        except RunNotFoundError:
            if not await list_unlisted(self._client, self._index, self.run_id, at=_now()):
                raise
            answer = await self._requested(by, reason)
        if answer.state is not CancelState.FINISHED:
            # Also when it was asked before: whoever asked may have died before reaching Temporal.
            try:
                await self._handle.cancel(reason=answer.run.cancel_requested_reason or "")
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise
        return answer

    async def _requested(self, by: str, reason: str) -> CancelAnswer:
        """Record the request."""
        return await asyncio.to_thread(
            self._index.request_cancel, self.run_id, by=by, reason=reason, at=_now()
        )

    async def _outcome(self) -> EpisodeResult | None:
        """The outcome before teardown; None when the workflow has closed already."""
        while True:
            try:
                known = await self._handle.execute_update(names.OUTCOME, result_type=Outcome)
                break
            except WorkflowUpdateFailedError as failure:
                cause = failure.cause
                if not isinstance(cause, ApplicationError) or cause.type != names.ASK_AGAIN:
                    return None
                await asyncio.sleep(ASK_AGAIN_S)
            except RPCError:
                return None
        row = await self.record()
        return row.result().model_copy(update=known.model_dump())


def _now() -> datetime:
    return datetime.now(UTC)
