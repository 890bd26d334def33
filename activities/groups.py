"""The rows of a group and of its members, and what a group asks Temporal about them."""

import asyncio
from collections.abc import Callable
from datetime import datetime

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from activities._heartbeat import heartbeating
from activities._translate import translating
from agent_env import ids, names
from agent_env.errors import RunIndexError
from agent_env.group_specs import (
    AskedGroup,
    AwaitMembers,
    CancelRuns,
    EndedMembers,
    GroupState,
    ListMember,
    OpenedGroup,
    Rerun,
)
from agent_env.results import GroupResult
from agent_env.runs import GroupRecord, RunIndex, new_run
from agent_env.scores import group_figures
from agent_env.specs import CancelMembers, EpisodeStart, OpenGroup
from agent_env.status import RunStatus

_BY = "group"
"""Who asks, where the group does so itself."""
_MOST_BYTES = 1024 * 1024
"""Of a group's result as the workflow's own: the engine takes 2 MiB."""
_AT_ONCE = 16
"""Most cancels on their way to Temporal."""
_POLL_S = 1.0


class GroupActivities:
    """Those that are synchronous are run by the worker's threads."""

    def __init__(
        self, client: Client, index: RunIndex, *, room: int, now: Callable[[], datetime]
    ) -> None:
        self._client = client
        self._index = index
        self._room = room
        self._now = now

    @activity.defn(name=names.OPEN_GROUP)
    def open(self, order: OpenGroup) -> OpenedGroup | None:
        """List the group and all its members as QUEUED, in one transaction."""
        start = order.start
        members = [
            new_run(
                EpisodeStart(
                    run_id=ids.member_id(start.run_group_id, index),
                    task=start.task,
                    seed=seed,
                    tags=start.tags,
                    run_group_id=start.run_group_id,
                    member_index=index,
                ),
                workflow_run_id=None,
                namespace=order.namespace,
                created_at=order.created_at,
            )
            for index, seed in enumerate(start.seeds)
        ]
        group = GroupRecord(
            run_group_id=start.run_group_id,
            task_id=start.task.id,
            created_at=order.created_at,
            size=len(members),
            figures=group_figures((RunStatus.QUEUED, None) for _ in members),
        )
        with translating():
            self._index.open_group(group, members)
        return OpenedGroup(room=self._room)

    @activity.defn(name=names.LIST_MEMBER)
    def list_member(self, order: ListMember) -> Rerun:
        """List a run that replaces a member's latest one as QUEUED."""
        run = new_run(
            EpisodeStart(
                run_id=ids.member_id(order.run_group_id, order.index),
                task=order.task,
                seed=order.seed,
                tags=order.tags,
                run_group_id=order.run_group_id,
                member_index=order.index,
            ),
            workflow_run_id=None,
            namespace=order.namespace,
            created_at=order.created_at,
        )
        with translating():
            return self._index.list_member(run)

    @activity.defn(name=names.GROUP_STATE)
    def state(self, run_group_id: str) -> GroupState:
        """How the members stand."""
        with translating():
            return self._index.group_state(run_group_id)

    @activity.defn(name=names.ASK_GROUP)
    def ask(self, order: CancelMembers) -> AskedGroup:
        """Put the request on every live member's row; where members run."""
        with translating():
            self._index.request_group_cancel(
                order.run_group_id, by=_BY, reason=order.reason, at=self._now()
            )
            hosts = self._index.running_members(order.run_group_id).values()
            return AskedGroup(hosts=tuple(sorted(set(hosts))))

    @activity.defn(name=names.CANCEL_RUNS)
    async def cancel_runs(self, order: CancelRuns) -> None:
        """Have Temporal cancel workflows, many at a time; one that is over is no error."""
        places = asyncio.Semaphore(_AT_ONCE)

        async def cancel(run_id: str) -> None:
            async with places:
                await self._cancel(run_id, order)

        async with heartbeating():
            with translating():
                await asyncio.gather(*(cancel(run_id) for run_id in order.run_ids))

    @activity.defn(name=names.AWAIT_MEMBERS)
    async def await_members(self, order: AwaitMembers) -> EndedMembers:
        """Answer when some of these runs have ended, with all that have by then."""
        async with heartbeating():
            with translating():
                while True:
                    await asyncio.sleep(_POLL_S)
                    places = await asyncio.to_thread(self._index.places, order.run_ids)
                    ended = [id for id, place in places.items() if place.status.is_finished]
                    if ended:
                        return EndedMembers(run_ids=tuple(ended))

    @activity.defn(name=names.CANCEL_GROUP)
    def cancel(self, order: CancelMembers) -> None:
        """End the members that have no workflow and never will."""
        with translating():
            self._index.cancel_group(
                order.run_group_id, by=_BY, reason=order.reason, at=self._now()
            )

    @activity.defn(name=names.GROUP_MEMBERS)
    def members(self, run_group_id: str) -> GroupResult:
        """Every member in order, with the figures; of very many the figures only."""
        with translating():
            result = self._index.group_result(run_group_id)
        if len(result.model_dump_json()) > _MOST_BYTES:
            return result.model_copy(update={"members": (), "left_out": len(result.members)})
        return result

    async def _cancel(self, run_id: str, order: CancelRuns) -> None:
        if not order.is_recorded:
            try:
                await asyncio.to_thread(
                    self._index.request_cancel,
                    run_id,
                    by=_BY,
                    reason=order.reason,
                    at=self._now(),
                )
            except RunIndexError as error:
                activity.logger.warning("the request is not on its row: %s", error)
        try:
            await self._client.get_workflow_handle(run_id).cancel(reason=order.reason)
        except RPCError as error:
            if error.status is not RPCStatusCode.NOT_FOUND:
                raise
