"""One supervised command: its pipes on the event loop, its end, and its death.

Uses no child watcher and no thread: a pidfd tells of the supervisor's end, on any event loop that
has ``add_reader``.
"""

import asyncio
import fcntl
import os
import re
import signal
import time
from collections.abc import Mapping, Sequence
from contextlib import ExitStack, suppress
from datetime import timedelta

from agent_env._descendants import kill_marked
from agent_env._isolation import CommandLine, Fd, Isolation
from agent_env._pipes import Feed, PipeReader, settle
from agent_env._tail import Tail

_LOOSE_PIPE_BYTES = 1024 * 1024
"""What is still read from a pipe that somebody holds open after the command's end."""
_SETUP_S = 2.0
"""How long a command may still take to be set up before its kill, which could miss it earlier."""
_DEATH_S = 5.0
_TROUBLE_BYTES = 8 * 1024
_STATUS = re.compile(rb"^status (\d+) (\w*)\n", re.MULTILINE)
_FIRST_FREE_FD = max(Fd) + 1


class Supervised:
    """One command and its supervisor. ``start`` it once, and always ``stop`` it.

    Args:
        isolation: How its processes are kept together.
        sweep: ``NAME=value`` that every process of it has in its environment, if it is a group.
        on_stdout: What to give its output to, as it arrives.
        on_stderr: Likewise.
    """

    def __init__(
        self,
        isolation: Isolation,
        *,
        sweep: str,
        on_stdout: Sequence[Feed],
        on_stderr: Sequence[Feed],
    ) -> None:
        self._isolation = isolation
        self._sweep = sweep
        self._loop = asyncio.get_running_loop()
        self._over: asyncio.Future[None] = self._loop.create_future()
        self._set_up: asyncio.Future[None] = self._loop.create_future()
        self._exited: asyncio.Future[None] = self._loop.create_future()
        self._trouble = Tail(_TROUBLE_BYTES)
        self._said = b""
        self._pid: int | None = None
        self._pidfd = -1
        self._init_pidfd = -1
        self._alive = -1
        self._code = 0
        self._status: int | None = None
        self._readers: dict[Fd, PipeReader] = {}
        self._feeds: dict[Fd, Sequence[Feed]] = {
            Fd.STDOUT: on_stdout,
            Fd.STDERR: on_stderr,
            Fd.TROUBLE: [self._on_trouble],
            Fd.CONTROL: [self._on_control],
        }
        self._is_signal = False
        self._is_open: bool | None = None
        self.has_started = False
        """Whether the supervisor came to run the command."""

    @property
    def trouble(self) -> str:
        """Why it could not be started."""
        return self._trouble.text()[0].strip() or f"it ended with exit code {self._code}"

    @property
    def exit_code(self) -> int:
        """Of the command; negative: the signal that ended it, or its supervisor."""
        code = self._code if self._status is None else self._status
        return 128 - code if code > 128 and (self._status is None or self._is_signal) else code

    def start(
        self,
        line: CommandLine,
        script: bytes,
        *,
        env: Mapping[str, str],
        stdin: bytes | int | None,
        hold: int | None,
    ) -> None:
        """Start the supervisor; ``line`` and ``script`` are its own, ``env`` too.

        Raises:
            OSError: it could not be started.
        """
        with ExitStack() as theirs:

            def give(fd: int) -> int:
                # Out of the way of the low numbers that the supervisor gets them under.
                try:
                    high = fcntl.fcntl(fd, fcntl.F_DUPFD_CLOEXEC, _FIRST_FREE_FD)
                finally:
                    os.close(fd)
                theirs.callback(os.close, high)
                return high

            given: dict[int, int] = {Fd.SCRIPT: give(_file(script))}
            given[0] = give(_input(stdin))
            for fd, feeds in self._feeds.items():
                read, write = os.pipe()
                self._readers[fd] = PipeReader(self._loop, read, feeds, self._on_error)
                given[fd] = give(write)
            read, self._alive = os.pipe()
            given[Fd.ALIVE] = give(read)
            given[1] = given[Fd.TROUBLE]
            if self._isolation is Isolation.BUBBLEWRAP:
                given[Fd.INFO] = given[Fd.CONTROL]
            elif self._isolation is Isolation.UNSHARE:
                given[Fd.INFO] = give(os.open("/proc", os.O_RDONLY | os.O_DIRECTORY))
            if line.options is not None:
                given[Fd.OPTIONS] = give(_file(line.options))
            if hold is not None:
                given[Fd.HOLD] = give(os.dup(hold))
            pid = os.posix_spawn(
                line.argv[0],
                line.argv,
                env,
                file_actions=[
                    *((os.POSIX_SPAWN_CLOSE, fd) for fd in _inheritable()),
                    *((os.POSIX_SPAWN_DUP2, fd, low) for low, fd in given.items()),
                ],
                setsid=True,
                setsigmask=[],
                # Ignored signals are inherited, and Python ignores some.
                setsigdef=signal.valid_signals() - {signal.SIGKILL, signal.SIGSTOP},
            )
        try:
            self._pidfd = os.pidfd_open(pid)
        except OSError:
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
            raise
        self._pid = pid
        self._loop.add_reader(self._pidfd, self._on_exit)

    async def ended(self, within: timedelta | None) -> bool:
        """Wait for the command's end; False if it is still running after ``within``.

        Raises:
            Exception: what a function that was given output raised.
        """
        seconds = None if within is None else within.total_seconds()
        done, _ = await asyncio.wait([self._over], timeout=seconds)
        if done:
            self._over.result()
        return bool(done)

    async def closed_output(self, within_s: float) -> bool:
        """Whether nobody holds stdout and stderr open any more, at the latest after a while."""
        if self._is_open is not None:
            return not self._is_open
        readers = [self._readers[fd] for fd in (Fd.STDOUT, Fd.STDERR)]
        for wait_s in (0.0, within_s):
            waiting = [reader.closed for reader in readers if not reader.closed.done()]
            if waiting and wait_s:
                await asyncio.wait(waiting, timeout=wait_s)
            # On a busy loop, more may be there than was read.
            for reader in readers:
                reader.drain(_LOOSE_PIPE_BYTES)
        if self._over.done():
            self._over.result()
        return all(reader.closed.done() for reader in readers)

    async def stop(self) -> None:
        """Kill all that lives, take the rest of the output, and let go of everything."""
        try:
            if self._pid is not None:
                await self._kill()
                self._reap()
            for reader in self._readers.values():
                reader.drain(_LOOSE_PIPE_BYTES)
        finally:
            self._close()
        if self._over.done():
            self._over.result()

    def _reap(self) -> None:
        os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED)

    async def _kill(self) -> None:
        await asyncio.wait([self._set_up], timeout=_SETUP_S)
        self._signal()
        done, _ = await asyncio.wait([self._exited], timeout=_DEATH_S)
        if not done:
            signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)
            await asyncio.wait([self._exited])
        deadline = time.monotonic() + _DEATH_S
        while self._isolation is Isolation.PROCESS_GROUP and time.monotonic() < deadline:
            if not kill_marked(self._sweep):
                break
            await asyncio.sleep(0.005)

    def _signal(self) -> None:
        with suppress(ProcessLookupError):
            if self._isolation is Isolation.PROCESS_GROUP and self._pid is not None:
                os.killpg(self._pid, signal.SIGKILL)
            elif self._init_pidfd != -1:
                # Its parent ends after it, and it ends after all others of its namespace.
                signal.pidfd_send_signal(self._init_pidfd, signal.SIGKILL)
            else:
                signal.pidfd_send_signal(self._pidfd, signal.SIGKILL)

    def _close(self) -> None:
        for reader in self._readers.values():
            reader.close()
        if self._pidfd != -1:
            self._loop.remove_reader(self._pidfd)
        for fd in (self._pidfd, self._init_pidfd, self._alive):
            if fd != -1:
                os.close(fd)

    def _on_trouble(self, data: bytes) -> None:
        self._trouble.feed(data)
        if self.has_started and self._status is None:
            # A shell tells of a child that a signal ended: its exit code alone does not.
            self._is_signal = True

    def _on_control(self, data: bytes) -> None:
        self._said = (self._said + data)[-_TROUBLE_BYTES:]
        if found := re.search(rb'"child-pid": (\d+)', self._said):
            self._open_init(int(found[1]))
        if not self.has_started and (found := re.search(rb"^started (\d*)\n", self._said, re.M)):
            if found[1]:
                self._open_init(int(found[1]))
            self._readers[Fd.TROUBLE].drain(_LOOSE_PIPE_BYTES)
            self.has_started = True
            # A busy loop hears of start and end at once, and of a signal before both.
            self._is_signal = bool(_STATUS.search(self._said) and self._trouble.text()[0])
            settle(self._set_up)
        if self._status is None and (found := _STATUS.search(self._said)):
            self._readers[Fd.TROUBLE].drain(_LOOSE_PIPE_BYTES)
            self._status = int(found[1])
            self._is_open = found[2] == b"open" if found[2] else None
            settle(self._over)

    def _open_init(self, pid: int) -> None:
        if self._init_pidfd == -1:
            with suppress(ProcessLookupError):
                self._init_pidfd = os.pidfd_open(pid)

    def _on_exit(self) -> None:
        self._loop.remove_reader(self._pidfd)
        ended = os.waitid(os.P_PIDFD, self._pidfd, os.WEXITED | os.WNOWAIT)
        if ended is not None:
            self._code = ended.si_status if ended.si_code == os.CLD_EXITED else -ended.si_status
        # What it said last may not have been read yet.
        self._readers[Fd.CONTROL].drain(_LOOSE_PIPE_BYTES)
        self._readers[Fd.TROUBLE].drain(_LOOSE_PIPE_BYTES)
        for waiting in (self._exited, self._set_up, self._over):
            settle(waiting)

    def _on_error(self, error: Exception) -> None:
        if not self._over.done():
            self._over.set_exception(error)


def _inheritable() -> list[int]:
    """Open files that a child would get without being given them: what we inherited ourselves."""
    found: list[int] = []
    for fd in map(int, os.listdir("/proc/self/fd")):
        # One that is listed may be gone: at least the one that was listed with.
        with suppress(OSError):
            if fd > Fd.TROUBLE and os.get_inheritable(fd):
                found.append(fd)
    return found


def _input(stdin: bytes | int | None) -> int:
    if stdin is None:
        return os.open(os.devnull, os.O_RDONLY)
    return os.dup(stdin) if isinstance(stdin, int) else _file(stdin)


def _file(content: bytes) -> int:
    """An open file in memory, at its start."""
    fd = os.memfd_create("episodes")
    with open(fd, "wb", closefd=False) as file:
        file.write(content)
    os.lseek(fd, 0, os.SEEK_SET)
    return fd
