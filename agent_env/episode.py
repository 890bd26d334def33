"""One episode, as a trainer asks for it and as it watches it."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import Mapping
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
from agent_env._unlisted import list_unlisted
from agent_env.errors import RunNotFoundError
from agent_env.outcome import Outcome
from agent_env.results import EpisodeResult
from agent_env.runs import CancelAnswer, RunIndex, RunRecord
from agent_env.runs.records import CancelState
from agent_env.steps import Steps
from agent_env.task import Task

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

    @classmethod
    def from_task(
        cls,
        task: Task,
        *,
        seed: Mapping[str, str] | None = None,
        tags: Mapping[str, str] | None = None,
        deadline: timedelta | None = None,
        steps: Steps | None = None,
    ) -> EpisodeSpec:
        """Check everything that can be known before a run.

        Args:
            task: What to play.
            seed: Values for the task's ``<key>`` places. None means a ``seed`` of 0.
            tags: Labels, to find runs by.
            deadline: Longest time from the start to the outcome.
            steps: Step types beside the built-in and installed ones.

        Raises:
            InvalidSpecError: with every problem of the task, each naming its step and field.
        """
        seed = {"seed": "0"} if seed is None else dict(seed)
        return cls((steps or Steps()).check(task, seed), seed, dict(tags or {}), deadline)

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
    """One episode, started or found again by its id. Holds nothing: drop it, attach anew."""

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
            UnavailableError: Temporal has not answered for minutes. Safe to retry.
            IndexUnavailableError: the run index does not answer. Safe to retry.
        """
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
        while not (row := await self.record()).status.is_finished:
            await asyncio.sleep(_POLL_S)
        return row.result()

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
        try:
            known = await self._handle.execute_update(names.OUTCOME, result_type=Outcome)
        except (WorkflowUpdateFailedError, RPCError):
            return None
        row = await self.record()
        return row.result().model_copy(update=known.model_dump())


def _now() -> datetime:
    return datetime.now(UTC)
