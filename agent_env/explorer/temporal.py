"""What the explorer asks Temporal, always with a bound: a page never waits for a server."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Sequence
from datetime import UTC, datetime
from typing import NamedTuple, TypeVar

from temporalio.api.enums.v1 import PendingActivityState, TaskQueueType
from temporalio.api.taskqueue.v1 import TaskQueue
from temporalio.api.workflowservice.v1 import DescribeTaskQueueRequest
from temporalio.client import Client
from temporalio.service import RPCError, RPCStatusCode

from agent_env import names
from agent_env.errors import AgentEnvError, UnavailableError, bounded, error_text
from agent_env.explorer.run_views import PendingWork

_ANSWER_S = 2.0
"""How long an answer may take, in seconds."""
_LEFT_ALONE_S = 3.0
"""How long a server that did not answer is not asked again, in seconds."""
_STATES = {
    PendingActivityState.PENDING_ACTIVITY_STATE_SCHEDULED: "scheduled",
    PendingActivityState.PENDING_ACTIVITY_STATE_STARTED: "started",
    PendingActivityState.PENDING_ACTIVITY_STATE_CANCEL_REQUESTED: "cancel requested",
    PendingActivityState.PENDING_ACTIVITY_STATE_PAUSED: "paused",
    PendingActivityState.PENDING_ACTIVITY_STATE_PAUSE_REQUESTED: "paused",
}

T = TypeVar("T")


class Poller(NamedTuple):
    """Who polls a queue."""

    identity: str
    last_seen: datetime | None


class QueueState(NamedTuple):
    """A task queue as Temporal describes it."""

    name: str
    backlog: int | None
    oldest_s: float | None
    pollers: tuple[Poller, ...]


class Temporal:
    """A connection that is made when it is needed and made anew when it was lost.

    Args:
        connect: Makes a client; raises UnavailableError when no server answers.
        answer_s: How long an answer may take.
    """

    def __init__(
        self, connect: Callable[[], Awaitable[Client]], *, answer_s: float = _ANSWER_S
    ) -> None:
        self._connect = connect
        self._answer_s = answer_s
        self._client: Client | None = None
        self._trouble: str | None = None
        self._asked_at = 0.0
        self._connecting = asyncio.Lock()

    @property
    def trouble(self) -> str | None:
        """Why the server can't be reached, as of the last time; None if it could."""
        return self._trouble

    @property
    def address(self) -> str | None:
        """Where the server was last reached."""
        return None if self._client is None else self._client.service_client.config.target_host

    @property
    def namespace(self) -> str | None:
        """The namespace that episodes are in."""
        return None if self._client is None else self._client.namespace

    async def client(self) -> Client:
        """A client of a server that answered, the last time it was asked.

        Raises:
            UnavailableError: it does not answer; for a few seconds it is not asked again.
        """
        if self._trouble is not None and time.monotonic() < self._asked_at + _LEFT_ALONE_S:
            raise UnavailableError(self._trouble)
        async with self._connecting:
            if self._client is None:
                try:
                    async with asyncio.timeout(self._answer_s):
                        self._client = await self._connect()
                except (AgentEnvError, TimeoutError) as error:
                    raise self._lost(error) from error
            return self._client

    async def asked(self, question: Callable[[Client], Awaitable[T]]) -> T:
        """The answer to a question.

        Raises:
            UnavailableError: the server does not answer in time.
            RPCError: it answers, with an error that is about the question.
        """
        client = await self.client()
        try:
            async with asyncio.timeout(self._answer_s):
                answer = await question(client)
        except TimeoutError as error:
            raise self._lost(error) from error
        except RPCError as error:
            if error.status in (RPCStatusCode.UNAVAILABLE, RPCStatusCode.DEADLINE_EXCEEDED):
                raise self._lost(error) from error
            raise
        self._trouble = None
        return answer

    async def pending(self, run_id: str) -> tuple[PendingWork, ...]:
        """What the run's workflow waits for; nothing when there is no such workflow."""
        try:
            found = await self.asked(lambda client: client.get_workflow_handle(run_id).describe())
        except RPCError as error:
            if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
                return ()
            raise
        return tuple(
            PendingWork(
                name=activity.activity_type.name.removeprefix("agent_env."),
                attempt=activity.attempt,
                state=_STATES.get(activity.state, "unknown"),
                last_failure=bounded(activity.last_failure.message, 500) or None,
                next_attempt_at=activity.scheduled_time.ToDatetime(UTC)
                if activity.HasField("scheduled_time") and activity.attempt > 1
                else None,
            )
            for activity in found.raw_description.pending_activities
        )

    async def queues(self, hosts: Sequence[str]) -> tuple[QueueState, ...]:
        """The queues that every worker polls, and those of these hosts.

        Raises:
            UnavailableError: the server does not answer.
        """
        workflows, activities = (
            TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW,
            TaskQueueType.TASK_QUEUE_TYPE_ACTIVITY,
        )
        wanted = [(names.TASK_QUEUE, workflows), (names.TASK_QUEUE, activities)]
        wanted += [(names.CONTROL_QUEUE, activities), (names.RECONCILE_QUEUE, activities)]
        wanted += [(names.host_queue(host), activities) for host in hosts]
        return tuple(await asyncio.gather(*(self._queue(*one) for one in wanted)))

    async def _queue(self, name: str, kind: TaskQueueType.ValueType) -> QueueState:
        async def ask(client: Client) -> QueueState:
            found = await client.workflow_service.describe_task_queue(
                DescribeTaskQueueRequest(
                    namespace=client.namespace,
                    task_queue=TaskQueue(name=name),
                    task_queue_type=kind,
                    report_stats=True,
                ),
                retry=False,
            )
            has_stats = found.HasField("stats")
            age = found.stats.approximate_backlog_age
            is_workflow = kind is TaskQueueType.TASK_QUEUE_TYPE_WORKFLOW
            return QueueState(
                name=f"{name} (workflows)" if is_workflow else name,
                backlog=found.stats.approximate_backlog_count if has_stats else None,
                oldest_s=age.ToTimedelta().total_seconds() if has_stats else None,
                pollers=tuple(
                    Poller(
                        poller.identity,
                        poller.last_access_time.ToDatetime(UTC)
                        if poller.HasField("last_access_time")
                        else None,
                    )
                    for poller in found.pollers
                ),
            )

        return await self.asked(ask)

    def _lost(self, error: Exception) -> UnavailableError:
        self._client = None  # the next one may be at another address
        self._asked_at = time.monotonic()
        said = error.message if isinstance(error, RPCError) else error_text(error)
        self._trouble = said or f"Temporal has not answered for {self._answer_s:g} s"
        return UnavailableError(self._trouble)
