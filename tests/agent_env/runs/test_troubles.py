"""PostgreSQL's troubles: told in a sentence without the password, and over once it is back."""

import sys
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from typing import Any

import psycopg
import pytest
from sqlalchemy import Connection, make_url, text, update

from agent_env.errors import ConfigError, IndexUnavailableError
from agent_env.runs import RunIndex, _database, _troubles
from agent_env.runs._database import Database
from agent_env.runs.tables import runs
from tests.agent_env.runs.conftest import T0, new_run, opened
from tests.postgres import PASSWORD, PostgresServer, running_postgres


@pytest.fixture
def kind() -> str:
    return "postgresql"


@pytest.fixture
def other(migrated_url: str) -> Generator[psycopg.Connection]:
    """Another process's connection to it."""
    with psycopg.connect(migrated_url.replace("+psycopg", "")) as connection:
        yield connection


def told(url: str) -> str:
    """What opening it is answered with."""
    with pytest.raises(IndexUnavailableError) as error:
        RunIndex.open(url)
    assert error.value.__cause__ is not None
    said = f"{error.value} {error.value.__cause__} {error.value!r}"
    for password in (PASSWORD, "hunter3"):
        assert password not in said
    return str(error.value)


@pytest.mark.parametrize(
    ("change", "says"),
    [
        ({"password": "hunter3"}, "refused the user or the password; set the right ones"),
        ({"database": "nowhere"}, 'database "nowhere" does not exist'),
        ({"port": 1}, "Connection refused; make sure that it runs"),
        ({"query": {"sslmode": "require"}}, "server does not support SSL"),
        ({"query": {"sslpassword": "hunter3", "sslmode": "x"}}, "invalid sslmode"),
        ({"query": {"passwd": "hunter3"}}, 'invalid connection option "passwd"'),
    ],
)
def test_a_database_that_lets_nobody_in_is_told(
    url: str, change: dict[str, Any], says: str
) -> None:
    said = told(make_url(url).set(**change).render_as_string(hide_password=False))

    assert says in said
    assert "episodes:***@127.0.0.1" in said


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("postgresql://u:hunter@2@host/name", "@ in its user or password; write %40"),
        ("postgresql://u:hunter2/name", "not an SQLAlchemy URL"),
        ("postgresql://u:p@host:hunter2/name", "not an SQLAlchemy URL"),
    ],
)
def test_a_password_that_is_not_escaped_is_refused_and_not_told(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        RunIndex.open(url)

    assert "hunter" not in str(refused.value)
    assert "2@host" not in str(refused.value)


@pytest.mark.parametrize("scheme", ["postgresql", "postgres", "postgresql+psycopg"])
def test_a_url_needs_not_name_the_driver(migrated_url: str, scheme: str) -> None:
    index = RunIndex.open(migrated_url.replace("postgresql+psycopg", scheme))

    assert opened(index) == index.get("run-1")
    index.close()


@pytest.mark.parametrize("ends", [PostgresServer.kill, PostgresServer.stop])
def test_a_server_that_was_away_is_connected_to_again(
    index: RunIndex, postgres: PostgresServer, ends: Callable[[PostgresServer], None]
) -> None:
    row = opened(index)
    ends(postgres)
    with pytest.raises(IndexUnavailableError, match="make sure that it runs, try again"):
        index.get("run-1")
    postgres.start()

    assert index.get("run-1") == row
    assert opened(index, "run-2").run_id == "run-2"


def test_a_server_that_was_restarted_meanwhile_fails_nothing(
    index: RunIndex, postgres: PostgresServer
) -> None:
    row = opened(index)
    postgres.kill()
    postgres.start()

    assert opened(index, "run-2").run_id == "run-2"
    assert index.get("run-1") == row


def test_a_connection_that_is_cut_in_the_middle_undoes_the_work(
    database: Database, other: psycopg.Connection
) -> None:
    def work(connection: Connection) -> None:
        pid = connection.execute(text("SELECT pg_backend_pid()")).scalar_one()
        connection.execute(text("INSERT INTO run_groups VALUES ('g', 't', now(), 1)"))
        other.execute("SELECT pg_terminate_backend(%s, 5000)", (pid,))
        connection.execute(text("SELECT 1"))

    with pytest.raises(IndexUnavailableError, match="terminating connection"):
        database.write(work)

    assert RunIndex(database).groups().groups == ()


def test_a_server_without_a_free_connection_is_told() -> None:
    settings = {"max_connections": "4", "superuser_reserved_connections": "0"}
    with running_postgres(settings=settings) as server, server.database() as url:
        database = Database(url)

        def read_inside(_connection: Connection, depth: int) -> None:
            if depth:
                database.read(read_inside, depth - 1)

        with pytest.raises(IndexUnavailableError, match="takes no more connections; raise its max"):
            database.read(read_inside, 7)
        database.close()


def test_a_table_that_another_keeps_locked_is_told(
    migrated_url: str, other: psycopg.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_database, "PATIENCE_S", 1)
    index = RunIndex.open(migrated_url)
    other.execute("LOCK TABLE runs")

    with pytest.raises(IndexUnavailableError, match="other processes have kept it locked"):
        opened(index)

    index.close()


def test_a_server_that_only_follows_another_is_told(migrated_url: str) -> None:
    said = told(f"{migrated_url}?options=-c%20default_transaction_read_only%3Don")

    assert "name the server that takes writes" in said


def test_a_user_without_rights_is_told(migrated_url: str, other: psycopg.Connection) -> None:
    other.execute("CREATE ROLE guest LOGIN PASSWORD 'guest'")
    other.execute("GRANT SELECT ON alembic_version TO guest")
    other.commit()
    try:
        guest = make_url(migrated_url).set(username="guest", password="guest")

        said = told(guest.render_as_string(hide_password=False))
    finally:
        other.execute("DROP OWNED BY guest")
        other.execute("DROP ROLE guest")
        other.commit()

    assert "its user may not do all it needs to: permission denied for table runs; grant" in said


def test_of_two_writes_that_wait_for_each_other_both_are_done(
    index: RunIndex, database: Database
) -> None:
    for run_id in ("run-1", "run-2"):
        opened(index, run_id)
    both_have_one = threading.Barrier(2)
    tries: list[str] = []

    def change(connection: Connection, *run_ids: str) -> None:
        tries.append(run_ids[0])
        for number, run_id in enumerate(run_ids):
            if number == 1 and len(tries) <= 2:
                both_have_one.wait(10)
            connection.execute(update(runs).where(runs.c.run_id == run_id).values(epoch=7))

    with ThreadPoolExecutor(2) as threads:
        ways = (("run-1", "run-2"), ("run-2", "run-1"))
        for done in [threads.submit(database.write, change, *way) for way in ways]:
            done.result(30)

    assert len(tries) == 3
    assert {index.get("run-1").epoch, index.get("run-2").epoch} == {7}


def test_a_read_sees_one_state_and_writes_nothing(index: RunIndex, database: Database) -> None:
    def reads(connection: Connection) -> list[int]:
        count = text("SELECT count(*) FROM runs")
        before = connection.execute(count).scalar_one()
        opened(index)
        return [before, connection.execute(count).scalar_one()]

    assert database.read(reads) == [0, 0]
    with pytest.raises(IndexUnavailableError, match="can't be written"):
        database.read(lambda connection: connection.execute(update(runs).values(epoch=7)))


def test_a_write_sees_what_was_committed_while_it_waited_whatever_the_servers_default(
    migrated_url: str,
) -> None:
    level = "default_transaction_isolation%3Drepeatable%5C%20read"
    strict = f"{migrated_url}?options=-c%20{level}"
    first, second = RunIndex.open(strict), RunIndex.open(strict)

    def open_one(number: int) -> str:
        index = (first, second)[number % 2]
        return index.open_run(new_run(f"r{number}"), host="here", room=3, at=T0).status

    with ThreadPoolExecutor(8) as threads:
        statuses = list(threads.map(open_one, range(40)))

    assert statuses.count("RUNNING") == 3
    first.close()
    second.close()


def test_a_process_takes_eight_connections_and_no_more(
    index: RunIndex, other: psycopg.Connection
) -> None:
    opened(index)
    with ThreadPoolExecutor(32) as threads:
        list(threads.map(index.get, ["run-1"] * 320))

    named = "SELECT count(*) FROM pg_stat_activity WHERE application_name = 'durable-episodes'"
    open_now = other.execute(f"{named} AND datname = current_database()").fetchone()
    assert open_now is not None
    assert 1 <= open_now[0] <= _troubles.CONNECTIONS


def test_without_the_driver_the_extra_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "psycopg", None)

    with pytest.raises(ConfigError, match=r"pip install 'durable-episodes\[postgres\]'"):
        RunIndex.open("postgresql+psycopg://u@h/d")
