"""Migrations: run by themselves on SQLite, once, and only where they are needed."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, text

from agent_env.errors import ConfigError, IndexUnavailableError
from agent_env.runs import RunIndex, schema
from agent_env.runs._database import Database
from agent_env.runs.tables import metadata
from tests.agent_env.runs.conftest import T0, new_run, opened

MIGRATIONS = Path(schema.__file__).parent / "migrations"


@pytest.fixture
def empty(tmp_path: Path) -> str:
    return f"sqlite:///{tmp_path}/index.sqlite"


def set_revision(url: str, revision: str) -> None:
    database = Database(url)
    update = text("UPDATE alembic_version SET version_num = :found")
    database.write(lambda connection: connection.execute(update, {"found": revision}))
    database.close()


def test_the_constant_is_the_newest_revision() -> None:
    assert ScriptDirectory(str(MIGRATIONS)).get_current_head() == schema.HEAD


def test_the_migrations_lead_to_the_tables(database: Database) -> None:
    def differences(connection: Connection) -> list[object]:
        context = MigrationContext.configure(connection, opts={"compare_type": True})
        return list(compare_metadata(context, metadata))

    assert database.read(differences) == []


def test_an_empty_database_is_migrated_when_it_is_opened(empty: str) -> None:
    index = RunIndex.open(empty)

    assert opened(index) == index.get("run-1")
    index.close()


def test_of_those_that_open_an_empty_database_at_once_one_migrates(empty: str) -> None:
    with ThreadPoolExecutor(10) as threads:
        upgrades = list(threads.map(schema.upgrade, [empty] * 10))

    assert sorted(upgrade.changed for upgrade in upgrades) == [False] * 9 + [True]
    assert {upgrade.after for upgrade in upgrades} == {schema.HEAD}


def test_an_index_of_the_first_schema_is_migrated_with_its_runs(empty: str) -> None:
    index = RunIndex.open(empty)
    row = opened(index)
    index.close()
    database = Database(empty)
    database.write(lambda connection: connection.execute(text("DROP INDEX ix_runs_still_up")))
    database.write(lambda connection: connection.execute(text("DROP TABLE turn_texts")))
    database.close()
    set_revision(empty, "0001")

    index = RunIndex.open(empty)

    assert index.get("run-1") == row
    assert index.still_up() == ()
    index.close()
    assert schema.upgrade(empty) == (schema.HEAD, schema.HEAD)


def test_upgrading_says_what_it_did(empty: str) -> None:
    assert schema.upgrade(empty) == (None, schema.HEAD)
    assert schema.upgrade(empty) == (schema.HEAD, schema.HEAD)


def test_an_index_that_is_up_to_date_opens_without_alembic(empty: str) -> None:
    schema.upgrade(empty)
    code = (
        "import sys; from agent_env.runs import RunIndex; RunIndex.open(sys.argv[1]).close();"
        " assert 'alembic' not in sys.modules"
    )

    done = subprocess.run(
        [sys.executable, "-c", code, empty],
        cwd=MIGRATIONS.parents[2],
        capture_output=True,
        text=True,
        check=False,
    )

    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("migrate", [None, True, False])
def test_a_schema_newer_than_the_code_is_refused(empty: str, migrate: bool | None) -> None:
    schema.upgrade(empty)
    set_revision(empty, "9999")

    with pytest.raises(ConfigError) as refused:
        RunIndex.open(empty, migrate=migrate)

    for part in ("9999", schema.HEAD, "upgrade durable-episodes", "episodes db upgrade"):
        assert part in str(refused.value)


def test_an_older_schema_that_may_not_be_migrated_names_the_command(empty: str) -> None:
    with pytest.raises(ConfigError, match=r"has schema none, .* 0003; run `episodes db upgrade`"):
        RunIndex.open(empty, migrate=False)


def test_a_migration_that_fails_leaves_the_database_as_it_was(empty: str) -> None:
    database = Database(empty)
    # The last of the migration's tables: those before it must not stay.
    database.write(lambda connection: connection.execute(text("CREATE TABLE run_groups (x)")))

    with pytest.raises(IndexUnavailableError, match="run_groups"):
        schema.upgrade(empty)

    tables = text("SELECT name FROM sqlite_master WHERE type = 'table'")
    assert database.read(lambda connection: list(connection.execute(tables).scalars())) == [
        "run_groups"
    ]
    database.close()


def test_two_indexes_of_one_database_see_each_other(empty: str) -> None:
    first, second = RunIndex.open(empty), RunIndex.open(empty)

    first.open_run(new_run(), host="here", room=1, at=T0)

    assert second.count_running("here") == 1
    first.close()
    second.close()
