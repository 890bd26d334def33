"""The run index's database of a soak, and how it goes away for a while."""

import asyncio
import random
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path
from typing import Protocol

from tests.postgres import PostgresServer, running_postgres


class Index(Protocol):
    """One database."""

    url: str

    async def away(self, dice: random.Random, seconds: float) -> None:
        """Be away for so long, unless it is already."""
        ...


class FileIndex:
    """SQLite: its file is moved and put back."""

    def __init__(self, path: Path) -> None:
        self.url = f"sqlite:///{path}"
        self._path = path

    async def away(self, dice: random.Random, seconds: float) -> None:
        """See ``Index``."""
        away = self._path.with_name("away.sqlite")
        if away.exists():
            return
        self._path.rename(away)
        try:
            await asyncio.sleep(seconds)
        finally:
            away.rename(self._path)


class ServerIndex:
    """PostgreSQL: its server is killed or stopped, and started again."""

    def __init__(self, server: PostgresServer, url: str) -> None:
        self.url = url
        self._server = server

    async def away(self, dice: random.Random, seconds: float) -> None:
        """See ``Index``."""
        if not self._server.is_up:
            return
        dice.choice([self._server.kill, self._server.stop])()
        try:
            await asyncio.sleep(seconds)
        finally:
            self._server.start()


@contextmanager
def index_of(kind: str, folder: Path) -> Generator[Index]:
    """An empty one of this kind."""
    if kind == "sqlite":
        yield FileIndex(folder / "episodes.sqlite")
        return
    # Of the soak alone, since a soak ends with it whatever state it is in.
    with running_postgres() as server, server.database() as url:
        yield ServerIndex(server, url)
