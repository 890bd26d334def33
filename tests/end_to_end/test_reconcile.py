"""Workflows end with none of our code run; their rows and sandboxes end all the same."""

import asyncio
import random
from datetime import timedelta
from pathlib import Path

from temporalio.api.common.v1 import WorkflowExecution
from temporalio.api.workflowservice.v1 import DeleteWorkflowExecutionRequest
from temporalio.client import (
    WorkflowExecutionStatus,
)

from agent_env import names
from agent_env.errors import RunNotFoundError
from agent_env.specs import EpisodeStart
from agent_env.status import RunStatus, StepStatus
from tests.end_to_end.conftest import Product, on_both, processes_with
from tests.end_to_end.outside import (
    NEVER,
    ONE,
    SOON,
    ended,
    nap,
    napping,
    soon,
    started,
    terminate,
)
from tests.end_to_end.stage import box, command, sandbox_folders, spec
from tests.end_to_end.tampering import execute


async def delete(product: Product, workflow_id: str) -> None:
    """As ``temporal workflow delete`` does; returns when Temporal knows it no more."""
    client = product.trainer.client
    await client.workflow_service.delete_workflow_execution(
        DeleteWorkflowExecutionRequest(
            namespace=client.namespace,
            workflow_execution=WorkflowExecution(workflow_id=workflow_id),
        )
    )


def drop_row(product: Product, run_id: str) -> None:
    execute(product, "DELETE FROM runs WHERE run_id = :run_id", run_id=run_id)


def make_live(product: Product, run_id: str) -> None:
    """Undo the end of a row."""
    lost = "error_type = NULL, error = NULL, reward = NULL, scores = '{}', finished_at = NULL"
    execute(
        product,
        f"UPDATE runs SET status = 'RUNNING', {lost} WHERE run_id = :run_id",
        run_id=run_id,
    )


def is_listed(product: Product, run_id: str) -> bool:
    try:
        product.index.get(run_id)
    except RunNotFoundError:
        return False
    return True


@on_both
async def test_a_run_terminated_in_a_step_is_torn_down_and_ends_canceled(product: Product) -> None:
    """C10."""
    line = nap()
    with product.worker():
        episode = await started(product, line)

        await terminate(product, episode.run_id, "wrong prompt")
        result = await soon(episode.result())

        row = product.index.get(episode.run_id)
        assert (result.status, result.error) == (RunStatus.CANCELED, "terminated: wrong prompt")
        assert (row.status, row.cancel_requested_by) == (RunStatus.CANCELED, "Temporal")
        assert processes_with(line) == []
        assert sandbox_folders(product) == []
        assert list((product.state_dir / "work").glob("*/*")) == []
        (kept,) = product.index.steps(episode.run_id)
        assert (kept.step_id, kept.status) == ("box", StepStatus.COMPLETED)
        assert not kept.retried


async def test_a_run_terminated_while_queued_ends_canceled_and_frees_nobodys_place(
    product: Product,
) -> None:
    line = nap()
    with product.worker(environ=ONE):
        running = await started(product, line)
        queued = await product.trainer.start(spec(box(), command("never", "true")))
        assert product.index.get(queued.run_id).status is RunStatus.QUEUED

        await terminate(product, queued.run_id, "not needed")

        error = await ended(product, queued.run_id, RunStatus.CANCELED)
        assert error == "terminated: not needed"
        assert product.index.get(running.run_id).status is RunStatus.RUNNING
        assert processes_with(line)
        await running.cancel("enough")
        await running.result()


async def test_a_timeout_set_from_outside_ends_the_run_failed(product: Product) -> None:
    line = nap()
    start = EpisodeStart(run_id="timed", task=napping(line).task)
    with product.worker():
        await product.trainer.client.start_workflow(
            names.EPISODE,
            start,
            id="timed",
            task_queue=names.TASK_QUEUE,
            execution_timeout=timedelta(seconds=8),
        )
        await product.until(lambda: bool(processes_with(line)), within=SOON)

        error = await ended(product, "timed", RunStatus.FAILED)

        assert error.startswith("timed out: ")
        assert product.index.get("timed").error_type == "WorkflowTimedOut"
        assert processes_with(line) == []
        assert sandbox_folders(product) == []


async def test_a_deleted_history_ends_the_run_failed(product: Product) -> None:
    line = nap()
    with product.worker():
        episode = await started(product, line)

        await delete(product, episode.run_id)

        error = await ended(product, episode.run_id, RunStatus.FAILED)
        assert error.startswith("workflow not found: ")
        assert product.index.get(episode.run_id).error_type == "WorkflowNotFound"
        assert processes_with(line) == []
        assert sandbox_folders(product) == []


@on_both
async def test_a_row_deleted_while_its_run_is_open_is_listed_again_where_it_runs(
    product: Product, tmp_path: Path
) -> None:
    """L15."""
    go = tmp_path / "go"
    line = f"for i in $(seq 6000); do [ -e {go} ] && exit; sleep 0.1; done # {nap()}"
    with product.worker():
        episode = await product.trainer.start(spec(box(), command("long", line)))
        await product.until(lambda: bool(processes_with(line[-20:])), within=SOON)
        before = product.index.get(episode.run_id)

        drop_row(product, episode.run_id)
        await product.until(lambda: is_listed(product, episode.run_id), within=SOON)
        after = product.index.get(episode.run_id)
        await episode.cancel("seen enough")
        result = await episode.result()

        assert (after.status, after.host) == (RunStatus.RUNNING, before.host)
        assert (after.workflow_run_id, after.task_id) == (before.workflow_run_id, before.task_id)
        assert after.steps_total == before.steps_total
        assert (result.status, result.error) == (RunStatus.CANCELED, "seen enough")


