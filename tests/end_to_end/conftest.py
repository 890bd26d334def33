"""The whole product: the real server, worker processes of their own, real sandboxes."""

import asyncio
import os
import signal
import subprocess
import sys
import threading
from collections.abc import AsyncGenerator, Callable, Generator, Iterator, Mapping
from contextlib import asynccontextmanager, contextmanager
from datetime import timedelta
from pathlib import Path

import pytest
import pytest_asyncio
from sqlalchemy import make_url
from temporalio.client import WorkflowExecutionStatus

from agent_env._connect import connect_to
from agent_env.artifacts import ArtifactStore
from agent_env.config import Settings
from agent_env.embedded import EmbeddedServer, embedded_server
from agent_env.explorer.server import Explorer
from agent_env.runs import RunIndex
from agent_env.trainer import Trainer
from tests.agent_env.cli.stage import Cli
from tests.compose import worker_environ
from tests.end_to_end.agreement import disagreements_left
from tests.end_to_end.browsing import serving
from tests.postgres import PostgresServer

ROOT = Path(__file__).parents[2]


class Product:
    """One state folder with a server; workers come and go."""

    def __init__(
        self, state_dir: Path, server: EmbeddedServer, trainer: Trainer, database: str | None = None
    ) -> None:
        self.state_dir = state_dir
        self.database = database or Settings(state_dir=state_dir).database_url
        """The URL of its run index."""
        self.server = server
        self.trainer = trainer
        self.index = trainer.index

    @contextmanager
    def worker(
        self, state_dir: Path | None = None, *, environ: Mapping[str, str] | None = None
    ) -> Generator["WorkerProcess"]:
        """A worker in a process of its own, ready when entered, ended by SIGTERM."""
        process = WorkerProcess(self, state_dir or self.state_dir, environ or {})
        try:
            yield process
        finally:
            process.end()

    def environ(self, state_dir: Path | None = None) -> dict[str, str]:
        """What a worker is given: on PostgreSQL as docker-compose.yml gives it."""
        state_dir = state_dir or self.state_dir
        url = make_url(self.database)
        if url.get_backend_name() == "postgresql":
            return worker_environ(state_dir, url, self.server.address)
        return {
            "EPISODES_STATE_DIR": str(state_dir),
            "EPISODES_DATABASE": self.database,
            "TEMPORAL_ADDRESS": self.server.address,
        }

    def cli(self, **environ: str) -> Cli:
        """``episodes`` on this product."""
        return Cli(self.state_dir, {"EPISODES_DATABASE": self.database, **environ})

    async def status(self, workflow_id: str) -> WorkflowExecutionStatus | None:
        handle = self.trainer.client.get_workflow_handle(workflow_id)
        return (await handle.describe()).status

    async def until(
        self, condition: Callable[[], bool], within: timedelta = timedelta(seconds=30)
    ) -> None:
        """Wait for a condition with a deadline."""
        async with asyncio.timeout(within.total_seconds()):
            while not condition():
                await asyncio.sleep(0.02)


class WorkerProcess:
    """``episodes worker`` as a user starts it."""

    def __init__(self, product: Product, state_dir: Path, environ: Mapping[str, str]) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "agent_env.cli", "worker"],
            env={
                **os.environ,
                **product.environ(state_dir),
                "EPISODES_HOST_LOST_AFTER_S": "3",
                # Often, so that whatever a test does is done under its eyes.
                "EPISODES_RECONCILE_EVERY_S": "1",
                **environ,
            },
            stderr=subprocess.PIPE,
            text=True,
        )
        ready = threading.Event()
        # To the end: a worker whose log nobody reads stops when the pipe is full.
        self._reading = threading.Thread(target=self._read, args=(ready,))
        self._reading.start()
        if not ready.wait(timeout=30) or self._process.poll() is not None:
            self.kill()
            raise AssertionError("the worker ended before it was ready")

    @property
    def pid(self) -> int:
        return self._process.pid

    @property
    def is_alive(self) -> bool:
        return self._process.poll() is None

    def _read(self, ready: threading.Event) -> None:
        assert self._process.stderr is not None
        with self._process.stderr:
            for line in self._process.stderr:
                if "serving" in line:
                    ready.set()
        ready.set()

    def kill(self) -> None:
        """As a power cut would."""
        self._process.kill()
        self._process.wait(timeout=10)
        self._reading.join(timeout=10)

    def end(self) -> None:
        """Ask it to drain."""
        if self._process.poll() is None:
            self._process.send_signal(signal.SIGTERM)
            self._process.wait(timeout=30)
        self._reading.join(timeout=10)


