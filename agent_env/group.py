"""A group of episodes, as a trainer starts it and watches it."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
    WorkflowUpdateFailedError,
)
from temporalio.common import WorkflowIDConflictPolicy, WorkflowIDReusePolicy
from temporalio.exceptions import WorkflowAlreadyStartedError
from temporalio.service import RPCError, RPCStatusCode

from agent_env import names
from agent_env._executions import ended_from_outside, group_started_with, overruling
from agent_env._start import refusal
from agent_env.episode import Episode
from agent_env.errors import InvalidSpecError, UnavailableError, bounded
from agent_env.group_specs import GroupProgress
from agent_env.results import EpisodeResult, GroupResult
from agent_env.runs import RunIndex

_POLL_S = 0.1
"""How soon an ended member is noticed by ``as_completed``."""
_SHARE = 10
"""A tenth of the time at most is spent reading."""
_TRIES = 5
"""How often a group may be found to have closed, or to be open again, before giving up."""


class RolloutGroup:
    """A group, started or found again by its id."""

    def __init__(
        self,
        run_group_id: str,
        handle: WorkflowHandle[object, GroupResult],
        index: RunIndex,
        client: Client,
        episode: Callable[[str], Episode],
    ) -> None:
        self.run_group_id = run_group_id
        self._client = client
        self._handle = handle
        self._index = index
        self._episode = episode

    async def snapshot(self) -> GroupResult:
        """Every member and the figures as they are now.

        Raises:
            RunNotFoundError: there is no such group.
            IndexUnavailableError: the run index does not answer. Safe to retry.
        """
        return await asyncio.to_thread(self._index.group_result, self.run_group_id)

    async def result(self) -> GroupResult:
        """Wait until every member has ended; all of them in order, with the figures.

        Members that failed or were canceled are in it as they ended; so are those of a group that
        was canceled.

        Raises:
            UnavailableError: Temporal has not answered for minutes. Safe to retry.
        """
        await self._closed()
        # In this order: what is read after a row has come to say so says so as well.
        while await self._is_overruled() or not (now := await self.snapshot()).figures.is_finished:
            await asyncio.sleep(_POLL_S)
        return now

    async def as_completed(self) -> AsyncIterator[EpisodeResult]:
        """Members one by one as they end, each once; those that have ended come first.

        A run that replaces a member comes when it ends, also after the one that it replaces.

        Raises:
            IndexUnavailableError: the run index does not answer. Safe to start again.
        """
        clock = asyncio.get_running_loop().time
        pause_s = _POLL_S
        given: set[str] = set()
        seen = -1
        while True:
            before = clock()
            state = await asyncio.to_thread(self._index.group_state, self.run_group_id)
            if state.ended != seen:
                members = (await self.snapshot()).members
                pause_s = max(_POLL_S, _SHARE * (clock() - before))
                ended = [m for m in members if m.status.is_finished and m.run_id not in given]
                for member in sorted(ended, key=_ended_at):
                    given.add(member.run_id)
                    yield member
                seen = state.ended
            elif state.is_finished:
                return
            else:
                pause_s = max(_POLL_S, _SHARE * (clock() - before))
            if not state.is_finished:
                await asyncio.sleep(pause_s)

    async def replace(self, index: int | str) -> Episode:
        """Play one member again: the new run stands for it from now on, with the same seed.

        The group keeps its size, and the new run's reward counts in place of the old one's. A run
        that has not ended is canceled; a member that has not begun is left as it is. Works also
        after the group has ended, which is open again until the new run has ended.

        Args:
            index: Which member, from 0; ``"1"`` is the same as ``1``.

        Returns:
            The run that stands for the member, listed.

        Raises:
            InvalidSpecError: there is no such member, or the group can't play one again.
            IndexUnavailableError: the row could not be written. Nothing was left behind.
            UnavailableError: Temporal does not answer.
        """
        number = await self._number(index)
        for _ in range(_TRIES):
            try:
                run_id = await self._handle.execute_update(
                    names.REPLACE_MEMBER, number, result_type=str
                )
                return self._episode(run_id)
            except WorkflowUpdateFailedError as failure:
                if getattr(failure.cause, "type", None) != names.GROUP_IS_ENDING:
                    raise refusal(failure.cause) from None
                await self._closed()
            except RPCError as error:
                if error.status is not RPCStatusCode.NOT_FOUND:
                    raise UnavailableError(
                        f"Temporal does not say whether member {number} of {self.run_group_id!r} "
                        f"was replaced: {error.message}; look at the group, then try again"
                    ) from error
            if (episode := await self._reopened(number)) is not None:
                return episode
        raise UnavailableError(
            f"the group {self.run_group_id!r} opens and closes all the time; try again"
        )

    async def cancel(self, reason: str = "", *, by: str | None = None) -> int:
        """Ask every member that has not ended to stop. Returns how many that were.

        The reason and who asked are kept on each member. Members not yet started never start.
        """
        asked = await asyncio.to_thread(
            self._index.request_group_cancel,
            self.run_group_id,
            by=by or getpass.getuser(),
            reason=reason,
            at=datetime.now(UTC),
        )
        try:
            await self._handle.cancel(reason=reason)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
            # No workflow of its own, or it has closed: member by member.
            for member in (await self.snapshot()).members:
                if not member.status.is_finished:
                    await self._episode(member.run_id).cancel(reason, by=by)
        return asked

    async def _closed(self) -> None:
        """Wait until the group's workflow has ended, however it did."""
        try:
            await self._handle.result()
        except WorkflowFailureError:
            pass  # canceled or terminated: the rows say how the members ended
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise

    async def _is_overruled(self) -> bool:
        """Whether the row of a member that was terminated has yet to say so."""
        group = await asyncio.to_thread(self._index.group, self.run_group_id)
        outside = await ended_from_outside(self._client, since=group.created_at)
        if not outside:
            return False
        members = await asyncio.to_thread(self._index.members, self.run_group_id)
        suspects = [member for member in members if member.run_id in outside]
        found = await asyncio.gather(*(overruling(self._client, each) for each in suspects))
        return any(its is not None for its in found)

    async def _number(self, index: int | str) -> int:
        """The index as a number, if the group has it."""
        size = (await asyncio.to_thread(self._index.group, self.run_group_id)).size
        if size is None:
            raise InvalidSpecError.of(
                "index",
                f"the group {self.run_group_id!r} has only episodes that were started one by one; "
                "start another one",
            )
        text = str(index)
        number = int(text) if text.isascii() and text.isdecimal() else -1
        if not 0 <= number < size:
            raise InvalidSpecError.of(
                "index", f"the group has members 0 to {size - 1}, not {bounded(text, 100)!r}"
            )
        return number

    async def _reopened(self, index: int) -> Episode | None:
        """Start the group's workflow again for one member. None if somebody else did."""
        start = await group_started_with(self._client, self.run_group_id)
        if start is None:
            raise InvalidSpecError.of(
                "index",
                f"Temporal has no history of the group {self.run_group_id!r} any more; start a new "
                "group with this member's seed",
            )
        progress = GroupProgress(
            opened_at=datetime.now(UTC), next=len(start.seeds), replace=(index,)
        )
        # What bounds a group has been reached, or does not matter for one member.
        changes = {"progress": progress, "min_scored": None, "group_deadline": None}
        try:
            handle = await self._client.start_workflow(
                names.ROLLOUT_GROUP,
                start.model_copy(update=changes),
                id=self.run_group_id,
                task_queue=names.TASK_QUEUE,
                id_conflict_policy=WorkflowIDConflictPolicy.FAIL,
                id_reuse_policy=WorkflowIDReusePolicy.ALLOW_DUPLICATE,
                result_type=GroupResult,
            )
        except WorkflowAlreadyStartedError:
            return None
        try:
            await handle.execute_update(names.LISTED, result_type=int)
        except WorkflowUpdateFailedError as failure:
            raise refusal(failure.cause) from None
        members = await asyncio.to_thread(self._index.members, self.run_group_id)
        return self._episode(next(m.run_id for m in members if m.member_index == index))


def _ended_at(member: EpisodeResult) -> datetime:
    return member.finished_at or datetime.max.replace(tzinfo=UTC)