async def test_the_terminal_write_restores_a_deleted_row(product: Product) -> None:
    """L15."""
    line = f"sleep 3.{random.randrange(10**6, 10**7)}; echo done"
    with product.worker(environ=NEVER):
        episode = await product.trainer.start(spec(box(), command("long", line)))
        await product.until(lambda: bool(processes_with(line)), within=SOON)
        drop_row(product, episode.run_id)

        result = await episode.result()

    row = product.index.get(episode.run_id)
    assert result.status is row.status is RunStatus.COMPLETED
    assert [step.step_id for step in product.index.steps(episode.run_id)] == ["box", "long"]


async def test_an_end_that_the_index_has_lost_is_taken_from_the_workflow(product: Product) -> None:
    """As after a database was restored from a copy."""
    line = nap()
    with product.worker():
        good = await product.trainer.start(
            spec(box(), command("score", "echo 0.5", score_from="stdout"))
        )
        bad = await product.trainer.start(spec(box(), command("breaks", "exit 3")))
        canceled = await started(product, line)
        await canceled.cancel("enough", by="tester")
        results = [await episode.result() for episode in (good, bad, canceled)]

    for result in results:
        make_live(product, result.run_id)
    with product.worker():
        for result in results:
            await ended(product, result.run_id, result.status)
    rows = [product.index.get(result.run_id) for result in results]

    facts = ("status", "error_type", "error", "reward", "scores")
    assert [[getattr(row, fact) for fact in facts] for row in rows] == [
        [getattr(result, fact) for fact in facts] for result in results
    ]
    assert results[0].reward == 0.5
    assert rows[2].error == "enough"


async def test_a_cancel_asked_while_no_server_ran_is_asked_again(product: Product) -> None:
    line = nap()
    away = product.cli(TEMPORAL_ADDRESS="127.0.0.1:9")
    with product.worker():
        episode = await started(product, line)

        said = await asyncio.to_thread(away.run, "cancel", episode.run_id, "--reason", "too slow")
        result = await soon(episode.result())

    assert said.code == 5
    assert "the request is kept" in said.err
    assert (result.status, result.error) == (RunStatus.CANCELED, "too slow")
    assert await product.status(episode.run_id) is WorkflowExecutionStatus.CANCELED


async def test_the_members_of_a_group_that_was_terminated_all_end(product: Product) -> None:
    line = nap()
    with product.worker():
        group = await product.trainer.start_group(napping(line), size=5, max_parallel=2)
        await product.until(lambda: len(processes_with(line)) >= 2, within=SOON)

        await terminate(product, group.run_group_id, "wrong group")
        result = await soon(group.result())

        assert {member.status for member in result.members} == {RunStatus.CANCELED}
        waited = [member.error for member in result.members[2:]]
        assert waited == ["terminated: wrong group (the group)"] * 3
        assert processes_with(line) == []
        assert sandbox_folders(product) == []


async def test_a_member_that_outlives_its_terminated_group_is_canceled(product: Product) -> None:
    """As those of a group do that is longer than one history."""
    line = nap()
    with product.worker():
        group = await product.trainer.start_group(napping(line), size=1)
        await product.until(lambda: bool(processes_with(line)), within=SOON)
        orphan = EpisodeStart(
            run_id="orphan",
            task=napping(line).task,
            run_group_id=group.run_group_id,
            member_index=1,
        )
        await product.trainer.client.start_workflow(
            names.EPISODE, orphan, id="orphan", task_queue=names.TASK_QUEUE
        )
        await product.until(lambda: len(processes_with(line)) >= 2, within=SOON)

        await terminate(product, group.run_group_id, "wrong group")
        result = await soon(group.result())
        await soon(product.trainer.attach("orphan").result())  # its workflow ends after its row

        assert result.members[1].run_id == "orphan"
        assert result.members[1].error == "terminated: wrong group (the group)"
        assert {member.status for member in result.members} == {RunStatus.CANCELED}
        assert await product.status("orphan") is WorkflowExecutionStatus.CANCELED


async def test_a_group_whose_cancel_was_asked_while_no_server_ran_is_canceled(
    product: Product,
) -> None:
    line = nap()
    away = product.cli(TEMPORAL_ADDRESS="127.0.0.1:9")
    with product.worker():
        group = await product.trainer.start_group(napping(line), size=4, max_parallel=1)
        await product.until(lambda: bool(processes_with(line)), within=SOON)

        said = await asyncio.to_thread(
            away.run, "groups", "cancel", group.run_group_id, "--reason", "too slow", "--yes"
        )
        result = await soon(group.result())

    assert said.code == 5
    assert {(m.status, m.error) for m in result.members} == {(RunStatus.CANCELED, "too slow")}
    assert all(member.started_at is None for member in result.members[1:])
