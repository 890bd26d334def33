"""A run is terminated between the end of its row and that of its workflow: both say so."""

import asyncio
import os
import signal
from collections.abc import AsyncGenerator, Sequence
from contextlib import asynccontextmanager
from datetime import UTC, datetime
from pathlib import Path

from agent_env.disagreements import Kind
from agent_env.embedded import find_running
from agent_env.episode import EpisodeSpec
from agent_env.reconciler import Reconciler
from agent_env.status import RunStatus
from tests.end_to_end.conftest import Product, asleep, on_both, processes_with
from tests.end_to_end.outside import SOON, soon, terminate
from tests.end_to_end.stage import box, command, sandbox_folders, spec
from tests.end_to_end.tampering import execute
from tests.end_to_end.who_dies import LONG, Steps, nap, worker

COMPLETED, CANCELED = RunStatus.COMPLETED, RunStatus.CANCELED


def scored(steps: Steps, sleep: str) -> EpisodeSpec:
    return spec(box(), steps.nap("nap", sleep), command("score", "echo 0.5", score_from="stdout"))


@asynccontextmanager
async def row_ended_first(
    product: Product, sleep: str, run_ids: Sequence[str]
) -> AsyncGenerator[None]:
    """The rows end, and then worker and server die before the workflows can. Start them inside."""
    with worker(product) as first:
        yield
        await product.until(lambda: len(asleep(sleep)) == len(run_ids), LONG)
        server = find_running(product.state_dir)
        assert server is not None
        os.kill(server.pid, signal.SIGSTOP)
        await product.until(
            lambda: {product.index.get(run_id).status for run_id in run_ids} == {COMPLETED}, LONG
        )
        await asyncio.to_thread(first.kill)
        # What the worker told it meanwhile, it has not read.
        os.kill(server.pid, signal.SIGKILL)


async def checked(product: Product) -> list[dict[str, str]]:
    """What a check finds, once it finds anything."""
    cli = product.cli()
    async with asyncio.timeout(SOON.total_seconds()):
        while True:
            check = await asyncio.to_thread(cli.run, "reconcile", "--check", "--json")
            if check.code == 1:
                return check.json["items"]


@on_both
async def test_the_row_of_a_terminated_run_says_so_though_it_had_ended(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps = nap(3), Steps(tmp_path)
    async with row_ended_first(product, sleep, ["late"]):
        episode = await product.trainer.start(scored(steps, sleep), run_id="late")
    before = product.index.get("late")

    await terminate(product, "late", "too late")
    found = await checked(product)
    between = product.index.get("late")
    waiting = asyncio.create_task(episode.result())
    with worker(product):
        result = await soon(waiting)
    row = product.index.get("late")

    detail = "COMPLETED, and should be CANCELED terminated: too late"
    assert found == [{"target": "late", "kind": "overruled", "detail": detail}]
    assert between == before
    assert (result.status, result.error) == (CANCELED, "terminated: too late")
    assert (row.status, row.cancel_requested_by) == (CANCELED, "Temporal")
    assert (row.reward, row.scores) == (before.reward, before.scores) == (0.5, {"score": 0.5})
    assert row.finished_at == before.finished_at
    assert steps.times("nap") == 1
    assert processes_with(sleep) == sandbox_folders(product) == []


async def test_a_group_is_told_as_its_rows_will_be(product: Product, tmp_path: Path) -> None:
    sleep, steps = nap(3), Steps(tmp_path)
    members = ["grp-0000", "grp-0001"]
    async with row_ended_first(product, sleep, members):
        group = await product.trainer.start_group(scored(steps, sleep), size=2, run_group_id="grp")

    await terminate(product, members[0], "too late")
    waiting = asyncio.create_task(group.result())
    with worker(product):
        result = await soon(waiting)

    assert [member.run_id for member in result.members] == members
    assert [member.status for member in result.members] == [CANCELED, COMPLETED]
    assert [member.reward for member in result.members] == [0.5, 0.5]
    assert (result.figures.completed, result.figures.canceled) == (1, 1)
    assert await group.snapshot() == result
    assert steps.times("nap") == 2


async def test_a_row_is_looked_at_again_for_a_while_after_it_has_agreed(
    product: Product, tmp_path: Path
) -> None:
    sleep, steps = nap(), Steps(tmp_path)
    with worker(product):
        episode = await product.trainer.start(spec(box(), steps.nap("nap", sleep)))
        await product.until(lambda: len(asleep(sleep)) == 1, LONG)
        await terminate(product, episode.run_id, "wrong")
        await soon(episode.result())
    looking = Reconciler(product.trainer.client, product.index, now=lambda: datetime.now(UTC))

    agreed = await looking.look()
    # As a host writes it that was asleep since before the end.
    execute(
        product,
        "UPDATE runs SET status = 'COMPLETED' WHERE run_id = :run_id",
        run_id=episode.run_id,
    )
    late = await looking.look()
    ignoring = await looking.look(ignore=[episode.run_id])
    with worker(product):
        await product.until(
            lambda: product.index.get(episode.run_id).status is CANCELED, within=SOON
        )

    assert (agreed.found, ignoring.found) == ((), ())
    assert [(each.kind, each.target) for each in late.found] == [(Kind.OVERRULED, episode.run_id)]
