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


def prepare(database: Database, *, migrate: bool | None) -> Upgrade:
    """Make sure that the database can be written and has this code's schema.

    Args:
        database: Where the index is.
        migrate: Whether to migrate an older schema. None means "on SQLite yes, elsewhere no".

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
    if migrate is None:
        migrate = connection.dialect.name == "sqlite"
    if not migrate:
        _check_known(found, name)
        raise ConfigError(
            f"the run index {name} has schema {found or 'none'}, and this code needs {HEAD}; run "
            "`episodes db upgrade`"
        )
    _dialect.lock_schema(connection)
    found = _revision(connection)
    _check_known(found, name)
    _migrate(connection)
    return Upgrade(found, HEAD)


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


def _migrate(connection: Connection) -> None:
    # Alembic takes as long to import as an episode takes to run; most openings don't need it.
    from alembic import command
    from alembic.config import Config

    config = Config(attributes={"connection": connection})
    config.set_main_option("path_separator", "os")
    config.set_main_option("script_location", str(_FOLDER).replace("%", "%%"))
    command.upgrade(config, "head")
