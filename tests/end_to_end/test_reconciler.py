"""There is one reconciler, it outlives whoever dies, costs little, and works by hand."""

import asyncio
import os
import signal
from collections import Counter
from datetime import UTC, datetime, timedelta

import pytest
from temporalio.api.enums.v1 import EventType, PendingActivityState
from temporalio.client import (
    Client,
    DescribeWorkflowInput,
    Interceptor,
    ListWorkflowsInput,
    OutboundInterceptor,
    WorkflowExecutionAsyncIterator,
    WorkflowExecutionDescription,
    WorkflowExecutionStatus,
)
from temporalio.service import RPCError
from typing_extensions import override

from agent_env import _keep_reconciler, names, reconciler
from agent_env._keep_reconciler import reconciler_kept
from agent_env.disagreements import Opened
from agent_env.embedded import find_running
from agent_env.plugin import EpisodePlugin
from agent_env.reconciler import Reconciler
from agent_env.runs import new_run
from agent_env.specs import EpisodeStart
from agent_env.status import RunStatus
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.outside import (
    NEVER,
    ONE,
    SOON,
    ended,
    nap,
    napping,
    started,
    terminate,
)
from tests.end_to_end.stage import box, command, spec


async def test_by_hand_it_checks_repairs_and_says_what_it_did(product: Product) -> None:
    line = nap()
    cli = product.cli()
    with product.worker(environ=NEVER):
        episode = await started(product, line)
        agreed = await asyncio.to_thread(cli.run, "reconcile", "--check", "--json")
        await terminate(product, episode.run_id, "by hand")

        checked = agreed
        async with asyncio.timeout(SOON.total_seconds()):
            while not checked.code:
                checked = await asyncio.to_thread(cli.run, "reconcile", "--check", "--json")
        still = product.index.get(episode.run_id).status
        repaired = await asyncio.to_thread(cli.run, "reconcile", "--json")
        again = await asyncio.to_thread(cli.run, "reconcile", "--check")
        nothing = await asyncio.to_thread(cli.run, "reconcile", "--json")

    assert (agreed.code, agreed.json["items"]) == (0, [])
    assert (checked.code, still) == (1, RunStatus.RUNNING)
    detail = "CANCELED terminated: by hand"
    assert checked.json["items"] == [{"target": episode.run_id, "kind": "ended", "detail": detail}]
    assert repaired.code == 0
    assert repaired.json["items"] == [
        {"target": episode.run_id, "changed": True, "detail": detail, "agrees": True}
    ]
    assert (again.code, nothing.code, nothing.json["items"]) == (0, 0, [])
    assert "all agree: 0 live runs" in again.err
    assert processes_with(line) == []


async def test_without_a_worker_it_only_checks(product: Product) -> None:
    cli = product.cli()

    checked = await asyncio.to_thread(cli.run, "reconcile", "--check")
    said = await asyncio.to_thread(cli.run, "reconcile", "--json")

    assert checked.code == 0
    assert said.code == 5
    assert "no worker serves the state folder" in said.json["error"]["message"]
    assert "--check" in said.json["error"]["message"]


async def test_one_reconciler_serves_many_workers_and_outlives_each_and_the_server(
    product: Product, tmp_path_factory: pytest.TempPathFactory
) -> None:
    server = find_running(product.state_dir)
    assert server is not None
    with product.worker() as first:
        async with asyncio.timeout(SOON.total_seconds()):
            while await reconcilers(product) == 0:
                await asyncio.sleep(0.05)
        with product.worker(tmp_path_factory.mktemp("other")):
            line = nap()
            episode = await product.trainer.start(napping(line))
            await asyncio.to_thread(first.kill)
            os.kill(server.pid, signal.SIGKILL)
            await terminate(product, episode.run_id, "all at once")

            error = await ended(product, episode.run_id, RunStatus.CANCELED)

            assert error == "terminated: all at once"
            assert await reconcilers(product) == 1


async def test_a_worker_asked_to_stop_hands_the_looking_on(product: Product) -> None:
    line = nap()
    with product.worker() as first:
        await until_it_looks(product)
        await asyncio.to_thread(first.end)
    with product.worker(environ=NEVER):
        episode = await started(product, line)
        await terminate(product, episode.run_id, "handed on")
        await until_it_looks(product)
    with product.worker():
        error = await ended(product, episode.run_id, RunStatus.CANCELED)

    client = product.trainer.client
    history = await client.get_workflow_handle(names.RECONCILER_ID).fetch_history()
    assert error == "terminated: handed on"
    # Each was answered: none had to be given up because its worker no longer heartbeat. The third
    # worker may find its repair in the second one's answer: then its own look isn't in there yet.
    began = EventType.EVENT_TYPE_ACTIVITY_TASK_STARTED
    starts = [event for event in history.events if event.event_type == began]
    assert len(starts) >= 2
    attempts = [event.activity_task_started_event_attributes.attempt for event in starts]
    assert set(attempts) == {1}


