"""Calls of activities on the host that has an episode."""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any, TypeVar

from temporalio import workflow
from temporalio.exceptions import FailureError, is_cancelled_exception
from temporalio.workflow import ActivityConfig

from agent_env import names
from agent_env.specs import Finish, Placement, RunSteps
from agent_env.turns import BeginTurn, PlayTurn
from workflows import _calls
from workflows._faults import progress_of

Order = TypeVar("Order", RunSteps, Finish, BeginTurn, PlayTurn)
_T = TypeVar("_T")


class Host:
    """One host. Its work goes over its queue, where it waits for ``host_lost_after`` at most.

    The worker that took an episode as it listed it runs its workflow, too. That one is handed the
    work with the answer to the workflow task: two writes of the engine less. It is tried once; what
    goes wrong then, or has come to another worker meanwhile, goes over the queue.

    Args:
        placement: Where the episode runs.
    """

    def __init__(self, placement: Placement) -> None:
        assert placement.host is not None
        self.name = placement.host
        self.policy = placement.policy
        self._is_eager = placement.eager

    async def call(
        self, method: Callable[[Any, Order], Awaitable[_T]], order: Order, call: ActivityConfig
    ) -> _T:
        """Have it done there.

        Raises:
            FailureError: it could not be done, or was canceled; ``is_host_lost`` tells of a host
                that does not answer.
        """
        if self._is_eager:
            try:
                return await workflow.execute_activity_method(
                    method,
                    order.model_copy(update={"host": self.name}),
                    **_calls.eager(call),
                )
            except FailureError as error:
                task = asyncio.current_task()
                if is_cancelled_exception(error) or (task is not None and task.cancelling()):
                    raise
                self._is_eager = False
                if isinstance(order, RunSteps):
                    order = order.model_copy(update={"earlier": progress_of(error)})
                elif isinstance(order, PlayTurn):
                    order = order.model_copy(update={"is_rerun": True})
        return await workflow.execute_activity_method(
            method,
            order,
            **_calls.on(
                names.host_queue(self.name), call, host_lost_after=self.policy.host_lost_after
            ),
        )
