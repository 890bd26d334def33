"""One database: its connections, its transactions, and its troubles told as our errors."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Any, Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event, make_url
from sqlalchemy.exc import (
    ArgumentError,
    DBAPIError,
    NoSuchModuleError,
    StatementError,
)
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool

from agent_env.errors import ConfigError, IndexUnavailableError, bounded
from agent_env.runs import _dialect
from agent_env.runs._sqlite_file import keep_on_file

PATIENCE_S = 30.0
"""How long a busy database is asked again before its caller hears of it."""
_CONNECTIONS = 8

_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_CURES = {
    sqlite3.SQLITE_BUSY: f"other processes have kept it locked for {PATIENCE_S:g} s; try again",
    sqlite3.SQLITE_LOCKED: f"other threads have kept it locked for {PATIENCE_S:g} s; try again",
    sqlite3.SQLITE_FULL: "its disk is full; free some space",
    sqlite3.SQLITE_READONLY: "it can't be written; check who may write the file and its folder",
    sqlite3.SQLITE_PERM: "it can't be written; check who may write the file and its folder",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database; name another one",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a copy of it",
    sqlite3.SQLITE_CANTOPEN: (
        "it can't be opened; make sure that its folder exists and is writable, and that the file "
        "was not moved"
    ),
    sqlite3.SQLITE_IOERR: "the disk does not read or write it; check the disk and its free space",
}
_NO_TABLE = "is it a run index? Restore it, or run `episodes db upgrade` on an empty database"

P = ParamSpec("P")
T = TypeVar("T")


class Database:
    """Thread-safe. A transaction is one call of ``read`` or ``write``."""

    def __init__(self, url: str) -> None:
        self._engine = _engine(url)
        self.name = _name(self._engine.url)
        """Its file, or its URL without secrets."""
        # Threads of this process queue here, since SQLite lets waiting writers poll, unfairly.
        self._writer = threading.Lock() if self._engine.dialect.name == "sqlite" else None
        self._immediate = self._engine.execution_options(agent_env_writes=True)

    @property
    def checked_out(self) -> int:
        """Connections in use now."""
        pool = self._engine.pool
        assert isinstance(pool, QueuePool)
        return pool.checkedout()

    def close(self) -> None:
        """Close every connection that is not in use."""
        self._engine.dispose()

    def read(self, work: Callable[Concatenate[Connection, P], T], *a: P.args, **kw: P.kwargs) -> T:
        """Do the work in a transaction that sees one state of the database.

        Raises:
            IndexUnavailableError: the database does not answer or refuses.
        """
        return self._patiently(self._engine, lambda connection: work(connection, *a, **kw))

    def write(self, work: Callable[Concatenate[Connection, P], T], *a: P.args, **kw: P.kwargs) -> T:
        """Do the work in a transaction of its own; on SQLite no other writes meanwhile.

        Work that met a busy database is undone and done again.

        Raises:
            IndexUnavailableError: the database does not answer or refuses. Nothing is written.
        """
        with self._turn():
            return self._patiently(self._immediate, lambda connection: work(connection, *a, **kw))

    @contextlib.contextmanager
    def _turn(self) -> Generator[None]:
        if self._writer is None:
            yield
        elif self._writer.acquire(timeout=PATIENCE_S):
            try:
                yield
            finally:
                self._writer.release()
        else:
            raise IndexUnavailableError(self._told(_CURES[sqlite3.SQLITE_LOCKED]))

    def _patiently(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with engine.begin() as connection:
                    return work(connection)
            except DBAPIError as error:
                if not _is_busy(error) or time.monotonic() >= deadline:
                    raise IndexUnavailableError(self._told(_cure(error))) from error
            except PoolTimeoutError as error:
                cure = f"its {_CONNECTIONS} connections have been in use for {PATIENCE_S:g} s"
                raise IndexUnavailableError(self._told(f"{cure}; try again")) from error
            except StatementError as error:
                # A value that its column can't hold: a bug of the caller, not of the database.
                raise (error.orig or error) from None
            # SQLite waits for most locks itself; of the others it only says that they are taken.
            time.sleep(random.uniform(0.002, 0.02))

    def _told(self, cure: str) -> str:
        return f"the run index {self.name} can't be used: {cure}"


def _engine(url: str) -> Engine:
    try:
        parsed = make_url(url)
        kind = parsed.get_backend_name()
        if kind not in _dialect.SUPPORTED:
            raise ConfigError(
                f"a run index can't be kept in {kind!r}; use sqlite:////PATH or "
                "postgresql+psycopg://USER@HOST/NAME"
            )
        return _sqlite(parsed) if kind == "sqlite" else _postgresql(parsed)
    except (ArgumentError, NoSuchModuleError):  # its text has the URL in it
        raise ConfigError(
            "the run index's database is not an SQLAlchemy URL; write sqlite:////PATH or "
            "postgresql+psycopg://USER@HOST/NAME"
        ) from None
    except ModuleNotFoundError as error:
        raise ConfigError(
            f"the driver of the run index's database is not installed; pip install {error.name}"
        ) from None


def _sqlite(url: URL) -> Engine:
    name = url.database or ":memory:"
    if ":memory:" in name or url.query.get("mode") == "memory":
        raise ConfigError(
            "a run index in memory can't be shared between processes; name a file: sqlite:////PATH"
        )
    engine = create_engine(
        url,
        connect_args={"timeout": PATIENCE_S},
        pool_size=_CONNECTIONS,
        max_overflow=0,
        pool_timeout=PATIENCE_S,
        hide_parameters=True,
    )
    if url.database and not url.query:
        keep_on_file(engine, Path(url.database))
    event.listen(engine, "connect", _connected)
    event.listen(engine, "begin", _began)
    return engine


def _postgresql(url: URL) -> Engine:
    return create_engine(
        url,
        connect_args={"connect_timeout": 5},
        pool_size=_CONNECTIONS,
        max_overflow=0,
        pool_timeout=PATIENCE_S,
        pool_pre_ping=True,
        hide_parameters=True,
    )


def _connected(connection: sqlite3.Connection, _record: object) -> None:
    # Python's driver would begin transactions by itself, and late: we say when, in `_began`.
    connection.isolation_level = None
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = NORMAL")
    connection.execute("PRAGMA foreign_keys = ON")
    _dialect.add_aggregates(connection)


def _began(connection: Connection) -> None:
    # A transaction that reads first and writes later can't wait for a lock: it would be refused.
    writes = connection.get_execution_options().get("agent_env_writes", False)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _name(url: URL) -> str:
    """What to call the database: nothing that can hold a secret."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.set(query={}).render_as_string(hide_password=True)


def _is_busy(error: DBAPIError) -> bool:
    return _code(error) in _BUSY


def _code(error: DBAPIError) -> int | None:
    """SQLite's own number of the error, without what specializes it."""
    code: Any = getattr(error.orig, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _cure(error: DBAPIError) -> str:
    """What is wrong and what to do."""
    said = str(error.orig).strip().partition("\n")[0]
    code = _code(error)
    if code in _CURES:
        return _CURES[code]
    if "no such table" in said or "no such column" in said or "does not exist" in said:
        return f"it has {bounded(said, 200)}; {_NO_TABLE}"
    kind = type(error.orig).__name__
    return f"its database answered {kind}: {bounded(said, 500)}; make sure that it runs, try again"
