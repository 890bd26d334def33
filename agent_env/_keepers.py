"""What keeps things for runs, as a janitor asks it: foreign code that may raise, hang or cancel."""

import asyncio
from collections.abc import Coroutine
from typing import Any, ClassVar, NamedTuple, Protocol, TypeVar

from agent_env.errors import SandboxUnavailableError
from agent_env.results import SandboxRef

T = TypeVar("T")

_ANSWER_S = 60.0
"""Longest that one call may take."""


class Keeper(Protocol):
    """A sandbox provider, or what else keeps things for runs in the same way."""

    type: ClassVar[str]
    is_local: ClassVar[bool]

    async def owners(self) -> set[str]:
        """See ``SandboxProvider``."""
        ...

    async def list_owned(self, owner: str) -> list[SandboxRef]:
        """See ``SandboxProvider``."""
        ...

    async def destroy(self, ref: SandboxRef) -> None:
        """See ``SandboxProvider``."""
        ...


class Left(NamedTuple):
    """Something that a run owns."""

    keeper: Keeper
    owner: str
    ref: SandboxRef

    @property
    def key(self) -> tuple[str, str]:
        """What it is known by."""
        return self.ref.type, self.ref.id


async def answered(call: Coroutine[Any, Any, T]) -> T:
    """What a keeper answers.

    Raises:
        SandboxUnavailableError: it did not answer in time, or canceled itself.
        Exception: whatever else it raised.
    """
    limit = asyncio.timeout(_ANSWER_S)
    try:
        async with limit:
            return await call
    except TimeoutError as error:
        if not limit.expired():
            raise  # its own
        raise SandboxUnavailableError(f"it took longer than {_ANSWER_S:g} s") from error
    except asyncio.CancelledError:
        task = asyncio.current_task()
        if task is None or task.cancelling():
            raise
        raise SandboxUnavailableError("it raised CancelledError") from None
