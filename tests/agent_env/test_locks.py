"""Locks between processes."""

import subprocess
import sys
from datetime import timedelta
from pathlib import Path

import pytest

from agent_env._locks import FileLock

SHORT = timedelta(milliseconds=50)
HOLD = """
import sys
from pathlib import Path
from agent_env._locks import FileLock
lock = FileLock(Path(sys.argv[1]))
lock.acquire()
print("held", flush=True)
sys.stdin.read()
"""


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "made" / "on" / "demand.lock"


def test_an_exclusive_lock_keeps_everybody_out(path: Path) -> None:
    with FileLock(path) as holder:
        assert holder.is_held
        assert not FileLock(path).try_acquire()
        assert not FileLock(path, shared=True).try_acquire()


def test_shared_holders_keep_only_exclusive_ones_out(path: Path) -> None:
    with FileLock(path, shared=True), FileLock(path, shared=True):
        assert not FileLock(path).try_acquire()


def test_a_released_lock_can_be_taken_again_by_the_same_object_or_another(path: Path) -> None:
    lock = FileLock(path)
    for _ in range(2):
        assert lock.try_acquire()
        lock.release()
    with FileLock(path):
        assert not lock.try_acquire()


def test_taking_a_lock_twice_needs_one_release(path: Path) -> None:
    lock = FileLock(path)
    assert lock.try_acquire()
    lock.acquire()

    lock.release()

    assert not lock.is_held
    with FileLock(path) as other:
        assert other.is_held


def test_waiting_ends_with_an_error_that_names_the_file(path: Path) -> None:
    with FileLock(path), pytest.raises(TimeoutError, match=r"demand\.lock is still locked"):
        FileLock(path).acquire(within=SHORT)


async def test_waiting_without_blocking_ends_with_the_same_error(path: Path) -> None:
    with FileLock(path), pytest.raises(TimeoutError, match=r"demand\.lock is still locked"):
        await FileLock(path).acquire_async(within=SHORT)


def test_a_killed_process_holds_nothing(path: Path) -> None:
    with subprocess.Popen(
        [sys.executable, "-c", HOLD, str(path)], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    ) as holder:
        assert holder.stdout is not None
        assert holder.stdout.readline() == b"held\n"
        lock = FileLock(path)
        assert not lock.try_acquire()

        holder.kill()

        lock.acquire(within=timedelta(seconds=10))
        lock.release()
