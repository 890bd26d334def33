"""Sandboxes on this machine: a folder each, and commands as child processes.

Under bubblewrap a sandbox has a root of its own. It sees the system's programs read-only, its own
folders writable, no other file of the machine and, unless asked, no network; ``/app/kit`` is its
own ``/app/kit``. When the worker is root, each sandbox's commands run as a user nobody else has.

Where bubblewrap can't be used, paths are those of the machine: ``cwd`` and the file operations
still map ``/app/kit`` into the sandbox's folder, but a command that names ``/app/kit`` itself means
the machine's, and can read and write what the worker can. ``Isolation.worth`` says what is left.
"""

import asyncio
import os
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime, timedelta
from functools import cached_property
from pathlib import Path, PurePosixPath
from threading import Lock
from typing import TypeVar

from typing_extensions import override

from agent_env._pipes import to_its_end
from agent_env._remove import remove_tree
from agent_env.errors import SandboxLostError, SandboxUnavailableError
from agent_env.processes import (
    Isolation,
    Limits,
    SandboxView,
    best_isolation,
    run_process,
)
from agent_env.results import SandboxRef
from agent_env.sandboxes._folders import Folders, Record, close, is_complete, read_record
from agent_env.sandboxes._inside import HOME, fill, tree, uid
from agent_env.sandboxes._machine_etc import machine_etc
from agent_env.sandboxes._use import end_use, in_use, mark_of
from agent_env.sandboxes.base import (
    DEFAULT_EXEC_TIMEOUT,
    MAX_OUTPUT_BYTES,
    ExecResult,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
)

T = TypeVar("T")

DEFAULT_MEMORY_MB = 4096
DEFAULT_FILE_MB = 4096
DEFAULT_PROCESSES = 256

_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"
_MIB = 1024 * 1024
_LOST_POLL_S = 0.25
_SERVED_BYTES = 16 * 1024
"""What is kept of the output of a program that is talked to."""


class LocalProvider(SandboxProvider):
    """Sandboxes under a state folder. They live and die with the machine.

    Args:
        state_dir: Its ``sandboxes`` folder holds them.
        isolation: How commands run; None is the best that this machine permits.
    """

    type = "local"
    is_local = True

    def __init__(self, state_dir: Path, *, isolation: Isolation | None = None) -> None:
        self._state_dir = state_dir.absolute()
        self._folders = Folders(self._state_dir / "sandboxes", self.type)
        self._given_isolation = isolation
        self._etc: Path | None = None
        self._destroying: dict[Path, Lock] = {}

    @cached_property
    def isolation(self) -> Isolation:
        """How commands run. Found out when first asked."""
        return self._given_isolation or best_isolation()

    @override
    async def create(self, spec: SandboxSpec, *, owner: str, key: str) -> SandboxRef:
        record = Record(owner=owner, key=key, created_at=datetime.now(UTC), spec=spec)
        try:
            # Not in a thread: that would go on after the call was canceled.
            return self._folders.make(record, fill)
        except OSError as error:
            raise SandboxUnavailableError(f"a local sandbox can't be made: {error}") from error

    @override
    async def attach(self, ref: SandboxRef) -> Sandbox:
        path = self._folders.path(ref)
        if path is None or not is_complete(path):
            raise _lost(ref)
        isolation = await self._found_isolation()
        try:
            etc = await self._found_etc(isolation)
        except OSError as error:
            raise SandboxUnavailableError(
                f"what local sandboxes see as /etc can't be made: {error}"
            ) from error
        return LocalSandbox(ref, path, isolation, etc=etc, hidden=self._state_dir)

    @override
    async def destroy(self, ref: SandboxRef) -> None:
        path = self._folders.path(ref)
        if path is not None:
            isolation = await self._found_isolation()
            await asyncio.to_thread(self._destroy, path, isolation)

    @override
    async def list_owned(self, owner: str) -> list[SandboxRef]:
        return self._folders.owned(owner)

    @override
    async def owners(self) -> set[str]:
        return await asyncio.to_thread(self._folders.owners)

    def _destroy(self, path: Path, isolation: Isolation) -> None:
        # Whoever gave up waiting for an earlier call has left it at work.
        with self._destroying.setdefault(path, Lock()):
            if not path.exists() and isolation.is_rooted:
                return
            close(path)
            try:
                end_use(path, isolation)
                remove_tree(path)
            except OSError as error:
                raise SandboxUnavailableError(
                    f"a local sandbox can't be removed: {error}"
                ) from error
            self._folders.forget(path)
        self._destroying.pop(path, None)

    async def _found_isolation(self) -> Isolation:
        if "isolation" in self.__dict__ or self._given_isolation:
            return self.isolation
        return await asyncio.to_thread(lambda: self.isolation)

    async def _found_etc(self, isolation: Isolation) -> Path:
        if self._etc is None:
            # Where commands have no root of their own they see the machine's.
            parent = self._state_dir / "etc"
            self._etc = (
                await asyncio.to_thread(machine_etc, parent) if isolation.is_rooted else parent
            )
        return self._etc


PROVIDER = LocalProvider


