"""Finds a sandbox provider by its type, and keeps the ones in use."""

import asyncio
import contextlib
import difflib
import functools
import importlib
from collections.abc import Callable, Iterable, Mapping
from importlib.metadata import entry_points
from pathlib import Path

from agent_env.errors import UnknownTypeError
from agent_env.results import SandboxRef
from agent_env.sandboxes.base import SandboxProvider

ENTRY_POINTS = "durable_episodes.sandboxes"
_BUILT_IN = ("local",)
_PAUSES_S = (0.05, 0.2)
"""Between one try to destroy a sandbox and the next."""


class Providers:
    """The providers of one process, made when first asked for.

    Args:
        state_dir: Where providers of this machine keep their sandboxes.
        given: Providers to use in place of built-in ones and plugins, by type.
    """

    def __init__(self, state_dir: Path, given: Mapping[str, SandboxProvider] | None = None) -> None:
        self._state_dir = state_dir
        self._made = dict(given or {})
        self._in_use = dict.fromkeys(self._made)

    def open(self, type: str) -> SandboxProvider:
        """The provider of a type. A built-in type wins over a plugin's.

        Raises:
            UnknownTypeError: nobody provides it; the message lists who could be meant.
        """
        found = self._found(type)
        self._in_use[type] = None
        return found

    def local(self) -> list[SandboxProvider]:
        """Every provider of this machine, and every other one in use."""
        for name in _BUILT_IN:
            self.open(name)
        return [self._made[type] for type in self._in_use]

    def installed(self) -> tuple[Mapping[str, SandboxProvider], Mapping[str, Exception]]:
        """Every provider there is, in use or not; and what keeps others from being used. By type.

        Blocks: it imports what is not in use yet. That does not bring it into use.
        """
        broken: dict[str, Exception] = {}
        for type in self.known:
            try:
                self._found(type)
            except Exception as error:  # a plugin is foreign code
                broken[type] = error
        return dict(self._made), broken

    @property
    def known(self) -> list[str]:
        """Every type that can be asked for."""
        return sorted({*self._made, *_BUILT_IN, *self._plugins})

    @functools.cached_property
    def _plugins(self) -> frozenset[str]:
        # Reads the metadata of all that is installed: once is enough.
        return frozenset(point.name for point in entry_points(group=ENTRY_POINTS))

    async def destroy_owned(self, owner: str, *, types: Iterable[str] = ()) -> list[SandboxRef]:
        """Destroy everything this owner has; returns what is still up after three quick tries.

        Args:
            owner: The run.
            types: Providers to ask beside this machine's and those in use. One that nobody
                provides can't have made anything.

        Raises:
            SandboxUnavailableError: a provider can't say what it has. Safe to retry.
        """
        for type in types:
            with contextlib.suppress(UnknownTypeError):
                self.open(type)
        owned = [
            (provider, ref) for provider in self.local() for ref in await provider.list_owned(owner)
        ]
        left = await asyncio.gather(*(_left(provider, ref) for provider, ref in owned))
        return [ref for ref in left if ref is not None]

    def _found(self, type: str) -> SandboxProvider:
        if type not in self._made:
            # Two threads may be here at once: all callers get the same one.
            self._made.setdefault(type, self._load(type)(self._state_dir))
        return self._made[type]

    def _load(self, type: str) -> Callable[[Path], SandboxProvider]:
        if type in _BUILT_IN:
            return importlib.import_module(f"agent_env.sandboxes.{type}").PROVIDER
        for point in entry_points(group=ENTRY_POINTS, name=type):
            return point.load()
        near = difflib.get_close_matches(type, self.known, 1)
        hint = f"did you mean {near[0]!r}? " if near else ""
        raise UnknownTypeError(
            f"unknown sandbox type {type!r}: {hint}Known: {', '.join(self.known)}."
        )


async def _left(provider: SandboxProvider, ref: SandboxRef) -> SandboxRef | None:
    """Destroy a sandbox; returns it if it is still up."""
    for pause_s in (*_PAUSES_S, None):
        try:
            await provider.destroy(ref)
            return None
        except Exception:  # a provider is foreign code, and one of it must not stop the others
            if pause_s is not None:
                await asyncio.sleep(pause_s)
    return ref
