"""The run index's database is away for a while: steps go on, begin and finish wait, all ends right.

Its own conditions say when it has been away long enough: ``finish`` has failed on it and is tried
again, and every step of an episode that had begun is over.
"""

import os
import sqlite3
import subprocess
from collections.abc import AsyncGenerator, Generator
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
from temporalio.client import WorkflowExecutionStatus

from agent_env.errors import IndexUnavailableError, RunNotFoundError
from agent_env.status import RunStatus
from tests.end_to_end.conftest import Product, on_sqlite, processes_with, running_product
from tests.end_to_end.stage import box, spec
from tests.end_to_end.who_dies import (
    LONG,
    Process,
    Steps,
    assert_ended,
    nap,
    pending,
    until,
    worker,
)

FINISH = "agent_env.finish"
DATABASE = "episodes.sqlite"


class Played:
    """Episodes that an outage meets: one runs, one waits for a place."""

    def __init__(self, product: Product, folder: Path) -> None:
        self._product = product
        self._steps = Steps(folder)
        self.sleep = nap(1)
        self.running = ""
        self.queued = ""

    async def begin(self) -> None:
        """Both are listed, and the first step of the one runs."""
        naps = [self._steps.nap(f"nap {number}", self.sleep) for number in range(3)]
        running = await self._product.trainer.start(spec(box(), *naps))
        queued = await self._product.trainer.start(spec(box(), self._steps.quick("queued")))
        self.running, self.queued = running.run_id, queued.run_id
        await self._product.until(lambda: bool(processes_with(self.sleep)), LONG)

    async def waits(self, worker: Process) -> None:
        """Steps have gone on to the last, and ``finish`` waits for the index."""

        await self._product.until(
            lambda: "finish waits and is tried again: the run index" in "".join(worker.said),
            timedelta(seconds=90),
        )

        async def finish_waits() -> bool:
            return bool(await pending(self._product, self.running, FINISH))

        await until(finish_waits)
        assert self._steps.times("nap 2") == 1
        assert self._steps.times("queued") == 0
        for run_id in (self.running, self.queued):
            assert await self._product.status(run_id) is WorkflowExecutionStatus.RUNNING

    async def ends(self) -> None:
        """Correct once it is back, and nothing was done twice."""
        for run_id in (self.running, self.queued):
            result = await self._product.trainer.attach(run_id).result()
            assert result.status is RunStatus.COMPLETED
        # Not before both are over: the queued one has its folders on the same host.
        for run_id in (self.running, self.queued):
            await assert_ended(self._product, run_id, RunStatus.COMPLETED, nap=self.sleep)
        ran = ["nap 0", "nap 1", "nap 2", "queued"]
        assert [self._steps.times(step_id) for step_id in ran] == [1] * len(ran)


def assert_log_is_short(worker: Process) -> None:
    """It doesn't repeat itself."""
    said = "".join(worker.said)
    assert "Traceback" not in said
    assert len(worker.said) < 20, said


async def assert_start_is_refused(product: Product) -> None:
    with pytest.raises(IndexUnavailableError):
        await product.trainer.start(spec(box()), run_id="refused")


async def assert_no_ghost(product: Product) -> None:
    """What could not be listed has left neither a row nor an open workflow."""
    with pytest.raises(RunNotFoundError):
        product.index.get("refused")
    assert await product.status("refused") is WorkflowExecutionStatus.FAILED


@contextmanager
def locked(path: Path) -> Generator[None]:
    """Another process keeps it for itself."""
    other = sqlite3.connect(path, isolation_level=None)
    try:
        other.execute("BEGIN EXCLUSIVE")
        yield
        other.rollback()
    finally:
        other.close()


@pytest.mark.timeout(240)
@on_sqlite
async def test_locked_for_longer_than_a_write_waits(product: Product, tmp_path: Path) -> None:
    with worker(product, max_episodes=1) as serving:
        played = Played(product, tmp_path)
        await played.begin()
        with locked(product.state_dir / DATABASE):
            await played.waits(serving)

        await played.ends()


@on_sqlite
async def test_moved_away_and_put_back(product: Product, tmp_path: Path) -> None:
    path, away = product.state_dir / DATABASE, tmp_path / "away.sqlite"
    with worker(product, max_episodes=1) as serving:
        played = Played(product, tmp_path)
        await played.begin()
        path.rename(away)
        await assert_start_is_refused(product)
        await played.waits(serving)
        assert_log_is_short(serving)
        made = path.exists()
        away.rename(path)

        await played.ends()
        await assert_no_ghost(product)

    assert not made


@pytest.fixture
def small_disk(tmp_path: Path) -> Generator[Path]:
    """A disk of 2 MB."""
    disk = tmp_path / "disk"
    disk.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=2m", "episodes-test", str(disk)]
    if subprocess.run(mount, check=False, capture_output=True).returncode:
        pytest.skip("needs-mount")
    yield disk
    subprocess.run(["umount", "--lazy", str(disk)], check=True)


@pytest.fixture
async def on_small_disk(small_disk: Path, tmp_path: Path) -> AsyncGenerator[Product]:
    """A product whose run index lies on it."""
    state_dir = tmp_path / "state"
    state_dir.mkdir()
    (state_dir / DATABASE).symlink_to(small_disk / DATABASE)
    async with running_product(state_dir) as product:
        yield product


async def test_on_a_disk_that_is_full(
    on_small_disk: Product, small_disk: Path, tmp_path: Path
) -> None:
    product, ballast = on_small_disk, small_disk / "ballast"
    with worker(product, max_episodes=1) as serving:
        played = Played(product, tmp_path)
        await played.begin()
        fill(ballast)
        await assert_start_is_refused(product)
        await played.waits(serving)
        assert_log_is_short(serving)
        ballast.unlink()

        await played.ends()
        await assert_no_ghost(product)


def fill(path: Path) -> None:
    """Write until the disk takes no more."""
    file = os.open(path, os.O_WRONLY | os.O_CREAT)
    try:
        while True:
            os.write(file, b"x" * 4096)
    except OSError:
        pass
    finally:
        os.close(file)
