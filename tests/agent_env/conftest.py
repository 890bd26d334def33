"""What tests of commands and sandboxes share."""

import asyncio
import os
import signal
import subprocess
import sys
import time
from collections.abc import Awaitable, Callable, Coroutine, Generator, Mapping
from contextlib import AbstractContextManager, contextmanager
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from agent_env.processes import Isolation, isolation_works, run_process
from agent_env.sandboxes.base import ExecResult

pytest.register_assert_rewrite("agent_env.testing.conformance")

ROOT = Path(__file__).parents[2]


@pytest.fixture(params=[isolation for isolation in Isolation if isolation_works(isolation)])
def isolation(request: pytest.FixtureRequest) -> Isolation:
    """Each way that this machine permits."""
    return request.param


@pytest.fixture
def run_command(
    isolation: Isolation, tmp_path: Path
) -> Callable[..., Coroutine[Any, Any, ExecResult]]:
    """``run_process`` with what most tests have in common."""

    def run(
        *argv: str, timeout_s: float = 30, env: Mapping[str, str] | None = None, **options: Any
    ) -> Coroutine[Any, Any, ExecResult]:
        return run_process(
            argv,
            isolation=isolation,
            cwd=tmp_path,
            env={"PATH": "/usr/bin:/bin", **(env or {})},
            timeout=timedelta(seconds=timeout_s),
            max_output_bytes=1024 * 1024,
            **options,
        )

    return run


class Naps:
    """Processes that sleep for a time that only one test uses."""

    def __init__(self, seconds: int) -> None:
        self.command = f"sleep {seconds}"
        self._line = f"sleep\0{seconds}\0".encode()

    def running(self) -> list[int]:
        found: list[int] = []
        for entry in Path("/proc").iterdir():
            if entry.name.isdecimal():
                try:
                    line = (entry / "cmdline").read_bytes()
                except OSError:
                    continue
                if line == self._line:
                    found.append(int(entry.name))
        return found


@pytest.fixture
def naps(request: pytest.FixtureRequest) -> Generator[Naps]:
    """None of them may be left at the test's end."""
    naps = Naps(10_000 + abs(hash(request.node.nodeid)) % 1_000_000)
    yield naps
    left = naps.running()
    for pid in left:
        os.kill(pid, signal.SIGKILL)
    assert left == []


Until = Callable[..., Awaitable[None]]


@pytest.fixture
def until() -> Until:
    """Waits for a condition."""

    async def until(condition: Callable[[], bool], *, within_s: float = 20.0) -> None:
        deadline = time.monotonic() + within_s
        while not condition():
            assert time.monotonic() < deadline, "the condition did not come true"
            await asyncio.sleep(0.01)

    return until


@pytest.fixture
def killed_at_the_end() -> Callable[[str], AbstractContextManager[None]]:
    """A Python program that runs for as long as a block, and then gets SIGKILL."""

    @contextmanager
    def killed(program: str) -> Generator[None]:
        with subprocess.Popen([sys.executable, "-c", program], cwd=ROOT) as process:
            try:
                yield
            finally:
                process.kill()

    return killed