class LocalSandbox(Sandbox):
    """One sandbox of this machine. Background processes end with the command that started them.

    Args:
        ref: Its reference.
        folder: Where it lies.
        isolation: How its commands run.
        etc: What they see as ``/etc``.
        hidden: What its commands must never see.
    """

    def __init__(
        self, ref: SandboxRef, folder: Path, isolation: Isolation, *, etc: Path, hidden: Path
    ) -> None:
        super().__init__(ref)
        self._machine_etc = etc
        self._folder = folder
        self._isolation = isolation
        self._hidden = hidden
        self._tree = tree(folder)

    @override
    async def exec(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | None = None,
        env: Mapping[str, str] | None = None,
        cwd: str | None = None,
        timeout: timedelta = DEFAULT_EXEC_TIMEOUT,
        max_output_bytes: int = MAX_OUTPUT_BYTES,
    ) -> ExecResult:
        return await self._run(
            argv, stdin=stdin, env=env, cwd=cwd, timeout=timeout, max_output_bytes=max_output_bytes
        )

    @override
    async def serve(
        self,
        argv: Sequence[str],
        *,
        stdin: int,
        on_line: Callable[[bytes], None],
        env: Mapping[str, str] | None = None,
    ) -> ExecResult:
        try:
            return await self._run(
                argv,
                stdin=stdin,
                env=env,
                cwd=None,
                timeout=None,
                max_output_bytes=_SERVED_BYTES,
                on_line=on_line,
            )
        finally:
            os.close(stdin)

    async def _run(
        self,
        argv: Sequence[str],
        *,
        stdin: bytes | int | None,
        env: Mapping[str, str] | None,
        cwd: str | None,
        timeout: timedelta | None,
        max_output_bytes: int,
        on_line: Callable[[bytes], None] | None = None,
    ) -> ExecResult:
        with self._lost_if_missing(), in_use(self._folder) as busy:
            spec = read_record(self._folder).spec
            running = asyncio.ensure_future(
                run_process(
                    argv,
                    isolation=self._isolation,
                    cwd=self._seen(cwd or ""),
                    env=self._environment() | dict(spec.env) | dict(env or {}),
                    stdin=stdin,
                    timeout=timeout,
                    max_output_bytes=max_output_bytes,
                    limits=_limits(spec),
                    on_stdout_line=on_line,
                    view=self._view(network=spec.network),
                    hold=busy,
                    mark=mark_of(self._folder),
                )
            )
            try:
                return await self._unless_lost(running)
            finally:
                running.cancel()
                await to_its_end(asyncio.wait([running]))
                if not running.cancelled():
                    # Whatever it was, the loss of the sandbox is the reason.
                    running.exception()

    @override
    async def read_file(self, path: str, *, max_bytes: int = MAX_OUTPUT_BYTES) -> bytes:
        return await self._with_files(lambda: self._tree.read(path, max_bytes))

    @override
    async def write_file(self, path: str, data: bytes) -> None:
        await self._with_files(lambda: self._tree.write(path, data))

    @override
    async def upload(self, source: Path, destination: str) -> None:
        await self._with_files(lambda: self._tree.copy_in(source, destination))

    @override
    async def download(self, source: str, destination: Path) -> None:
        await self._with_files(lambda: self._tree.copy_out(source, destination))

    async def _unless_lost(self, running: asyncio.Future[ExecResult]) -> ExecResult:
        while True:
            done, _ = await asyncio.wait([running], timeout=_LOST_POLL_S)
            if not is_complete(self._folder):
                raise _lost(self.ref)
            if done:
                return running.result()

    async def _with_files(self, work: Callable[[], T]) -> T:
        with self._lost_if_missing():
            return await asyncio.to_thread(work)

    @contextmanager
    def _lost_if_missing(self) -> Generator[None]:
        try:
            if not is_complete(self._folder):
                raise _lost(self.ref)
            yield
        except OSError:
            if is_complete(self._folder):
                raise
            raise _lost(self.ref) from None

    def _seen(self, path: str) -> Path:
        """A path as the sandbox's commands see it."""
        if self._isolation.is_rooted:
            return Path(PurePosixPath(HOME, path))
        return self._tree.on_host(path)

    def _environment(self) -> dict[str, str]:
        path = _PATH if self._isolation.is_rooted else os.environ.get("PATH", _PATH)
        return {
            "PATH": path,
            "HOME": str(self._seen(HOME)),
            "USER": "agent",
            "LOGNAME": "agent",
            "LANG": "C.UTF-8",
            "TMPDIR": str(self._seen("/tmp")),
        }

    def _view(self, *, network: bool) -> SandboxView:
        folder = self._folder
        return SandboxView(
            root=folder / "root",
            etc=self._machine_etc,
            own_etc=folder / "etc",
            shared_memory=folder / "shm",
            hidden=self._hidden,
            uid=uid(folder),
            network=network,
        )


def _limits(spec: SandboxSpec) -> Limits:
    return Limits(
        memory_bytes=(spec.memory_mb or DEFAULT_MEMORY_MB) * _MIB,
        file_bytes=(spec.disk_mb or DEFAULT_FILE_MB) * _MIB,
        processes=spec.processes or DEFAULT_PROCESSES,
    )


def _lost(ref: SandboxRef) -> SandboxLostError:
    return SandboxLostError(f"the local sandbox {ref.name!r} is gone: its folder was removed")
