"""A group of episodes: all listed at once, played with bounded concurrency, ended as one."""

import asyncio
import contextlib
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import (
    ApplicationError,
    FailureError,
    WorkflowAlreadyStartedError,
)

with workflow.unsafe.imports_passed_through():
    from activities.groups import GroupActivities
    from agent_env import ids, names
    from agent_env.results import EpisodeResult, GroupResult
    from agent_env.specs import CancelMembers, EpisodeStart, GroupStart, OpenGroup
    from workflows import _calls
    from workflows._faults import unlisted
    from workflows._shield import shielded

_START_BYTES = 512 * 1024
"""Most bytes of members' arguments in one workflow task: the engine refuses over 4 MiB."""


Member = workflow.ChildWorkflowHandle[Any, EpisodeResult]


@workflow.defn(name=names.ROLLOUT_GROUP)
class RolloutGroupWorkflow:
    """Plays every member as a child workflow. One that fails never cancels another."""

    @workflow.init
    def __init__(self, start: GroupStart) -> None:
        self._start = start
        self._size = len(start.seeds)
        self._is_listed = False
        self._refusal: ApplicationError | None = None
        self._starting: list[asyncio.Task[None]] = []
        self._running: dict[asyncio.Task[None], Member] = {}
        self._at_once = max(1, _START_BYTES // len(start.task.model_dump_json()))

    @workflow.run
    async def run(self, start: GroupStart) -> GroupResult:
        """Play the group; every member in order, with the figures.

        Raises:
            ApplicationError: it could not be listed; nothing was started.
            asyncio.CancelledError: it was canceled, and every member has ended.
        """
        await shielded(self._open())
        if self._refusal is not None:
            await workflow.wait_condition(workflow.all_handlers_finished)
            raise self._refusal
        with contextlib.suppress(asyncio.CancelledError):  # the reason is asked for below
            await self._play()
        if (reason := workflow.cancellation_reason()) is not None:
            await shielded(self._cancel(reason))
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
        await workflow.wait_condition(lambda: self._is_listed or self._refusal is not None)
        if self._refusal is not None:
            raise self._refusal
        return self._size

    async def _open(self) -> None:
        order = OpenGroup(
            start=self._start,
            namespace=workflow.info().namespace,
            created_at=workflow.now(),
        )
        try:
            await workflow.execute_local_activity_method(GroupActivities.open, order, **_calls.OPEN)
            self._is_listed = True
        except FailureError as error:
            fault = unlisted(error)
            self._refusal = ApplicationError(fault.message, type=fault.type, non_retryable=True)

    async def _play(self) -> None:
        """Start members in order, never more than ``max_parallel`` at once, and await them all."""
        limit = self._start.max_parallel or self._size
        waiting = list(range(self._size))
        while waiting or self._running:
            if workflow.cancellation_reason() is not None:
                return
            room = min(limit - len(self._running), self._at_once)
            started, waiting = waiting[:room], waiting[room:]
            self._starting = [asyncio.create_task(self._start_member(i)) for i in started]
            if self._starting:
                await workflow.wait(self._starting)
            if self._running and (len(self._running) >= limit or not waiting):
                await workflow.wait(list(self._running), return_when=asyncio.FIRST_COMPLETED)
            self._running = {
                task: member for task, member in self._running.items() if not task.done()
            }

    async def _start_member(self, index: int) -> None:
        """Start one member; returns when the engine has it, while its task goes on."""
        start = EpisodeStart(
            run_id=ids.member_id(self._start.run_group_id, index),
            task=self._start.task,
            seed=self._start.seeds[index],
            tags=self._start.tags,
            run_group_id=self._start.run_group_id,
            member_index=index,
            deadline=self._start.deadline,
        )
        try:
            member = await workflow.start_child_workflow(
                names.EPISODE,
                start,
                id=start.run_id,
                result_type=EpisodeResult,
                parent_close_policy=workflow.ParentClosePolicy.REQUEST_CANCEL,
                cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            )
        except WorkflowAlreadyStartedError:
            return  # its row says how it went
        self._running[asyncio.create_task(_ended(member))] = member

    async def _cancel(self, reason: str) -> None:
        """Cancel what was started, then end the rows of members that never were."""
        if self._starting:
            await workflow.wait(self._starting)
        for member in self._running.values():
            member.cancel(reason)
        if self._running:
            await workflow.wait(list(self._running))
        await workflow.execute_activity_method(
            GroupActivities.cancel,
            CancelMembers(run_group_id=self._start.run_group_id, reason=reason),
            **_calls.on(names.CONTROL_QUEUE, _calls.RECORD),
        )


async def _ended(member: Member) -> None:
    """Wait for a member. How it ended is in its row: a failed one is a result, not an error."""
    try:
        await member
    except FailureError as error:
        workflow.logger.debug("member ended: %s", error)
