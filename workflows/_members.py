"""The members of a group that is under way: which may start, which are open, which have scored."""

import asyncio
from collections.abc import Coroutine, Iterator
from datetime import datetime, timedelta
from typing import Any

from temporalio import workflow
from temporalio.common import WorkflowIDReusePolicy
from temporalio.exceptions import (
    FailureError,
    WorkflowAlreadyStartedError,
    is_cancelled_exception,
)

from activities.groups import GroupActivities
from agent_env import ids, names
from agent_env.group_specs import AwaitMembers, GroupProgress, GroupState, Rerun
from agent_env.results import EpisodeResult
from agent_env.specs import EpisodeStart, GroupStart
from workflows import _calls
from workflows._window import Window

START_BYTES = 512 * 1024
"""Most bytes of members' arguments in one workflow task: the engine refuses over 4 MiB."""
# Groups under way replay by these: whoever changes one needs a patch marker.
MOST_EVENTS = 4_000
"""Events of one execution's history: then the next one goes on."""
_EVENTS_EACH = 9
"""What a member adds to the history, at most."""
_MOST_OPEN = 1_000
"""Members that are open at once: each is in the worker's memory."""

Member = workflow.ChildWorkflowHandle[Any, EpisodeResult]


class Members:
    """Starts members in order and awaits them. One that fails is a result like any other.

    Args:
        start: What the group is asked for.
        is_first_way: Of a group that an earlier version of this code has started, which started all
            members at once.

    Attributes:
        changes: Counts up whenever a member has ended or is to be started.
        scored: Members that had a reward when they were counted last.
    """

    def __init__(self, start: GroupStart, *, is_first_way: bool) -> None:
        so_far = start.progress or GroupProgress(opened_at=workflow.now())
        self._start = start
        self._size = len(start.seeds)
        self._next = so_far.next
        self._again = list(so_far.again)
        self._inherited = dict.fromkeys(so_far.open)
        self._starting: list[asyncio.Task[None]] = []
        self._running: dict[str, Member] = {}
        self._tasks: set[asyncio.Task[None]] = set()
        self._at_once = max(1, START_BYTES // len(start.task.model_dump_json()))
        most = self._size if is_first_way else min(self._size, _MOST_OPEN)
        self._window = Window(min(start.max_parallel or most, most), so_far.room)
        self._is_counted = start.progress is None
        self._has_ended = False
        self.changes = 0
        self.scored = 0
        # Those of a larger group outlive an execution of its workflow. The engine does to them
        # what it does when a group is terminated, also when the workflow continues as new.
        self.is_large = self._size * _EVENTS_EACH > MOST_EVENTS and not is_first_way
        self._awaiting: asyncio.Task[None] | None = None
        self.await_inherited()

    @property
    def is_waiting(self) -> bool:
        """Whether members are yet to be started."""
        return self._next < self._size or bool(self._again)

    @property
    def is_open(self) -> bool:
        """Whether members that were started have not ended."""
        return bool(self._running or self._inherited)

    @property
    def is_history_full(self) -> bool:
        """Whether this execution should start no more."""
        return workflow.info().get_current_history_length() > MOST_EVENTS

    @property
    def open_ids(self) -> tuple[str, ...]:
        """The runs that were started and have not ended, in order of their start."""
        return (*self._inherited, *self._running)

    def progress(self, opened_at: datetime) -> GroupProgress:
        """What the next execution goes on from."""
        return GroupProgress(
            opened_at=opened_at,
            next=self._next,
            open=self.open_ids,
            again=tuple(self._again),
            room=self._window.size,
        )

    def known_room(self, room: int | None) -> None:
        """Take from whoever listed the group how much its host takes."""
        self._window = Window(self._window.most, room)

    def again(self, rerun: Rerun) -> None:
        """Start a run that is listed already, before those that have not been started yet."""
        self._again.append(rerun)
        self._is_counted = False
        self.changes += 1

    async def start_some(self) -> bool:
        """Start members there is room for, at most as many as one workflow task can carry.

        Returns:
            Whether there were any; then the engine has them.
        """
        room = self._room()
        if room <= 0 or not self.is_waiting:
            return False
        batch = list(self._batch(min(room, self._at_once)))
        self._starting = [asyncio.create_task(self._start_one(*member)) for member in batch]
        await workflow.wait(self._starting)
        return True

    async def started(self) -> None:
        """Wait until the engine has what is being started."""
        if self._starting:
            await workflow.wait(self._starting)

    async def ended(self) -> None:
        """Wait until every member that was started has ended."""
        await workflow.wait_condition(lambda: not self.is_open)

    def await_inherited(self) -> None:
        """Wait beside all else for runs that an earlier execution of this workflow started."""
        if self._inherited:
            self._awaiting = asyncio.create_task(self._await_inherited())

    async def rest(self) -> None:
        """Wait for them no more."""
        if self._awaiting is not None:
            self._awaiting.cancel()
            await workflow.wait([self._awaiting])

    def cancel_children(self, reason: str) -> None:
        """Ask one after the other, as groups of an earlier version do."""
        for member in self._running.values():
            member.cancel(reason)

    async def keep_looking(self) -> None:
        """Fit the window to the room there is, for as long as members wait."""
        while not self._window.is_open and self._next < self._size:
            await workflow.sleep(self._window.pause)
            await self._look()

    async def changed(self, since: int) -> None:
        """Wait until there have been more changes than this."""
        await workflow.wait_condition(lambda: self.changes > since)

    async def count_scored(self) -> None:
        """Ask the index how many have scored, if any has ended: a re-run replaces a reward, too."""
        if self._is_counted:
            return
        self._is_counted = True  # unless another one ends meanwhile
        if (state := await self._state()) is not None:
            self.scored = state.scored
        else:
            self._is_counted = False

    def _room(self) -> int:
        return self._window.size - len(self._running) - len(self._inherited)

    def _batch(self, room: int) -> Iterator[tuple[str, int]]:
        while self._again and room > 0:
            rerun = self._again.pop(0)
            yield rerun.run_id, rerun.index
            room -= 1
        while self._next < self._size and room > 0:
            index, self._next = self._next, self._next + 1
            yield ids.member_id(self._start.run_group_id, index), index
            room -= 1

    async def _look(self) -> None:
        if (state := await self._state()) is not None:
            self._window.looked(
                opened=len(self.open_ids), waiting=state.waiting, has_ended=self._has_ended
            )
            self._has_ended = False
            self.changes += 1

    async def _state(self) -> GroupState | None:
        try:
            return await workflow.execute_local_activity_method(
                GroupActivities.state, self._start.run_group_id, **_calls.GROUP_STATE
            )
        except FailureError as error:
            if is_cancelled_exception(error):
                # Not a look that failed: whoever canceled it waits for this task to end.
                raise asyncio.CancelledError from error
            workflow.logger.debug("no look at the members: %s", error)
            return None

    async def _start_one(self, run_id: str, index: int) -> None:
        """Start one member; returns when the engine has it, while its task goes on."""
        start = EpisodeStart(
            run_id=run_id,
            task=self._start.task,
            seed=self._start.seeds[index],
            tags=self._start.tags,
            run_group_id=self._start.run_group_id,
            member_index=index,
            deadline=self._start.deadline,
        )
        policy = workflow.ParentClosePolicy
        try:
            member = await workflow.start_child_workflow(
                names.EPISODE,
                start,
                id=run_id,
                result_type=EpisodeResult,
                parent_close_policy=policy.ABANDON if self.is_large else policy.REQUEST_CANCEL,
                cancellation_type=workflow.ChildWorkflowCancellationType.WAIT_CANCELLATION_COMPLETED,
                id_reuse_policy=WorkflowIDReusePolicy.REJECT_DUPLICATE,
            )
        except WorkflowAlreadyStartedError:
            self._left(run_id)  # its row says how it went
            return
        self._running[run_id] = member
        self._spawn(self._await_child(run_id, member))

    async def _await_child(self, run_id: str, member: Member) -> None:
        try:
            await member
        except FailureError as error:
            workflow.logger.debug("member ended: %s", error)
        self._left(run_id)

    async def _await_inherited(self) -> None:
        while self._inherited:
            ended = await workflow.execute_activity_method(
                GroupActivities.await_members,
                AwaitMembers(run_ids=tuple(self._inherited)),
                **_calls.on(names.CONTROL_QUEUE, _calls.AWAIT_MEMBERS),
            )
            for run_id in ended.run_ids:
                self._left(run_id)

    def _left(self, run_id: str) -> None:
        self._running.pop(run_id, None)
        self._inherited.pop(run_id, None)
        self._has_ended, self._is_counted = True, False
        self.changes += 1

    def _spawn(self, coroutine: Coroutine[Any, Any, None]) -> None:
        task = asyncio.create_task(coroutine)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


def left_of(deadline: timedelta, since: timedelta) -> float:
    """Seconds until a deadline that counts from earlier; none are left once it has passed."""
    return max(0.0, (deadline - since).total_seconds())
