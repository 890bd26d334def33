"""The contract of sandboxes and of what provides them.

A provider lists what it made by *owner*, the run; so teardown needs no list, and finds a sandbox
whose creation was cut off half-way. Anything here may be called twice, from any process on the
provider's reach, and after a crash.
"""

from __future__ import annotations

import os
from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path
from typing import ClassVar, NamedTuple

from pydantic import Field

from agent_env._model import WireModel
from agent_env.errors import UserError
from agent_env.results import SandboxRef

DEFAULT_EXEC_TIMEOUT = timedelta(minutes=10)
MAX_OUTPUT_BYTES = 1024 * 1024
"""What ``exec`` keeps of each stream unless told otherwise, in bytes: the tail."""


class SandboxSpec(WireModel):
    """What is asked of a provider."""

    type: str
    name: str
    """What the task calls it."""
    image: str | None = None
    """Container image, for providers that have such."""
    network: bool = False
    """Whether commands may reach the network."""
    env: Mapping[str, str] = {}
    """Environment of every command."""
    cpu: float | None = Field(default=None, gt=0)
    memory_mb: int | None = Field(default=None, gt=0)
    """Most memory of one process, in MiB."""
    disk_mb: int | None = Field(default=None, gt=0)
    """Largest file a command may write, in MiB."""
    processes: int | None = Field(default=None, gt=0)
    """Most processes at once."""


class ExecResult(NamedTuple):
    """How a command ended. A non-zero exit code is a result, never an error."""

    exit_code: int
    """Negative: the signal that ended it, as in ``subprocess``."""
    stdout: str
    """Invalid UTF-8 shows as replacement characters."""
    stderr: str
    timed_out: bool = False
    """It was killed, with every descendant, at its timeout."""
    cut_bytes: int = 0
    """Bytes of output dropped from the front; the text starts with a mark that says so."""
    left_open: bool = False
    """A descendant still held stdout or stderr when the command ended; reading stopped there."""


class Sandbox(ABC):
    """A place where commands run and files live.

    Paths are the sandbox's own, absolute or relative to its home.
    """

    def __init__(self, ref: SandboxRef) -> None:
        self.ref = ref

    @abstractmethod
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
        """Run a command to its end, or to its timeout.

        Canceling the call kills the command with every descendant. A background child that keeps a
        pipe open does not delay the return.

        Raises:
            SandboxLostError: the sandbox is gone.
            SandboxUnavailableError: the provider could not run it. Safe to retry.
        """

    async def serve(
        self,
        argv: Sequence[str],
        *,
        stdin: int,
        on_line: Callable[[bytes], None],
        env: Mapping[str, str] | None = None,
    ) -> ExecResult:
        """Run a program that is talked to while it runs, until it ends or this call is canceled.

        A provider that can't leaves this as it is.

        Args:
            argv: Program and arguments.
            stdin: An open file that the program reads; it is closed here in any case.
            on_line: Called with each line of stdout as it arrives. What it raises ends the program.
            env: Added to the sandbox's environment.

        Raises:
            SandboxLostError: the sandbox is gone.
            SandboxUnavailableError: the provider could not run it.
            UserError: this provider never can.
        """
        os.close(stdin)
        raise UserError(
            f"a sandbox of type {self.ref.type!r} can't hold a program that is talked to; use an "
            "MCP server with a url"
        )

    @abstractmethod
    async def read_file(self, path: str, *, max_bytes: int = MAX_OUTPUT_BYTES) -> bytes:
        """The file's bytes.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is larger than ``max_bytes``; names both sizes.
            SandboxLostError: the sandbox is gone.
        """

    @abstractmethod
    async def write_file(self, path: str, data: bytes) -> None:
        """Write a file, and the folders it needs.

        Raises:
            SandboxLostError: the sandbox is gone.
        """

    @abstractmethod
    async def upload(self, source: Path, destination: str) -> None:
        """Copy a file, or a folder's content, from this machine into the sandbox.

        Raises:
            SandboxLostError: the sandbox is gone.
        """

    @abstractmethod
    async def download(self, source: str, destination: Path) -> None:
        """Copy a file, or a folder's content, out of the sandbox.

        Raises:
            FileNotFoundError: there is no such path.
            SandboxLostError: the sandbox is gone.
        """


class SandboxProvider(ABC):
    """Makes, finds and destroys sandboxes of one type."""

    type: ClassVar[str]
    is_local: ClassVar[bool] = False
    """Whether its sandboxes live and die with the host that made them."""

    @abstractmethod
    async def create(self, spec: SandboxSpec, *, owner: str, key: str) -> SandboxRef:
        """Make a sandbox, or find the one this key made before.

        Args:
            spec: What it should be.
            owner: The run it belongs to.
            key: Idempotency key, unique to one attempt of one step of one run.

        Raises:
            SandboxUnavailableError: it can't be made now. Safe to retry.
            UserError: it can never be made as asked.
        """

    @abstractmethod
    async def attach(self, ref: SandboxRef) -> Sandbox:
        """A usable object for a reference, possibly made by another process.

        Raises:
            SandboxLostError: it is gone.
        """

    @abstractmethod
    async def destroy(self, ref: SandboxRef) -> None:
        """Kill every process of it and remove all it holds. Succeeds when there is nothing left.

        Raises:
            SandboxUnavailableError: something is left. Safe to retry.
        """

    @abstractmethod
    async def list_owned(self, owner: str) -> list[SandboxRef]:
        """Every sandbox of this owner, half-made ones included."""

    @abstractmethod
    async def owners(self) -> set[str]:
        """Every owner that has a sandbox here: what a janitor compares with the live runs."""
