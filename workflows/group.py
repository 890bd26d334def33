"""A group of episodes: all listed at once, played with bounded concurrency, ended as one."""

import asyncio
import contextlib
from collections.abc import Sequence
from datetime import datetime

from temporalio import workflow
from temporalio.exceptions import ApplicationError, FailureError

with workflow.unsafe.imports_passed_through():
    from activities.groups import GroupActivities
    from activities.steps import StepActivities
    from agent_env import names
    from agent_env.group_specs import AskedGroup, CancelRuns, ListMember
    from agent_env.results import GroupResult
    from agent_env.specs import CancelMembers, GroupStart, OpenGroup
    from workflows import _calls
    from workflows._faults import fault_of, unlisted
    from workflows._members import Members, left_of
    from workflows._shield import shielded

_ROOM = "a-group-starts-what-there-is-room-for"
"""Also: it is canceled host by host, and goes on in the next execution."""
COMPLETE = "group complete"
"""Why the others are canceled when enough members have scored."""


@workflow.defn(name=names.ROLLOUT_GROUP)
class RolloutGroupWorkflow:
    """Plays every member as a child workflow. One that fails never cancels another."""

    @workflow.init
    def __init__(self, start: GroupStart) -> None:
        self._start = start
        self._size = len(start.seeds)
        self._opened_at: datetime = start.progress.opened_at if start.progress else workflow.now()
        self._is_listed = False
        self._refusal: ApplicationError | None = None
        self._members: Members | None = None
        self._replacing = 0
        self._is_ending = False
        self._background: list[asyncio.Task[None]] = []
        self._over: str | None = None

    @workflow.run
    async def run(self, start: GroupStart) -> GroupResult:
        """Play the group; every member in order, with the figures.

        Raises:
            ApplicationError: it could not be listed; nothing was started.
            asyncio.CancelledError: it was canceled, and every member has ended.
        """
        is_first_way = not workflow.patched(_ROOM)
        self._members = members = Members(start, is_first_way=is_first_way)
        await shielded(self._open(members))
        if self._refusal is not None:
            await workflow.wait_condition(workflow.all_handlers_finished)
            raise self._refusal
        with contextlib.suppress(asyncio.CancelledError):  # the reason is asked for below
            if await self._play(members):
                await shielded(workflow.wait_condition(workflow.all_handlers_finished))
                # Whatever still asks for something would do so after the last command.
                await shielded(workflow.wait(self._background))
                await shielded(members.rest())
                if workflow.cancellation_reason() is None:
                    progress = members.progress(self._opened_at)
                    workflow.continue_as_new(start.model_copy(update={"progress": progress}))
                members.await_inherited()
        self._is_ending = True
        reason = workflow.cancellation_reason()
        if is_first_way and reason is not None:
            await shielded(self._cancel_one_by_one(members, reason))
        elif (why := self._over if reason is None else reason) is not None:
            await shielded(self._stop(members, why))
        result = await shielded(
            workflow.execute_activity_method(
                GroupActivities.members,
                start.run_group_id,
                **_calls.on(names.CONTROL_QUEUE, _calls.RECORD),
            )
        )
        await shielded(workflow.wait_condition(workflow.all_handlers_finished))
        if reason is not None:
            raise asyncio.CancelledError(reason)
        return result

    @workflow.update(name=names.LISTED)
    async def listed(self) -> int:
        """Answer with the size once all members' rows exist, or fail with what kept them."""
        await self._until_listed()
        return self._size

    @workflow.update(name=names.REPLACE_MEMBER)
    async def replace(self, index: int) -> str:
        """List a run that stands for the member from now on, and start it; answer with its id."""
        self._replacing += 1
        try:
            await self._until_listed()
            members = self._members
            if members is None or self._is_ending:
                raise _too_late()
            return await self._replaced(members, index)
        except FailureError as error:
            fault = fault_of(error)
            raise ApplicationError(fault.message, type=fault.type, non_retryable=True) from None
        finally:
            self._replacing -= 1
            if self._members is not None:
                self._members.changes += 1

    @replace.validator
    def check_replace(self, index: int) -> None:
        """Refuse what can't be, and what comes too late for this execution."""
        if not 0 <= index < self._size:
            raise ApplicationError(
                f"the group has members 0 to {self._size - 1}, not {index}", type="InvalidSpec"
            )
        if self._is_ending or workflow.cancellation_reason() is not None:
            raise _too_late()

    async def _until_listed(self) -> None:
        await workflow.wait_condition(lambda: self._is_listed or self._refusal is not None)
        if self._refusal is not None:
            raise self._refusal

    async def _open(self, members: Members) -> None:
        """List the group; or, of one that is listed, list what is to be replaced in it."""
        try:
            if self._start.progress is None:
                order = OpenGroup(
                    start=self._start,
                    namespace=workflow.info().namespace,
                    created_at=workflow.now(),
                )
                opened = await workflow.execute_local_activity_method(
                    GroupActivities.open, order, **_calls.OPEN
                )
                if opened is not None:
                    members.known_room(opened.room)
            else:
                for index in self._start.progress.replace:
                    await self._replaced(members, index)
            self._is_listed = True
        except FailureError as error:
            fault = unlisted(error)
            self._refusal = ApplicationError(fault.message, type=fault.type, non_retryable=True)

    async def _play(self, members: Members) -> bool:
        """Play until every member has ended, or the group is over.

        Returns:
            Whether the next execution is to go on with it.
        """
        self._background = [asyncio.create_task(members.keep_looking())]
        if self._start.group_deadline is not None:
            self._background.append(asyncio.create_task(self._keep_time(members)))
        try:
            while workflow.cancellation_reason() is None and not await self._is_over(members):
                seen = members.changes
                if not members.is_history_full:
                    if await members.start_some():
                        continue
                elif members.is_large or not members.is_open:
                    return True
                if not (members.is_waiting or members.is_open or self._replacing):
                    break
                await members.changed(seen)
        finally:
            for task in self._background:
                task.cancel()
        return False

    async def _is_over(self, members: Members) -> bool:
        """Whether enough have scored, or the deadline has passed."""
        if (wanted := self._start.min_scored) is not None and self._over is None:
            await members.count_scored()
            if members.scored >= wanted:
                self._over = COMPLETE
        return self._over is not None

    async def _keep_time(self, members: Members) -> None:
        assert self._start.group_deadline is not None
        since = workflow.now() - self._opened_at
        await workflow.sleep(left_of(self._start.group_deadline, since))
        self._over = f"the group took longer than {self._start.group_deadline.total_seconds():g} s"
        members.changes += 1

    async def _replaced(self, members: Members, index: int) -> str:
        order = ListMember(
            run_group_id=self._start.run_group_id,
            index=index,
            task=self._start.task,
            seed=self._start.seeds[index],
            tags=self._start.tags,
            namespace=workflow.info().namespace,
            created_at=workflow.now(),
        )
        found = await workflow.execute_local_activity_method(
            GroupActivities.list_member, order, **_calls.OPEN
        )
        if found.is_new:
            members.again(found)
        if found.replaces is not None:
            await self._cancel_runs(
                (found.replaces,), f"replaced by {found.run_id}", is_recorded=False
            )
        return found.run_id

    async def _stop(self, members: Members, reason: str) -> None:
        """Cancel what was started, then end the rows of members that never were."""
        await members.started()
        order = CancelMembers(run_group_id=self._start.run_group_id, reason=reason)
        asked = await self._asked(order)
        await asyncio.gather(
            *(self._interrupt(host, order) for host in asked.hosts),
            self._cancel_runs(members.open_ids, reason),
        )
        await members.ended()
        await self._end_unstarted(order)

    async def _cancel_one_by_one(self, members: Members, reason: str) -> None:
        await members.started()
        members.cancel_children(reason)
        await members.ended()
        await self._end_unstarted(
            CancelMembers(run_group_id=self._start.run_group_id, reason=reason)
        )

    async def _end_unstarted(self, order: CancelMembers) -> None:
        await workflow.execute_activity_method(
            GroupActivities.cancel, order, **_calls.on(names.CONTROL_QUEUE, _calls.RECORD)
        )

    async def _asked(self, order: CancelMembers) -> AskedGroup:
        """Put the request on the members' rows, and hear where they run."""
        try:
            return await workflow.execute_activity_method(
                GroupActivities.ask, order, **_calls.on(names.CONTROL_QUEUE, _calls.ASK_GROUP)
            )
        except FailureError as error:
            workflow.logger.debug("members not asked: %s", error)
            return AskedGroup()

    async def _interrupt(self, host: str, order: CancelMembers) -> None:
        """Stop all that runs of the group on a host: the cancels come one by one, and later."""
        try:
            await workflow.execute_activity_method(
                StepActivities.interrupt_group,
                order,
                **_calls.on(names.host_queue(host), _calls.INTERRUPT),
            )
        except FailureError as error:
            workflow.logger.debug("interrupt not delivered: %s", error)

    async def _cancel_runs(
        self, run_ids: Sequence[str], reason: str, *, is_recorded: bool = True
    ) -> None:
        if run_ids:
            await workflow.execute_activity_method(
                GroupActivities.cancel_runs,
                CancelRuns(run_ids=tuple(run_ids), reason=reason, is_recorded=is_recorded),
                **_calls.on(names.CONTROL_QUEUE, _calls.CANCEL_RUNS),
            )


def _too_late() -> ApplicationError:
    return ApplicationError("the group is ending", type=names.GROUP_IS_ENDING, non_retryable=True)
