"""Brings a database's schema up to this code, or says what is in the way."""

from __future__ import annotations

from pathlib import Path
from typing import NamedTuple

from sqlalchemy import Connection, false, inspect, text, update

from agent_env.errors import ConfigError
from agent_env.runs import _dialect
from agent_env.runs._database import Database
from agent_env.runs.tables import runs

HEAD = "0003"
"""The newest revision in ``migrations/versions``: known without importing Alembic."""

_FOLDER = Path(__file__).parent / "migrations"


class Upgrade(NamedTuple):
    """What an upgrade did."""

    before: str | None
    """None means that the database was empty."""
    after: str

    @property
    def changed(self) -> bool:
        """Whether it did anything."""
        return self.before != self.after


def upgrade(url: str) -> Upgrade:
    """Migrate the run index in this database to this code's schema, in one transaction.

    Args:
        url: SQLAlchemy URL.

    Raises:
        ConfigError: the schema is newer than this code.
        IndexUnavailableError: no connection, or the database can't be written.
    """
    database = Database(url)
    try:
        return prepare(database, migrate=True)
    finally:
        database.close()


def is_empty(url: str) -> bool:
    """Whether a database holds nothing: then whoever opens an index there makes it.

    Raises:
        IndexUnavailableError: it does not answer.
    """
    database = Database(url)
    try:
        return database.read(_is_empty)
    finally:
        database.close()


def prepare(database: Database, *, migrate: bool | None) -> Upgrade:
    """Make sure that the database can be written and has this code's schema.

    Args:
        database: Where the index is.
        migrate: Whether to migrate an older schema. None means "on SQLite yes, elsewhere only
            where there is nothing yet".

    Raises:
        ConfigError: the schema is older and may not be migrated, or newer than this code.
        IndexUnavailableError: no connection, or the database can't be written.
    """
    # One process migrates while the others wait for this transaction to end.
    return database.write(_prepared, database.name, migrate)


def _prepared(connection: Connection, name: str, migrate: bool | None) -> Upgrade:
    found = _revision(connection)
    if found == HEAD:
        # Changes nothing, but is refused where nothing can be written.
        connection.execute(update(runs).where(false()).values(status=runs.c.status))
        return Upgrade(found, HEAD)
    _dialect.lock_schema(connection)
    found = _revision(connection)
    _check_known(found, name)
    if found == HEAD:
        return Upgrade(found, HEAD)
    if migrate is None:
        migrate = connection.dialect.name == "sqlite" or (found is None and _is_empty(connection))
    if not migrate:
        raise ConfigError(_needs_upgrade(found, name))
    migrate_to(connection, HEAD)
    return Upgrade(found, HEAD)


def _needs_upgrade(found: str | None, name: str) -> str:
    if found is None:
        return (
            f"{name} holds no run index; run `episodes db upgrade` to make one there, or name "
            "another database"
        )
    return (
        f"the run index {name} has schema {found}, and this code needs {HEAD}; run "
        "`episodes db upgrade`"
    )


def _is_empty(connection: Connection) -> bool:
    """Whether nobody keeps anything there, who might not want our tables beside it."""
    return not inspect(connection).get_table_names()


def _revision(connection: Connection) -> str | None:
    if not inspect(connection).has_table("alembic_version"):
        return None
    return connection.execute(text("SELECT version_num FROM alembic_version")).scalar()


def _check_known(found: str | None, name: str) -> None:
    if found is not None and found not in _known():
        raise ConfigError(
            f"the run index {name} has schema {found}, newer than the {HEAD} of this code; upgrade "
            "durable-episodes here to the version that ran `episodes db upgrade`"
        )


def _known() -> set[str]:
    from alembic.script import ScriptDirectory

    return {script.revision for script in ScriptDirectory(str(_FOLDER)).walk_revisions()}


def migrate_to(connection: Connection, revision: str) -> None:
    """Run the migrations from where a database is up to this one."""
    # Alembic takes as long to import as an episode takes to run; most openings don't need it.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    command.upgrade(config, revision)
