"""What the tests of "who dies" share: workers with settings of their own, and how all must end."""

import asyncio
import json
import os
import random
import signal
import subprocess
import sys
import threading
from collections.abc import Awaitable, Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import timedelta
from pathlib import Path

from pydantic import JsonValue
from temporalio.api.workflow.v1 import PendingActivityInfo
from temporalio.client import WorkflowExecutionStatus

from agent_env.status import RunStatus
from tests.end_to_end import ledger as _ledger
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.ledger import times
from tests.end_to_end.stage import command, sandbox_folders

LONG = timedelta(seconds=60)
"""Deadline of whatever takes moments on an idle machine."""

MANY_FILES: JsonValue = command("fills", "mkdir many && cd many && seq 100000 | xargs touch")
"""Makes teardown long enough to be met in it."""

_LEDGER = _ledger.__file__


def nap(seconds: int = 600) -> str:
    """Seconds to sleep, as no other test sleeps: what is left of it can be found."""
    return f"{seconds}.{random.randrange(10**6, 10**7)}"


class Steps:
    """Steps that leave a line in a ledger each time they run."""

    def __init__(self, folder: Path) -> None:
        self.ledger = folder / "ledger"

    def quick(self, step_id: str, **more: JsonValue) -> JsonValue:
        """One that ends at once."""
        return self._step(step_id, "ran", {}, more)

    def nap(self, step_id: str, nap: str, **more: JsonValue) -> JsonValue:
        """One that sleeps each time."""
        return self._step(step_id, "napped", {"nap": nap}, more)

    def nap_once(self, step_id: str, nap: str, **more: JsonValue) -> JsonValue:
        """One that sleeps the first time."""
        return self._step(step_id, "napped_once", {"nap": nap}, more)

    def times(self, step_id: str) -> int:
        """How often it ran."""
        return times(self.ledger, step_id)

    def _step(
        self,
        step_id: str,
        function: str,
        args: Mapping[str, JsonValue],
        more: Mapping[str, JsonValue],
    ) -> JsonValue:
        return {
            "id": step_id,
            "type": "python",
            "function": f"{_LEDGER}:{function}",
            "args": {"ledger": str(self.ledger), "name": step_id, **args},
            **more,
        }


class Process:
    """A process of the product in a session of its own, and what it has said on stderr."""

    def __init__(self, *command: str, env: Mapping[str, str]) -> None:
        self.said: list[str] = []
        self._popen = subprocess.Popen(
            [sys.executable, "-P", *command],
            env={**os.environ, **env},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        self._reading = threading.Thread(target=self._read)
        self._reading.start()

    @property
    def pid(self) -> int:
        return self._popen.pid

    @property
    def is_alive(self) -> bool:
        return self._popen.poll() is None

    @property
    def exit_code(self) -> int | None:
        """None while it runs; negative after a signal."""
        return self._popen.poll()

    def kill(self) -> None:
        """As a power cut would."""
        self._popen.kill()
        self.output()

    def ask_to_stop(self) -> None:
        if self.is_alive:
            self._popen.send_signal(signal.SIGTERM)

    def output(self, within_s: float = 60) -> str:
        """What it has printed, once it has ended."""
        assert self._popen.stdout is not None
        self._popen.wait(timeout=within_s)
        self._reading.join(timeout=10)
        if self._popen.stdout.closed:
            return ""
        with self._popen.stdout:
            return self._popen.stdout.read()

    def end(self) -> None:
        """Ask it to stop, wait, and make it."""
        self.ask_to_stop()
        try:
            self.output()
        finally:
            self._popen.kill()

    def _read(self) -> None:
        assert self._popen.stderr is not None
        with self._popen.stderr:
            for line in self._popen.stderr:
                self.said.append(line)


@contextmanager
def worker(
    product: Product, state_dir: Path | None = None, **settings: float
) -> Generator[Process]:
    """``episodes worker`` with these settings, ready when entered, drained at the end."""
    process = Process(
        *("-m", "agent_env.cli", "worker"),
        env={
            **product.environ(state_dir),
            **{f"EPISODES_{name.upper()}": f"{value:g}" for name, value in settings.items()},
        },
    )
    try:
        serves(process)
        yield process
    finally:
        process.end()


def serves(process: Process) -> None:
    """Wait until a worker says that it serves."""
    ready = threading.Event()
    for _ in range(int(LONG.total_seconds() / 0.02)):
        if any("serving" in line for line in [*process.said]):
            return
        if not process.is_alive:
            break
        ready.wait(0.02)
    raise AssertionError(f"the worker is not ready; it said {''.join(process.said)!r}")


async def until(condition: Callable[[], Awaitable[bool]], within: timedelta = LONG) -> None:
    """Wait for a condition that has to be asked for."""
    async with asyncio.timeout(within.total_seconds()):
        while not await condition():
            await asyncio.sleep(0.02)


async def pending(product: Product, run_id: str, activity: str) -> list[PendingActivityInfo]:
    """The calls of an activity that the engine has not heard the end of."""
    found = await product.trainer.client.get_workflow_handle(run_id).describe()
    return [
        call
        for call in found.raw_description.pending_activities
        if call.activity_type.name == activity
    ]


async def is_reported(product: Product, run_id: str, step_id: str) -> bool:
    """Whether the engine knows that a step of the segment under way has ended."""
    for call in await pending(product, run_id, "agent_env.run_steps"):
        for payload in call.heartbeat_details.payloads:
            reports = json.loads(payload.data)["reports"]
            if any(report["step_id"] == step_id for report in reports):
                return True
    return False


async def teardown_began(product: Product) -> Path:
    """The sandbox that is being removed, once it is."""
    await product.until(lambda: bool([*product.state_dir.glob("sandboxes/*/*/sandbox.json")]), LONG)
    (sandbox,) = sandbox_folders(product)
    await product.until(lambda: not (sandbox / "sandbox.json").exists(), LONG)
    return sandbox


def left_behind(*state_dirs: Path) -> list[Path]:
    """What episodes have left in the folders of hosts."""
    return [
        entry
        for state_dir in state_dirs
        for name in ("sandboxes", "work", "attempts")
        for entry in (state_dir / name).glob("*")
    ]


async def assert_ended(
    product: Product, run_id: str, status: RunStatus, *, nap: str, hosts: Sequence[Path] = ()
) -> None:
    """The row and the workflow say so, and nothing is left.

    Args:
        product: Where it was played.
        run_id: The run.
        status: How it must have ended.
        nap: What its processes were sleeping.
        hosts: State folders of the hosts that have a worker; none means the product's own.
    """
    row = product.index.get(run_id)
    assert row.status is status, row.error
    assert await product.status(run_id) is WorkflowExecutionStatus[status.name]
    assert row.still_up == ()
    assert processes_with(nap) == []
    assert left_behind(*(hosts or [product.state_dir])) == []
