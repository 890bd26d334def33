"""Starts that are refused and starts that meet each other, through a real worker."""

import asyncio
import gc
import resource
from collections.abc import Callable, Generator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path

import pytest
from temporalio.client import WorkflowHandle

from agent_env._executions import open_workflows
from agent_env.config import Settings
from agent_env.episode import Episode
from agent_env.errors import ConflictError, IndexUnavailableError
from agent_env.runs import RunFilter
from agent_env.status import RunStatus
from agent_env.trainer import Trainer
from tests.agent_env.cli.stage import Cli
from tests.end_to_end.conftest import Product, WorkerProcess, on_both
from tests.end_to_end.stage import box, command, sandbox_folders, spec
from tests.end_to_end.tampering import execute, other_password

REFUSED_STARTS = {"sqlite": 1000, "postgresql": 200}
"""In all, in two halves that are compared; fewer where each takes longer."""
AT_ONCE = 50

PASSES = spec(box(), command("score", "echo 1", score_from="stdout"))


Trouble = Callable[[Product, WorkerProcess], AbstractContextManager[str]]
"""Keeps a worker from writing its index while entered; gives what is then said."""


@contextmanager
def no_table(product: Product, worker: WorkerProcess) -> Generator[str]:
    """Somebody renamed the index's table while the worker runs."""
    execute(product, "ALTER TABLE runs RENAME TO away")
    try:
        yield 'no such table: runs|relation "runs" does not exist'
    finally:
        execute(product, "ALTER TABLE away RENAME TO runs")


@contextmanager
def no_space(product: Product, worker: WorkerProcess) -> Generator[str]:
    """No file of the worker can grow, as on a full disk."""
    before = resource.prlimit(worker.pid, resource.RLIMIT_FSIZE)
    resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, (1, before[1]))
    try:
        yield "the disk does not read or write it"
    finally:
        resource.prlimit(worker.pid, resource.RLIMIT_FSIZE, before)


@contextmanager
def wrong_password(product: Product, worker: WorkerProcess) -> Generator[str]:
    """The password of the index's user is another one now."""
    with other_password(product) as said:
        yield said


@pytest.mark.parametrize(
    ("kind", "trouble"),
    [
        ("sqlite", no_table),
        ("sqlite", no_space),
        ("postgresql", no_table),
        ("postgresql", wrong_password),
    ],
)
async def test_a_start_that_the_index_refuses_raises_that_and_leaves_nothing(
    product: Product, trouble: Trouble
) -> None:
    """L3."""
    with product.worker() as worker:
        with trouble(product, worker) as said, pytest.raises(IndexUnavailableError, match=said):
            await product.trainer.start(PASSES, run_id="refused")
        with trouble(product, worker) as said, pytest.raises(IndexUnavailableError, match=said):
            await product.trainer.start_group(PASSES, size=3, run_group_id="refused-group")

        await no_workflow_is_open(product)
        assert product.index.page(RunFilter()).runs == ()
        assert product.index.groups().groups == ()
        assert sandbox_folders(product) == []

        again = await product.trainer.start(PASSES, run_id="refused")
        assert (await again.result()).status is RunStatus.COMPLETED


@pytest.mark.parametrize(
    ("kind", "trouble"), [("sqlite", no_table), ("postgresql", wrong_password)]
)
async def test_a_thousand_refused_starts_hold_nothing(
    product: Product, kind: str, trouble: Trouble
) -> None:
    """L3."""
    with product.worker() as worker:
        with trouble(product, worker):
            await refused(product, REFUSED_STARTS[kind] // 2)
            before = held(worker)
            await refused(product, REFUSED_STARTS[kind] // 2)
            after = held(worker)

        await no_workflow_is_open(product)
        assert product.index.page(RunFilter()).runs == ()

    # Pools of connections and threads may still fill; what a start held would be there hundredfold.
    assert after["open files of the worker"] <= before["open files of the worker"] + 20
    assert after["threads of the worker"] <= before["threads of the worker"] + 20
    for name in ("episodes", "handles", "tasks"):
        assert after[name] <= before[name], name


async def refused(product: Product, count: int) -> None:
    for _ in range(0, count, AT_ONCE):
        ended = await asyncio.gather(
            *(product.trainer.start(PASSES) for _ in range(AT_ONCE)), return_exceptions=True
        )
        assert {type(one) for one in ended} == {IndexUnavailableError}
        del ended  # its tracebacks hold what they saw


def held(worker: WorkerProcess) -> dict[str, int]:
    """What could grow with every start."""
    gc.collect()
    objects: list[type[object]] = [type(one) for one in gc.get_objects()]
    process = Path(f"/proc/{worker.pid}")
    return {
        "episodes": objects.count(Episode),
        "handles": objects.count(WorkflowHandle),
        "tasks": len(asyncio.all_tasks()),
        "open files of the worker": len(list((process / "fd").iterdir())),
        "threads of the worker": len(list((process / "task").iterdir())),
    }


async def no_workflow_is_open(product: Product) -> None:
    """The engine's list lags behind its workflows, by less than a second."""
    async with asyncio.timeout(10):
        while any(await open_workflows(product.trainer.client)):
            await asyncio.sleep(0.05)


async def test_an_index_that_is_a_folder_is_told_by_every_way_in(product: Product) -> None:
    """L3."""
    settings = Settings(
        state_dir=product.state_dir, database=f"sqlite:///{product.state_dir}/artifacts"
    )
    (product.state_dir / "artifacts").mkdir(exist_ok=True)
    cli = Cli(product.state_dir, {"EPISODES_DATABASE": str(settings.database)})

    with pytest.raises(IndexUnavailableError, match="can't be opened"):
        async with Trainer.connect(settings):
            pass
    listed, worked = cli.run("list", "--json"), cli.run("worker", "--json")

    for said in (listed, worked):
        assert said.code == 5
        assert said.json["error"]["type"] == "IndexUnavailable"
        assert "can't be opened" in said.json["error"]["message"]


@on_both
async def test_of_starts_of_one_id_at_once_one_is_the_episode(product: Product) -> None:
    """L4."""
    with product.worker():
        ended = await asyncio.gather(
            *(product.trainer.start(PASSES, run_id="taken") for _ in range(8)),
            return_exceptions=True,
        )
        episodes = [one for one in ended if isinstance(one, Episode)]
        refusals = [one for one in ended if isinstance(one, ConflictError)]
        result = await episodes[0].result()
        with pytest.raises(ConflictError, match=r"'taken' is taken by .*, COMPLETED") as late:
            await product.trainer.start(PASSES, run_id="taken")

    assert (len(episodes), len(refusals)) == (1, 7)
    assert all("the id 'taken' is taken by" in str(refusal) for refusal in refusals)
    assert result.status is RunStatus.COMPLETED
    assert len(product.index.page(RunFilter()).runs) == 1
    assert late.value.exit_code == 4
