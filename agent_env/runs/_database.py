"""One database: its connections, its transactions, and its troubles told as our errors."""

from __future__ import annotations

import contextlib
import random
import sqlite3
import threading
import time
from collections.abc import Callable, Generator
from pathlib import Path
from typing import Concatenate, ParamSpec, TypeVar

from sqlalchemy import URL, Connection, Engine, create_engine, event
from sqlalchemy.exc import DBAPIError, NoSuchModuleError, StatementError
from sqlalchemy.exc import TimeoutError as PoolTimeoutError
from sqlalchemy.pool import QueuePool

from agent_env._database_url import NO_URL, read_url
from agent_env.errors import ConfigError, IndexUnavailableError
from agent_env.runs import _dialect
from agent_env.runs._sqlite_file import keep_on_file
from agent_env.runs._troubles import (
    CONNECTIONS,
    NO_CONNECTION,
    OTHER_THREADS,
    PATIENCE_S,
    cure,
    is_busy,
)

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
        self._reading = _dialect.reading(self._engine)
        self._writing = _dialect.writing(self._engine)

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
        return self._patiently(self._reading, lambda connection: work(connection, *a, **kw))

    def write(self, work: Callable[Concatenate[Connection, P], T], *a: P.args, **kw: P.kwargs) -> T:
        """Do the work in a transaction of its own; on SQLite no other writes meanwhile.

        Work that met a busy database is undone and done again.

        Raises:
            IndexUnavailableError: the database does not answer or refuses. Nothing is written.
        """
        with self._turn():
            return self._patiently(self._writing, lambda connection: work(connection, *a, **kw))

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
            raise IndexUnavailableError(self._told(OTHER_THREADS))

    def _patiently(self, engine: Engine, work: Callable[[Connection], T]) -> T:
        deadline = time.monotonic() + PATIENCE_S
        while True:
            try:
                with engine.begin() as connection:
                    return work(connection)
            except DBAPIError as error:
                if not is_busy(error) or time.monotonic() >= deadline:
                    raise IndexUnavailableError(self._told(cure(error))) from error
            except PoolTimeoutError as error:
                raise IndexUnavailableError(self._told(NO_CONNECTION)) from error
            except StatementError as error:
                # A value that its column can't hold: a bug of the caller, not of the database.
                raise (error.orig or error) from None
            # SQLite waits for most locks itself; of the others it only says that they are taken.
            # PostgreSQL ends one of two transactions that wait for each other.
            time.sleep(random.uniform(0.002, 0.02))

    def _told(self, cure: str) -> str:
        return f"the run index {self.name} can't be used: {cure}"


def _engine(url: str) -> Engine:
    try:
        parsed = read_url(url)
    except ConfigError as error:
        raise ConfigError(f"the run index's database {error}") from None
    try:
        kind = parsed.get_backend_name()
        if kind == "sqlite":
            return _sqlite(parsed)
        if kind in _dialect.POSTGRESQL:
            return _postgresql(parsed)
        raise ConfigError(
            f"a run index can't be kept in {kind!r}; use sqlite:////PATH or "
            "postgresql+psycopg://USER:PASSWORD@HOST/NAME"
        )
    except NoSuchModuleError:  # its text has the URL in it
        raise ConfigError(f"the run index's database {NO_URL}") from None
    except ImportError as error:
        if (error.name or "psycopg").startswith("psycopg"):
            raise ConfigError(
                "the driver of PostgreSQL is not installed; pip install "
                "'durable-episodes[postgres]'"
            ) from None
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
        pool_size=CONNECTIONS,
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
    if "+" not in url.drivername:
        url = url.set(drivername="postgresql+psycopg")  # not the one that SQLAlchemy thinks of
    options: dict[str, object] = {
        "connect_timeout": 5,
        "application_name": "durable-episodes",
        # A server or a network that went away without a word is noticed within a minute.
        "keepalives_idle": 20,
        "keepalives_interval": 10,
        "keepalives_count": 3,
        "tcp_user_timeout": 30_000,
        # A client that was cut off in a transaction must not keep its locks for long.
        "options": f"-c lock_timeout={PATIENCE_S:.0f}s -c idle_in_transaction_session_timeout=60s",
    }
    return create_engine(
        url,
        connect_args={name: value for name, value in options.items() if name not in url.query},
        pool_size=CONNECTIONS,
        max_overflow=0,
        pool_timeout=PATIENCE_S,
        # A restarted server is connected to anew before work begins, and not by failing it.
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
    writes = _dialect.is_writing(connection)
    connection.exec_driver_sql("BEGIN IMMEDIATE" if writes else "BEGIN")


def _name(url: URL) -> str:
    """What to call the database: nothing that can hold a secret."""
    if url.get_backend_name() == "sqlite":
        return str(url.database)
    return url.set(query={}).render_as_string(hide_password=True)
