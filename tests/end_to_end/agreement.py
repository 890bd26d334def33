"""The check that ends every test of the whole product: index and Temporal say the same."""

import asyncio
import time
from collections import defaultdict
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta

from temporalio.client import Client, WorkflowExecutionStatus

from agent_env import names
from agent_env.reconciler import Reconciler
from agent_env.runs import RunCursor, RunFilter, RunIndex, RunRecord
from agent_env.status import FINISHED

OUTSIDE = {
    ("CANCELED", WorkflowExecutionStatus.TERMINATED),
    ("FAILED", WorkflowExecutionStatus.TIMED_OUT),
}
"""How a row ends whose workflow something from outside has ended."""


async def disagreements_left(
    client: Client, index: RunIndex, *, within: timedelta = timedelta(seconds=10)
) -> list[str]:
    """What is said differently for longer than Temporal's list of workflows lags behind."""
    deadline = time.monotonic() + within.total_seconds()
    while (found := await disagreements(client, index)) and time.monotonic() < deadline:
        await asyncio.sleep(0.2)
    return found


async def disagreements(client: Client, index: RunIndex) -> list[str]:
    """What index and Temporal say differently of any run, live or ended."""
    look = await Reconciler(client, index, now=lambda: datetime.now(UTC)).look()
    found = [f"{each.target} {each.kind}: {each.detail}" for each in look.found]
    workflows: dict[str, list[WorkflowExecutionStatus | None]] = defaultdict(list)
    async for workflow in client.list_workflows(f"WorkflowType = '{names.EPISODE}'"):
        workflows[workflow.id].append(workflow.status)
    rows = await asyncio.to_thread(lambda: list(_ended(index)))
    return found + [
        f"{row.run_id}: the row is {row.status} ({row.error_type}), Temporal says {said}"
        for row in rows
        if not _is_alike(row, said := workflows.get(row.run_id, []))
    ]


def _is_alike(row: RunRecord, said: list[WorkflowExecutionStatus | None]) -> bool:
    if not said:
        never_started = row.member_index is not None and row.workflow_run_id is None
        return never_started or row.error_type == "WorkflowNotFound"
    # Its last task may not have been done yet: then the worker is gone, and another will do it.
    is_open = WorkflowExecutionStatus.RUNNING in said
    return is_open or any(
        status is not None and (status.name == row.status or (row.status, status) in OUTSIDE)
        for status in said
    )


def _ended(index: RunIndex) -> Iterator[RunRecord]:
    after: RunCursor | None = None
    while True:
        page = index.page(RunFilter(status=FINISHED), after=after, limit=500)
        yield from page.runs
        if page.next is None:
            return
        after = page.next
