"""Where SQLite and PostgreSQL differ: each difference is one function with both branches."""

import functools
import math
from decimal import Decimal
from typing import Any, Protocol

from sqlalchemy import (
    JSON,
    BigInteger,
    Column,
    ColumnElement,
    Connection,
    Dialect,
    Engine,
    Float,
    Numeric,
    Table,
    TableValuedAlias,
    Text,
    cast,
    func,
    select,
    type_coerce,
)
from sqlalchemy.dialects.postgresql import insert as postgresql_insert
from sqlalchemy.dialects.sqlite import insert as sqlite_insert
from sqlalchemy.sql.dml import ReturningInsert
from sqlalchemy.types import TypeDecorator

from agent_env.runs.tables import runs
from agent_env.scores import mean_and_std

POSTGRESQL = ("postgresql", "postgres")
"""How a URL may call it."""

_WRITES = "agent_env_writes"


def reading(engine: Engine) -> Engine:
    """The same database for transactions that see one state of it and write nothing."""
    if engine.dialect.name == "sqlite":
        return engine  # as each transaction there does
    return engine.execution_options(isolation_level="REPEATABLE READ", postgresql_readonly=True)


def writing(engine: Engine) -> Engine:
    """The same database for transactions that write.

    On SQLite there is one at a time. On PostgreSQL each statement sees what was committed before
    it, whatever a server's default is: what is read after a lock was waited for must be of now.
    """
    if engine.dialect.name == "sqlite":
        return engine.execution_options(**{_WRITES: True})
    return engine.execution_options(isolation_level="READ COMMITTED")


def is_writing(connection: Connection) -> bool:
    """Whether a connection to SQLite is one of ``writing``."""
    return connection.get_execution_options().get(_WRITES, False)


def _insert(dialect: str) -> Any:
    return sqlite_insert if dialect == "sqlite" else postgresql_insert


@functools.cache
def insert_new(dialect: str, table: Table) -> ReturningInsert[Any]:
    """Insert what is not there yet; returns the rows that it inserted."""
    return _insert(dialect)(table).on_conflict_do_nothing().returning(table)


@functools.cache
def insert_missing(dialect: str, table: Table) -> Any:
    """Insert what is not there yet; for many rows at once."""
    return _insert(dialect)(table).on_conflict_do_nothing()


@functools.cache
def insert_or_replace(dialect: str, table: Table) -> Any:
    """Insert rows, or give those of the same key these values."""
    insert = _insert(dialect)(table)
    changed = {
        column.name: insert.excluded[column.name]
        for column in table.columns
        if not column.primary_key
    }
    return insert.on_conflict_do_update(index_elements=list(table.primary_key), set_=changed)


def lock_host(connection: Connection, host: str) -> None:
    """Keep others from taking a place on the host until this transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtext(f"host {host}"))))
    # On SQLite there is one writer at a time anyway.


def lock_schema(connection: Connection) -> None:
    """Keep others from migrating until this transaction ends."""
    if connection.dialect.name == "postgresql":
        connection.execute(select(func.pg_advisory_xact_lock(func.hashtext("agent_env schema"))))


def tag_items(dialect: str) -> TableValuedAlias:
    """A run's tags as a table of ``key`` and ``value``."""
    if dialect == "sqlite":
        return func.json_each(runs.c.tags).table_valued("key", "value")
    return func.json_each_text(cast(runs.c.tags, JSON)).table_valued("key", "value")


def mean_of(dialect: str, rewards: ColumnElement[Any]) -> ColumnElement[Any]:
    """An aggregate: the mean; None of nothing."""
    if dialect == "sqlite":
        return func.agent_env_mean(rewards)
    return type_coerce(func.avg(_exact(rewards)), _Float)


def std_of(dialect: str, rewards: ColumnElement[Any]) -> ColumnElement[Any]:
    """An aggregate: the sample standard deviation; None under two, and where no float holds it."""
    if dialect == "sqlite":
        return func.agent_env_std(rewards)
    # The root is taken of it here: PostgreSQL would round it to a few digits.
    return type_coerce(func.var_samp(_exact(rewards)), _RootAsFloat)


def seconds_between(dialect: str, start: Column[Any], end: Column[Any]) -> ColumnElement[Any]:
    """How long it is from one time to another; None where one is missing."""
    if dialect == "sqlite":
        return (func.julianday(end) - func.julianday(start)) * 86_400.0
    return cast(func.extract("epoch", end - start), Float)


def epoch_seconds(dialect: str, at: ColumnElement[Any]) -> ColumnElement[Any]:
    """Whole seconds since 1970."""
    if dialect == "sqlite":
        return cast(func.strftime("%s", at), BigInteger)
    return cast(func.floor(func.extract("epoch", at)), BigInteger)


def _exact(rewards: ColumnElement[Any]) -> ColumnElement[Any]:
    """As decimals, of which a sum of squares neither cancels nor overflows.

    By way of text: PostgreSQL's own cast keeps 15 digits of 17.
    """
    return cast(cast(rewards, Text), Numeric)


class _Float(TypeDecorator[float]):
    """A decimal as a float; None where no float holds it."""

    impl = Numeric
    cache_ok = True

    def process_result_value(self, value: Decimal | None, dialect: Dialect) -> float | None:
        """Convert it."""
        found = None if value is None else float(value)
        return found if found is not None and math.isfinite(found) else None


class _RootAsFloat(_Float):
    """The root of a decimal."""

    cache_ok = True

    def process_result_value(self, value: Decimal | None, dialect: Dialect) -> float | None:
        """Take it and convert it."""
        return super().process_result_value(None if value is None else value.sqrt(), dialect)


class _SqliteConnection(Protocol):
    def create_aggregate(self, name: str, n_arg: int, aggregate_class: Any, /) -> None: ...


def add_aggregates(connection: _SqliteConnection) -> None:
    """Teach SQLite the aggregates it lacks, as ``scores.mean_and_std`` computes them.

    Exact, where a sum of squares in SQL would cancel.
    """
    connection.create_aggregate("agent_env_mean", 1, _Mean)
    connection.create_aggregate("agent_env_std", 1, _Std)


class _Rewards:
    def __init__(self) -> None:
        self.rewards: list[float] = []

    def step(self, reward: float | None) -> None:
        if reward is not None:
            self.rewards.append(reward)


class _Mean(_Rewards):
    def finalize(self) -> float | None:
        return mean_and_std(self.rewards)[0]


class _Std(_Rewards):
    def finalize(self) -> float | None:
        return mean_and_std(self.rewards)[1]
