"""Migrations: run by themselves on SQLite, once, and only where they are needed."""

import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from alembic.autogenerate import compare_metadata
from alembic.runtime.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy import Connection, MetaData, select, text

from agent_env.errors import ConfigError, IndexUnavailableError
from agent_env.runs import RunIndex, schema
from agent_env.runs._database import Database
from agent_env.runs.tables import metadata
from agent_env.status import RunStatus
from tests.agent_env.runs.conftest import T0, new_run, opened

MIGRATIONS = Path(schema.__file__).parent / "migrations"


@pytest.fixture
def empty(url: str) -> str:
    return url


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


def fill(connection: Connection) -> None:
    """A row in each table, in all columns that the table has, as the first schema could hold it."""
    values = {"BOOLEAN": False, "INTEGER": 7, "FLOAT": 0.5, "DOUBLE PRECISION": 0.5, "TEXT": "[]"}
    for table in reflected(connection).sorted_tables:
        if table.name == "alembic_version":
            continue
        row: dict[str, object] = {
            column.name: values.get(str(column.type), T0) for column in table.columns
        }
        row |= {name: f"{name} of old" for name in row if name.endswith("_id")}
        row |= {name: "{}" for name in ("scores", "seed", "tags") if name in row}
        if "status" in row:
            row["status"] = RunStatus.FAILED
        connection.execute(table.insert(), row)


def content(connection: Connection) -> dict[str, list[dict[str, object]]]:
    """All that is in the database, by table."""
    return {
        table.name: [dict(row) for row in connection.execute(select(table)).mappings()]
        for table in reflected(connection).sorted_tables
        if table.name != "alembic_version"
    }


def reflected(connection: Connection) -> MetaData:
    found = MetaData()
    found.reflect(connection)
    return found


def test_every_migration_goes_up_on_a_filled_database(empty: str) -> None:
    revisions = [each.revision for each in ScriptDirectory(str(MIGRATIONS)).walk_revisions()]
    first, *later = reversed(revisions)
    database = Database(empty)
    database.write(schema.migrate_to, first)
    database.write(fill)
    before = database.read(content)

    for revision in later:
        database.write(schema.migrate_to, revision)

        after = database.read(content)
        for name, rows in before.items():
            # What was there is there and the same; a migration may add.
            assert [row | old for old, row in zip(rows, after[name], strict=True)] == after[name]
    database.close()
    index = RunIndex.open(empty)
    assert schema.upgrade(empty) == (schema.HEAD, schema.HEAD)
    assert set(before) == {"runs", "steps", "messages", "run_groups"}
    assert index.get("run_id of old").task_id == "task_id of old"
    assert [step.step_id for step in index.steps("run_id of old")] == ["step_id of old"]
    assert index.group("run_group_id of old").figures.failed == 1
    index.close()


def test_only_sqlite_is_migrated_by_whoever_opens_it(empty: str) -> None:
    database = Database(empty)
    database.write(schema.migrate_to, "0001")
    database.close()
    by_itself = not empty.startswith("postgresql")

    if by_itself:
        RunIndex.open(empty).close()
    else:
        with pytest.raises(ConfigError, match=r"has schema 0001.*run `episodes db upgrade`"):
            RunIndex.open(empty)

    assert schema.upgrade(empty).changed is not by_itself


def test_a_database_that_holds_something_else_is_not_made_an_index_of(empty: str) -> None:
    database = Database(empty)
    database.write(lambda connection: connection.execute(text("CREATE TABLE bills (x int)")))
    database.close()

    if empty.startswith("postgresql"):
        with pytest.raises(ConfigError, match="holds no run index; run `episodes db upgrade` to"):
            RunIndex.open(empty)
    assert schema.upgrade(empty) == (None, schema.HEAD)
    RunIndex.open(empty).close()


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
    with pytest.raises(ConfigError, match=r"holds no run index; run `episodes db upgrade`"):
        RunIndex.open(empty, migrate=False)


def test_a_migration_that_fails_leaves_the_database_as_it_was(empty: str) -> None:
    database = Database(empty)
    # The last of the migration's tables: those before it must not stay.
    database.write(lambda connection: connection.execute(text("CREATE TABLE run_groups (x int)")))

    with pytest.raises(IndexUnavailableError, match=r"run_groups|other tables of the same names"):
        schema.upgrade(empty)

    assert [*database.read(content)] == ["run_groups"]
    database.close()


def test_two_indexes_of_one_database_see_each_other(empty: str) -> None:
    first, second = RunIndex.open(empty), RunIndex.open(empty)

    first.open_run(new_run(), host="here", room=1, at=T0)

    assert second.count_running("here") == 1
    first.close()
    second.close()
