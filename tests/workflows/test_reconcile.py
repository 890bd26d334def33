"""workflows/reconcile.py, with scripted looks. What looks find is tested on a real server."""

import asyncio
from collections.abc import Callable

import pytest
from temporalio.client import Client, WorkflowHandle
from temporalio.service import RPCError
from temporalio.testing import WorkflowEnvironment

from agent_env import names
from agent_env.specs import Reconcile, Reconciled
from agent_env.status import RunStatus
from tests.workflows.conftest import EpisodeHarness
from tests.workflows.looks import HOST, Looks, findings, reconciling, repair
from workflows.reconcile import ReconcileWorkflow

HERE = names.host_queue(HOST)


async def start(client: Client, *, once: bool) -> WorkflowHandle[ReconcileWorkflow, Reconciled]:
    return await client.start_workflow(
        names.RECONCILER,
        Reconcile(once=once),
        id=names.RECONCILER_ID,
        task_queue=names.TASK_QUEUE,
        result_type=Reconciled,
    )


async def by_hand(env: WorkflowEnvironment, looks: Looks) -> Reconciled:
    async with reconciling(env.client, looks):
        return await (await start(env.client, once=True)).result()


async def until(condition: Callable[[], bool]) -> None:
    async with asyncio.timeout(30):
        while not condition():
            await asyncio.sleep(0.01)


async def test_a_run_is_ended_where_its_sandboxes_are_and_a_group_anywhere(
    env: WorkflowEnvironment,
) -> None:
    looks = Looks([findings(repair("a"), repair("b", host=None), groups=("g",))])

    done = await by_hand(env, looks)

    assert sorted(looks.repaired) == [
        ("a", HERE),
        ("b", names.CONTROL_QUEUE),
        ("g", names.CONTROL_QUEUE),
    ]
    assert looks.looked == [Reconcile(once=True)]
    assert sorted(each.target for each in done.repaired) == ["a", "b", "g"]
    assert (done.count, done.more) == (3, False)
    assert max(len(each.detail) for each in done.repaired) <= 500


async def test_a_run_whose_host_is_lost_is_ended_on_another(env: WorkflowEnvironment) -> None:
    looks = Looks([findings(repair("a", host="gone"))])

    await by_hand(env, looks)

    assert looks.repaired == [("a", names.CONTROL_QUEUE)]


async def test_by_hand_it_looks_until_there_is_no_more(env: WorkflowEnvironment) -> None:
    looks = Looks([findings(repair("a"), more=True), findings(repair("b"))])

    done = await by_hand(env, looks)

    assert len(looks.looked) == 2
    assert (done.count, done.more) == (2, False)


async def test_by_hand_it_ends_when_there_is_ever_more_and_says_so(
    env: WorkflowEnvironment,
) -> None:
    looks = Looks([findings(more=True) for _ in range(60)])

    done = await by_hand(env, looks)

    assert len(looks.looked) == 50
    assert done.more


async def test_what_could_not_be_repaired_is_told(env: WorkflowEnvironment) -> None:
    looks = Looks([findings(repair("a"), repair("b"))], broken={"a"})

    done = await by_hand(env, looks)

    said = {each.target: (each.changed, each.agrees) for each in done.repaired}
    assert said == {"a": (False, False), "b": (True, True)}
    (failed,) = [each for each in done.repaired if not each.agrees]
    assert failed.detail == "could not be repaired: no such run"


async def test_a_repair_that_hangs_keeps_no_other_waiting_and_is_not_begun_twice(
    env: WorkflowEnvironment,
) -> None:
    go = asyncio.Event()
    looks = Looks([findings(repair("slow"), more=True), findings(repair("b"))], hold={"slow": go})

    async with reconciling(env.client, looks):
        handle = await start(env.client, once=True)
        await until(lambda: looks.repaired == [("b", HERE)])
        go.set()
        await handle.result()

    assert looks.repaired == [("b", HERE), ("slow", HERE)]
    assert looks.looked[1].under_way == ("slow",)


async def test_it_watches_on_as_new_once_its_history_grows(env: WorkflowEnvironment) -> None:
    looks = Looks([findings(repair("a"))])

    async with reconciling(env.client, looks):
        handle = await start(env.client, once=False)
        await until(lambda: len(looks.looked) > 60)
        latest = await env.client.get_workflow_handle(handle.id).describe()
        await env.client.get_workflow_handle(handle.id).terminate()

    assert latest.run_id != handle.first_execution_run_id
    assert looks.repaired == [("a", HERE)]
    assert {order.once for order in looks.looked} == {False}


async def test_a_server_that_can_not_list_has_no_reconciler_and_its_worker_serves(
    episodes: EpisodeHarness,
) -> None:
    result = await episodes.play({"id": "a"})

    assert result.status is RunStatus.COMPLETED
    with pytest.raises(RPCError, match="not found"):
        await episodes.client.get_workflow_handle(names.RECONCILER_ID).describe()
