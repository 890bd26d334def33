"""A reconciler whose looks are scripted: what it finds, and how its repairs go."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass, field
from datetime import timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.worker import Worker

from agent_env import names
from agent_env.outcome import Outcome
from agent_env.specs import CancelMembers, Findings, Reconcile, Repair, Repaired
from agent_env.status import RunStatus
from workflows.registry import WORKFLOWS

HOST = "here"


def repair(run_id: str, host: str | None = HOST) -> Repair:
    ended = Outcome(status=RunStatus.CANCELED, error_type="Canceled", error="terminated: no")
    return Repair(run_id=run_id, workflow_run_id="w", host=host, outcome=ended)


def findings(*repairs: Repair, groups: tuple[str, ...] = (), more: bool = False) -> Findings:
    return Findings(
        repairs=repairs,
        groups=tuple(CancelMembers(run_group_id=group, reason="no") for group in groups),
        more=more,
        host_lost_after=timedelta(milliseconds=300),
    )


@dataclass
class Looks:
    """The activities of a reconciler."""

    finds: list[Findings]
    """Of each look; those after the last find nothing."""
    looked: list[Reconcile] = field(default_factory=list[Reconcile])
    repaired: list[tuple[str, str]] = field(default_factory=list[tuple[str, str]])
    """Runs and groups, and the queue where that was."""
    hold: dict[str, asyncio.Event] = field(default_factory=dict[str, asyncio.Event])
    """Repairs that wait until they are let go."""
    broken: set[str] = field(default_factory=set[str])

    @activity.defn(name=names.RECONCILE)
    async def reconcile(self, order: Reconcile) -> Findings:
        self.looked.append(order)
        return self.finds.pop(0) if self.finds else Findings()

    @activity.defn(name=names.REPAIR)
    async def repair(self, order: Repair) -> Repaired:
        if order.run_id in self.broken:
            raise ApplicationError("no such run", type="RunNotFound", non_retryable=True)
        if order.run_id in self.hold:
            await self.hold[order.run_id].wait()
        self.repaired.append((order.run_id, activity.info().task_queue))
        return Repaired(target=order.run_id, changed=True, detail="x" * 10_000)

    @activity.defn(name=names.CANCEL_GROUP)
    async def cancel_group(self, order: CancelMembers) -> None:
        self.repaired.append((order.run_group_id, activity.info().task_queue))


@asynccontextmanager
async def reconciling(client: Client, looks: Looks) -> AsyncGenerator[None]:
    """Serve the workflow, with these activities."""
    ending = [looks.repair, looks.cancel_group]
    async with AsyncExitStack() as stack:
        for queue, activities in (
            (names.RECONCILE_QUEUE, [looks.reconcile]),
            (names.host_queue(HOST), [looks.repair]),
            (names.CONTROL_QUEUE, ending),
        ):
            worker = Worker(client, task_queue=queue, activities=activities)
            await stack.enter_async_context(worker)
        flows = Worker(client, task_queue=names.TASK_QUEUE, workflows=WORKFLOWS)
        await stack.enter_async_context(flows)
        yield
