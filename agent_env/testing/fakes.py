"""Stand-ins that live in memory, for tests that are about something else."""

import asyncio
import posixpath
import stat
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path

from typing_extensions import override

from agent_env.errors import SandboxLostError, SandboxUnavailableError
from agent_env.results import SandboxRef
from agent_env.sandboxes.base import (
    DEFAULT_EXEC_TIMEOUT,
    MAX_OUTPUT_BYTES,
    ExecResult,
    Sandbox,
    SandboxProvider,
    SandboxSpec,
)

_HOME = "/home/agent"

Answer = Callable[[Sequence[str]], ExecResult]


@dataclass
class _Held:
    owner: str
    ref: SandboxRef
    files: dict[str, bytes] = field(default_factory=dict[str, bytes])


def _succeed(_: Sequence[str]) -> ExecResult:
    return ExecResult(0, "", "")


class FakeSandboxProvider(SandboxProvider):
    """Sandboxes in memory. A sandbox exists from the moment its creation begins.

    Args:
        type: What its references say, and what to list it under in ``Providers``.
        create_delay: How long ``create`` takes to answer.
        fail_destroy_times: How many calls of ``destroy`` fail before one works.
        answer: What a command returns; without it every command succeeds and prints nothing.
    """

    type = "fake"

    def __init__(
        self,
        *,
        type: str = "fake",
        create_delay: timedelta = timedelta(),
        fail_destroy_times: int = 0,
        answer: Answer = _succeed,
    ) -> None:
        self._type = type
        self._held: dict[tuple[str, str], _Held] = {}
        self.create_delay = create_delay
        self.fail_destroy_times = fail_destroy_times
        """How many more calls of ``destroy`` fail."""
        self.answer = answer
        self.commands: list[tuple[str, ...]] = []
        """Every command that was run, in order."""
        self.made = 0
        """How many sandboxes there ever were."""

    @property
    def live(self) -> list[SandboxRef]:
        """What is up, in order of creation."""
        return [held.ref for held in self._held.values()]

    @override
    async def create(self, spec: SandboxSpec, *, owner: str, key: str) -> SandboxRef:
        held = self._held.get((owner, key))
        if held is None:
            self.made += 1
            ref = SandboxRef(
                type=self._type,
                id=f"fake-{self.made}",
                name=spec.name,
                created_at=datetime.now(UTC),
            )
            held = self._held[owner, key] = _Held(owner, ref)
        await asyncio.sleep(self.create_delay.total_seconds())
        return held.ref

    @override
    async def attach(self, ref: SandboxRef) -> Sandbox:
        self.files(ref)
        return FakeSandbox(ref, self)

    @override
    async def destroy(self, ref: SandboxRef) -> None:
        if self.fail_destroy_times > 0:
            self.fail_destroy_times -= 1
            raise SandboxUnavailableError(f"the fake sandbox {ref.name!r} can't be destroyed now")
        self._held = {key: held for key, held in self._held.items() if held.ref.id != ref.id}

    @override
    async def list_owned(self, owner: str) -> list[SandboxRef]:
        return [held.ref for held in self._held.values() if held.owner == owner]

    @override
    async def owners(self) -> set[str]:
        return {held.owner for held in self._held.values()}

    def files(self, ref: SandboxRef) -> dict[str, bytes]:
        """The files of a sandbox, by absolute path.

        Raises:
            SandboxLostError: it is gone.
        """
        for held in self._held.values():
            if held.ref.id == ref.id:
                return held.files
        raise SandboxLostError(f"the fake sandbox {ref.name!r} is gone")


class FakeSandbox(Sandbox):
    """One sandbox in memory. Runs nothing; has files but no folders."""

    def __init__(self, ref: SandboxRef, provider: FakeSandboxProvider) -> None:
        super().__init__(ref)
        self._provider = provider

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
        self._provider.files(self.ref)
        self._provider.commands.append(tuple(argv))
        return self._provider.answer(argv)

    @override
    async def read_file(self, path: str, *, max_bytes: int = MAX_OUTPUT_BYTES) -> bytes:
        files = self._provider.files(self.ref)
        if _absolute(path) not in files:
            raise FileNotFoundError(f"no such file in the sandbox: {path}")
        data = files[_absolute(path)]
        if len(data) > max_bytes:
            raise ValueError(f"{path} has {len(data):,} bytes; at most {max_bytes:,} can be read")
        return data

    @override
    async def write_file(self, path: str, data: bytes) -> None:
        self._provider.files(self.ref)[_absolute(path)] = data

    @override
    async def upload(self, source: Path, destination: str) -> None:
        files = self._provider.files(self.ref)
        files.update(await asyncio.to_thread(_read_all, source, _absolute(destination)))

    @override
    async def download(self, source: str, destination: Path) -> None:
        path = _absolute(source)
        files = self._provider.files(self.ref)
        found = {name: data for name, data in files.items() if f"{name}/".startswith(f"{path}/")}
        if not found:
            raise FileNotFoundError(f"no such path in the sandbox: {source}")
        await asyncio.to_thread(_write_all, found, path, destination)


def _absolute(path: str) -> str:
    return posixpath.normpath(posixpath.join(_HOME, path))


def _read_all(source: Path, destination: str) -> dict[str, bytes]:
    if stat.S_ISREG(source.stat().st_mode):
        return {destination: source.read_bytes()}
    return {
        posixpath.join(destination, path.relative_to(source).as_posix()): path.read_bytes()
        for path in sorted(source.rglob("*"))
        if path.is_file()
    }


def _write_all(files: Mapping[str, bytes], root: str, destination: Path) -> None:
    for name, data in files.items():
        target = destination if name == root else destination / posixpath.relpath(name, root)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(data)
