"""Keeps one Temporal server up for a state folder while anybody uses it.

``python -m agent_env._embedded_supervisor STATE_DIR BINARY VERSION`` returns at once: with 0 when
it left a supervisor behind, with 3 when there was one. Its output, and the server's, go to standard
error, which is the log file.
"""

from __future__ import annotations

import asyncio
import os
import random
import signal
import socket
import sys
import threading
import traceback
from contextlib import suppress
from datetime import UTC, datetime
from pathlib import Path

from agent_env._embedded_files import Ports, ProcessMark, ServerFiles, ServerRecord
from agent_env._locks import FileLock

ALREADY_ONE = 3
"""Exit code: the state folder has a supervisor."""

_LOG_BYTES = 1024 * 1024
"""Size at which the log becomes ``server.log.1``; the one before that is dropped."""
_ANSWER_S = 20.0
"""Longest a server may take to listen."""
_STOP_S = 5.0
"""What a server gets to end by itself."""
_MAX_FAILED_STARTS = 5
_POLL_S = 0.02

# Under the range that the kernel gives to outgoing connections: a client that keeps trying to
# reach a server that is down could otherwise be given the server's own port, and connect to itself.
_PORTS = range(17_000, 32_000)

_SQLITE_PRAGMAS = (
    "journal_mode=wal",
    # No sync at each write: safe when the server is killed; a power cut may lose the last moments.
    "synchronous=1",
    "cache_size=-65536",
    "mmap_size=268435456",
)
_DYNAMIC_CONFIG = (
    # By default the one shard is polled 20 times a second, so that every hop waits up to 50 ms.
    "history.transferProcessorMaxPollRPS=2000",
    "history.timerProcessorMaxPollRPS=2000",
    "history.visibilityProcessorMaxPollRPS=5",
    # By default a timer that is due sooner than in a second is only looked for after that second.
    'history.timerProcessorMaxTimeShift="50ms"',
    "matching.numTaskqueueReadPartitions=1",
    "matching.numTaskqueueWritePartitions=1",
)