async def until_it_looks(product: Product) -> None:
    async with asyncio.timeout(SOON.total_seconds()):
        while not await looks(product):
            await asyncio.sleep(0.05)


async def looks(product: Product) -> bool:
    """Whether a worker holds the activity that looks."""
    handle = product.trainer.client.get_workflow_handle(names.RECONCILER_ID)
    try:
        pending = (await handle.describe()).raw_description.pending_activities
    except RPCError:
        return False
    started = PendingActivityState.PENDING_ACTIVITY_STATE_STARTED
    return any(
        each.activity_type.name == names.RECONCILE and each.state == started for each in pending
    )


async def test_a_reconciler_that_was_terminated_is_started_again(
    product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_keep_reconciler, "_LOOK_AGAIN_S", 0.1)
    client = product.trainer.client

    async with reconciler_kept(client), asyncio.timeout(SOON.total_seconds()):
        while await reconcilers(product) == 0:
            await asyncio.sleep(0.05)
        first = await client.get_workflow_handle(names.RECONCILER_ID).describe()
        await terminate(product, names.RECONCILER_ID)
        latest = first
        while latest.run_id == first.run_id:
            latest = await client.get_workflow_handle(names.RECONCILER_ID).describe()

    assert latest.status is WorkflowExecutionStatus.RUNNING


async def test_a_listing_that_lags_ends_nothing(
    product: Product, monkeypatch: pytest.MonkeyPatch
) -> None:
    line = nap()
    with product.worker(environ=NEVER | ONE):
        running = await started(product, line)
        queued = await product.trainer.start(napping(line))
        group = await product.trainer.start_group(napping(line), size=3, max_parallel=1)
        hour = timedelta(hours=1)
        later = Reconciler(
            product.trainer.client, product.index, now=lambda: datetime.now(UTC) + hour
        )
        with monkeypatch.context() as patch:
            patch.setattr(reconciler, "open_workflows", nothing_open)
            lagging = await later.look()
        await group.cancel("seen enough")
        for episode in (running, queued):
            await episode.cancel("seen enough")
            await episode.result()
        await group.result()

    assert (lagging.found, lagging.live, lagging.open) == ((), 5, 0)


async def nothing_open(client: Client) -> Opened:
    return Opened({}, {})


async def test_five_hundred_live_rows_take_two_listings_and_no_question_each(
    product: Product,
) -> None:
    calls = Counter[str]()
    client = await Client.connect(
        product.server.address, plugins=[EpisodePlugin()], interceptors=[Counting(calls)]
    )
    task = spec(box(), command("never", "true")).task
    begun = datetime.now(UTC)
    starts = [EpisodeStart(run_id=f"many-{number}", task=task) for number in range(500)]
    for first in range(0, 500, 50):
        handles = await asyncio.gather(
            *(
                client.start_workflow(names.EPISODE, start, id=start.run_id, task_queue="nobody")
                for start in starts[first : first + 50]
            )
        )
        for start, handle in zip(starts[first : first + 50], handles, strict=True):
            run = new_run(
                start,
                workflow_run_id=handle.first_execution_run_id,
                namespace="default",
                created_at=begun - timedelta(hours=1),
            )
            product.index.restore_run(run, host=None, at=begun)
    looking = Reconciler(client, product.index, now=lambda: datetime.now(UTC))
    async with asyncio.timeout(SOON.total_seconds()):
        while (await looking.look()).open < 500:  # Temporal lists with a short delay
            await asyncio.sleep(0.1)
    calls.clear()

    look = await looking.look()

    assert (look.found, look.live, look.open) == ((), 500, 500)
    # What is open, and what was ended from outside.
    assert calls == {"list_workflows": 2}


class Counting(Interceptor):
    """Counts what a client asks of Temporal, listings and descriptions."""

    def __init__(self, calls: Counter[str]) -> None:
        self._calls = calls

    @override
    def intercept_client(self, next: OutboundInterceptor) -> OutboundInterceptor:
        calls = self._calls

        class Counted(OutboundInterceptor):
            @override
            def list_workflows(self, input: ListWorkflowsInput) -> WorkflowExecutionAsyncIterator:
                calls["list_workflows"] += 1
                return super().list_workflows(input)

            @override
            async def describe_workflow(
                self, input: DescribeWorkflowInput
            ) -> WorkflowExecutionDescription:
                calls["describe_workflow"] += 1
                return await super().describe_workflow(input)

        return Counted(next)


async def reconcilers(product: Product) -> int:
    """Open workflows that reconcile."""
    query = f"WorkflowType = '{names.RECONCILER}' AND ExecutionStatus = 'Running'"
    return (await product.trainer.client.count_workflows(query)).count
