"""The processes of a soak: hosts, server and trainer, each started again whenever it has ended."""

import asyncio
import os
import signal
import time
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from agent_env.cli._exit import INTERRUPTED
from agent_env.embedded import find_running
from agent_env.errors import UnavailableError
from tests.end_to_end.conftest import ROOT, Product
from tests.end_to_end.who_dies import Process

_POLL_S = 0.05
_PAUSE_S = 0.3
"""Until what could not start is started again."""
_STOPS_WITHIN_S = 60.0


class Span(NamedTuple):
    """A time, in seconds since 1970."""

    start: float
    end: float


class Machine:
    """A process that is started again when it has ended.

    Args:
        name: What to call it.
        start: Starts it.
        is_up: Whether it does its work.
        ends: Whether it may end by itself, and is not started again then.
    """

    def __init__(
        self,
        name: str,
        start: Callable[[], Process],
        is_up: Callable[[Process], bool],
        *,
        ends: bool = False,
    ) -> None:
        self.name = name
        self._start = start
        self._is_up = is_up
        self._ends = ends
        self._process: Process | None = None
        self._keeping: asyncio.Task[None] | None = None
        self._may_run = asyncio.Event()
        self._may_run.set()
        self._down_at: float | None = time.time()
        self._was_asked = False
        self.said: list[str] = []
        """What all its lives have said."""
        self.killed_at: list[float] = []
        self.stops: list[Span] = []
        """From each time it was asked to stop until it had."""
        self.diary: list[str] = []
        """What became of it, a line each, after the time in seconds since 1970."""
        self.downs: list[Span] = []
        """When it did not work, for whatever reason."""
        self.crashes: list[str] = []
        """Ends that nobody asked for, and that no outage explains."""

    @asynccontextmanager
    async def kept(self) -> AsyncGenerator[None]:
        """Keep it up while entered; on the way out ask it to stop, and make it."""
        self._keeping = asyncio.create_task(self._keep())
        try:
            yield
        finally:
            self._keeping.cancel()
            await asyncio.wait([self._keeping])
            await self.stop()

    async def finished(self) -> None:
        """Wait until it has ended as it may."""
        assert self._keeping is not None
        await asyncio.shield(self._keeping)

    async def _keep(self) -> None:
        while True:
            await self._may_run.wait()
            process = self._process = self._start()
            while process.is_alive:
                if self._down_at is not None and self._is_up(process):
                    self.downs.append(Span(self._down_at, time.time()))
                    self._down_at = None
                    self._note("is up")
                await asyncio.sleep(_POLL_S)
            self._buried(process)
            if self._ends and process.exit_code == 0:
                return
            await asyncio.sleep(_PAUSE_S)

    def kill(self) -> None:
        """As a power cut would."""
        if self._process is not None:
            self.killed_at.append(time.time())
            self._note("is killed")
            self._buried(self._process)

    async def stop(self) -> None:
        """Ask it to stop, which it must do soon, and start it again."""
        process = self._process
        if process is None:
            return
        self._may_run.clear()
        self._was_asked = True
        self._note("is asked to stop")
        asked_at = time.time()
        try:
            process.ask_to_stop()
            await asyncio.to_thread(process.output, _STOPS_WITHIN_S)
        finally:
            self._buried(process)
            self.stops.append(Span(asked_at, time.time()))
            self._may_run.set()

    async def kill_for(self, seconds: float) -> None:
        """Kill it, and start it again after so long."""
        self._may_run.clear()
        self.kill()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._may_run.set()

    def _note(self, what: str) -> None:
        self.diary.append(f"{time.time():.3f} {self.name} {what}")

    def _buried(self, process: Process) -> None:
        if self._down_at is None:
            self._down_at = time.time()
        process.kill()
        if process is self._process:
            self._process = None
            self._note(f"has ended with {process.exit_code}")
            self.said += process.said
            if process.exit_code not in self._good_ends():
                last = "".join(process.said[-30:])
                self.crashes.append(f"{self.name} ended with {process.exit_code}: {last}")
            self._was_asked = False

    def _good_ends(self) -> set[int]:
        """Exit codes that are no fault: it was killed, could not reach something, or was asked."""
        good = {UnavailableError.exit_code, -signal.SIGKILL}
        if self._ends:
            good |= {0}
        if self._was_asked:  # also before it was up, or before it could listen
            good |= {0, INTERRUPTED, -signal.SIGTERM}
        return good


class Server:
    """The embedded server of a product: its supervisor starts it again."""

    def __init__(self, product: Product) -> None:
        self._state_dir = product.state_dir
        self.downs: list[Span] = []
        self.diary: list[str] = []

    async def kill(self) -> None:
        """Kill it, and wait until another one answers."""
        running = find_running(self._state_dir)
        if running is None:
            return  # on its way up
        killed_at = time.time()
        os.kill(running.pid, signal.SIGKILL)
        while (now := find_running(self._state_dir)) is None or now.pid == running.pid:
            await asyncio.sleep(_POLL_S)
        self.downs.append(Span(killed_at, time.time()))
        self.diary += [f"{killed_at:.3f} server is killed", f"{time.time():.3f} server is up"]


def host(product: Product, state_dir: Path, **settings: float) -> Machine:
    """A worker with a state folder of its own, on the product's index."""
    env = {
        "EPISODES_STATE_DIR": str(state_dir),
        "EPISODES_DATABASE": product.database,
        "TEMPORAL_ADDRESS": product.server.address,
        **{f"EPISODES_{name.upper()}": f"{value:g}" for name, value in settings.items()},
    }
    return Machine(
        state_dir.name,
        lambda: Process("-m", "agent_env.cli", "worker", env=env),
        lambda process: any("serving" in line for line in process.said),
    )


def trainer(product: Product, plan: Path, results: Path) -> Machine:
    """A training loop that starts a plan and awaits it."""
    env = {
        "PYTHONPATH": str(ROOT),
        "EPISODES_STATE_DIR": str(product.state_dir),
        "EPISODES_DATABASE": product.database,
        "TEMPORAL_ADDRESS": product.server.address,
    }
    words = ("-m", "tests.soak.trainer", str(plan), str(results))
    return Machine("trainer", lambda: Process(*words, env=env), lambda _: True, ends=True)