on_sqlite = pytest.mark.parametrize("kind", ["sqlite"])
"""For a test that does something to the index's file."""
on_both = pytest.mark.parametrize("kind", ["sqlite", "postgresql"])
"""For a test of what depends on the database."""


@pytest.fixture
async def product(
    kind: str, request: pytest.FixtureRequest, tmp_path: Path
) -> AsyncGenerator[Product]:
    with index_in(kind, request) as url:
        async with running_product(tmp_path, url) as product:
            yield product


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared(
    kind: str, request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> AsyncGenerator[Product]:
    """One product for the tests of a file, which run in one event loop."""
    with index_in(kind, request) as url:
        async with running_product(tmp_path_factory.mktemp("state"), url) as product:
            yield product


@contextmanager
def index_in(kind: str, request: pytest.FixtureRequest) -> Generator[str | None]:
    """The URL of an empty database of this kind; None of SQLite, which makes its own."""
    if kind == "sqlite":
        yield None
        return
    server: PostgresServer = request.getfixturevalue("postgres_of_the_session")
    server.start()  # a test may have killed it
    with server.database() as url:
        yield url


@pytest.fixture
def index(tmp_path: Path) -> Generator[RunIndex]:
    """A run index of its own, for what needs no more."""
    found = RunIndex.open(f"sqlite:///{tmp_path}/index.sqlite")
    yield found
    found.close()


@pytest.fixture
async def explorer(index: RunIndex, tmp_path: Path) -> AsyncGenerator[Explorer]:
    """An explorer over that index; no Temporal answers it."""
    async with serving(index, tmp_path / "artifacts") as explorer:
        yield explorer


@pytest.fixture(scope="module")
def worker(shared: Product) -> Generator[WorkerProcess]:
    """The worker of the product that a file's tests share."""
    with shared.worker() as worker:
        yield worker


@asynccontextmanager
async def running_product(state_dir: Path, database: str | None = None) -> AsyncGenerator[Product]:
    """A product; at the end, its index and Temporal must agree on every run."""
    settings = Settings(state_dir=state_dir, database=database)
    async with embedded_server(state_dir) as server:
        client = await connect_to(server.address)
        index = await asyncio.to_thread(RunIndex.open, settings.database_url)
        try:
            store = ArtifactStore(state_dir / "artifacts")
            yield Product(state_dir, server, Trainer(client, index, store), settings.database_url)
            assert await disagreements_left(client, index) == []
        finally:
            index.close()


def processes_with(marker: str) -> list[int]:
    """Ids of processes whose command line has this word."""
    return [pid for pid, command in _command_lines() if marker in command]


def asleep(nap: str) -> list[int]:
    """Ids of the processes that are ``sleep NAP``, not of a shell that is yet to call it."""
    return [pid for pid, command in _command_lines() if command == f"sleep {nap}"]


def _command_lines() -> Iterator[tuple[int, str]]:
    for entry in Path("/proc").iterdir():
        if not entry.name.isdigit():
            continue
        try:
            words = (entry / "cmdline").read_bytes().rstrip(b"\0").split(b"\0")
        except OSError:
            continue  # it ended meanwhile
        yield int(entry.name), b" ".join(words).decode(errors="replace")