class Supervisor:
    """Starts the server, starts it again when it dies, and ends it with its last user."""

    def __init__(self, files: ServerFiles, binary: str, version: str) -> None:
        self._files = files
        self._binary = binary
        self._version = version
        self._mark = ProcessMark.of(os.getpid())

    async def run(self) -> int:
        """Serve until nobody needs the server or SIGTERM; the exit code."""
        stop = asyncio.Event()
        self._watch(stop)
        stopped = asyncio.create_task(stop.wait())
        failed = 0
        while failed < _MAX_FAILED_STARTS:
            answered = await self._serve(stopped)
            self._files.unlist()
            if stopped.done():
                return 0
            failed = 0 if answered else failed + 1
            await asyncio.wait([stopped], timeout=0.2 * failed)
        _say(f"gave up: the server did not answer {failed} times in a row")
        return 1

    def _watch(self, stop: asyncio.Event) -> None:
        """Set ``stop`` when the last user is gone, or on a signal."""
        loop = asyncio.get_running_loop()
        for number in (signal.SIGTERM, signal.SIGINT):
            loop.add_signal_handler(number, stop.set)

        def wait_for_last_user() -> None:
            # Held until this process ends: a user that comes now waits, and starts a new server.
            self._files.last_user_lock().acquire()
            loop.call_soon_threadsafe(stop.set)

        threading.Thread(target=wait_for_last_user, daemon=True).start()

    async def _serve(self, stopped: asyncio.Task[bool]) -> bool:
        """One life of the server; whether it ever answered."""
        ports = _usable(self._files.last_ports())
        server = await asyncio.create_subprocess_exec(
            *(sys.executable, "-I", "-S", str(Path(__file__).with_name("_die_with_parent.py"))),
            *(str(os.getpid()), self._binary, "server", "start-dev", "--log-level", "error"),
            *("--ip", "127.0.0.1", "--port", str(ports.port), "--ui-port", str(ports.ui_port)),
            *("--db-filename", str(self._files.database)),
            *(word for pragma in _SQLITE_PRAGMAS for word in ("--sqlite-pragma", pragma)),
            *(word for value in _DYNAMIC_CONFIG for word in ("--dynamic-config-value", value)),
            stdin=asyncio.subprocess.DEVNULL,
            stdout=asyncio.subprocess.PIPE,
            stderr=asyncio.subprocess.STDOUT,
            # A client's settings must not reach the server.
            env={
                key: value for key, value in os.environ.items() if not key.startswith("TEMPORAL_")
            },
        )
        log = asyncio.create_task(self._copy_log(server))
        ended = asyncio.create_task(server.wait())
        answers = asyncio.create_task(_answers(ports.port))
        await asyncio.wait([answers, ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        answered = answers.done() and answers.result()
        if answered and not ended.done():
            self._list(server.pid, ports)
            await asyncio.wait([ended, stopped], return_when=asyncio.FIRST_COMPLETED)
        answers.cancel()
        if not ended.done():
            self._files.unlist()
            await _end(server)
        elif not stopped.done():
            _say(f"the server ended with status {server.returncode}")
        await log
        return answered

    def _list(self, pid: int, ports: Ports) -> None:
        process = ProcessMark.of(pid)
        if process is not None and self._mark is not None:
            self._files.list_running(
                ServerRecord(
                    port=ports.port,
                    ui_port=ports.ui_port,
                    process=process,
                    supervisor=self._mark,
                    started_at=datetime.now(UTC),
                    version=self._version,
                )
            )

    async def _copy_log(self, server: asyncio.subprocess.Process) -> None:
        if server.stdout is None:
            return
        while chunk := await server.stdout.read(64 * 1024):
            # A full disk must not stop a server that could go on.
            with suppress(OSError):
                _rotate(self._files.log)
                os.write(sys.stderr.fileno(), chunk)


async def _answers(port: int) -> bool:
    """Whether something listens within the time a server may take."""
    deadline = asyncio.get_running_loop().time() + _ANSWER_S
    while asyncio.get_running_loop().time() < deadline:
        try:
            _, writer = await asyncio.open_connection("127.0.0.1", port)
        except OSError:
            await asyncio.sleep(_POLL_S)
        else:
            writer.close()
            return True
    return False


async def _end(server: asyncio.subprocess.Process) -> None:
    """Ask the server to end, then make it."""
    with suppress(ProcessLookupError):
        server.terminate()
        try:
            async with asyncio.timeout(_STOP_S):
                await server.wait()
        except TimeoutError:
            server.kill()
            await server.wait()


def _usable(last: Ports | None) -> Ports:
    """The last server's ports, so that its clients find the next one; others if those are taken."""
    if last is not None and _is_free(last.port) and _is_free(last.ui_port):
        return last
    free = (port for port in random.sample(_PORTS, len(_PORTS)) if _is_free(port))
    return Ports(port=next(free), ui_port=next(free))


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        # As the server does: connections of its predecessor may linger in TIME_WAIT.
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def _rotate(log: Path) -> None:
    """Start a new log file once this one is full, for this process too."""
    if os.fstat(sys.stderr.fileno()).st_size < _LOG_BYTES:
        return
    os.replace(log, log.with_name(log.name + ".1"))
    file = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
    os.dup2(file, sys.stderr.fileno())
    os.close(file)


def _say(text: str) -> None:
    with suppress(OSError):
        os.write(sys.stderr.fileno(), f"{datetime.now(UTC):%FT%TZ} supervisor: {text}\n".encode())


def _supervise(lock: FileLock, files: ServerFiles, binary: str, version: str) -> int:
    """The life of the process that stays."""
    os.setsid()
    os.chdir("/")
    # Whatever the last supervisor left was about a server that died with it.
    files.unlist()
    try:
        return asyncio.run(Supervisor(files, binary, version).run())
    except Exception:
        _say(traceback.format_exc())
        return 1
    finally:
        lock.release()


def main(state_dir: Path, binary: str, version: str) -> int:
    """Leave a supervisor behind, unless there is one."""
    files = ServerFiles(state_dir)
    lock = files.supervisor_lock()
    if not lock.try_acquire():
        return ALREADY_ONE
    # The child has the lock from its first moment, and is nobody's zombie: init reaps it.
    if os.fork():
        return 0
    # Not back through the caller's frames: this process is another one now.
    os._exit(_supervise(lock, files, binary, version))


if __name__ == "__main__":
    sys.exit(main(Path(sys.argv[1]), sys.argv[2], sys.argv[3]))
