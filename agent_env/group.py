"""A group of episodes, as a trainer starts it and watches it."""

from __future__ import annotations

import asyncio
import getpass
from collections.abc import AsyncIterator, Callable
from datetime import UTC, datetime

from temporalio.client import WorkflowFailureError, WorkflowHandle
from temporalio.service import RPCError, RPCStatusCode

from agent_env.episode import Episode
from agent_env.results import EpisodeResult, GroupResult
from agent_env.runs import RunIndex

_POLL_S = 0.1
"""How soon an ended member is noticed by ``as_completed``."""


class RolloutGroup:
    """A group, started or found again by its id."""

    def __init__(
        self,
        run_group_id: str,
        handle: WorkflowHandle[object, GroupResult],
        index: RunIndex,
        episode: Callable[[str], Episode],
    ) -> None:
        self.run_group_id = run_group_id
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
        try:
            await self._handle.result()
        except WorkflowFailureError:
            pass  # canceled or terminated: the rows say how the members ended
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
        while not (now := await self.snapshot()).figures.is_finished:
            await asyncio.sleep(_POLL_S)
        return now

    async def as_completed(self) -> AsyncIterator[EpisodeResult]:
        """Members one by one as they end, each once; those that have ended come first.

        Raises:
            IndexUnavailableError: the run index does not answer. Safe to start again.
        """
        given: set[str] = set()
        while True:
            figures = (await asyncio.to_thread(self._index.group, self.run_group_id)).figures
            if figures.n - figures.queued - figures.running == len(given):
                if figures.is_finished:
                    return
                await asyncio.sleep(_POLL_S)
                continue
            now = await self.snapshot()
            ended = [m for m in now.members if m.status.is_finished and m.run_id not in given]
            for member in sorted(ended, key=_ended_at):
                given.add(member.run_id)
                yield member

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


def _ended_at(member: EpisodeResult) -> datetime:
    return member.finished_at or datetime.max.replace(tzinfo=UTC)
