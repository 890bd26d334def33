"""A database's troubles: waited for where waiting helps, told in a sentence where it does not."""

import sqlite3
import threading
from collections.abc import Callable, Generator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
from sqlalchemy import Connection, Engine, event
from sqlalchemy.pool import Pool

from agent_env.errors import ConfigError, IndexUnavailableError
from agent_env.runs import RunFilter, RunIndex, _database
from agent_env.runs._database import Database
from agent_env.runs.tables import run_groups
from tests.agent_env.runs.conftest import T0, finished, new_run, opened


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Of an index that is up to date and that nobody has open."""
    found = tmp_path / "index.sqlite"
    RunIndex.open(f"sqlite:///{found}").close()
    return found


@pytest.fixture
def other(path: Path) -> Generator[sqlite3.Connection]:
    """Another process's connection to it."""
    found = sqlite3.connect(path, isolation_level=None, check_same_thread=False)
    yield found
    found.close()


@contextmanager
def listening(target: Any, name: str, listener: Callable[..., None]) -> Generator[None]:
    event.listen(target, name, listener)
    try:
        yield
    finally:
        event.remove(target, name, listener)


@contextmanager
def each_connection(*pragmas: str) -> Generator[None]:
    """While entered, new connections start with these."""

    def connected(connection: sqlite3.Connection, _record: object) -> None:
        for pragma in pragmas:
            connection.execute(f"PRAGMA {pragma}")

    with listening(Pool, "connect", connected):
        yield


@pytest.mark.parametrize("pragma", ["busy_timeout = 30000", "busy_timeout = 0"])
def test_a_write_waits_for_another_process_that_writes(
    path: Path, other: sqlite3.Connection, pragma: str
) -> None:
    trying = threading.Event()

    def executed(_connection: object, _cursor: object, statement: str, *_: object) -> None:
        if statement == "BEGIN IMMEDIATE":
            trying.set()

    with each_connection(pragma):
        index = RunIndex.open(f"sqlite:///{path}")
        other.execute("BEGIN IMMEDIATE")
        with listening(Engine, "before_cursor_execute", executed), ThreadPoolExecutor(1) as threads:
            opening = threads.submit(opened, index)
            assert trying.wait(10)
            assert not opening.done()
            other.commit()
            assert opening.result(10).run_id == "run-1"
        index.close()


def test_reads_go_on_while_another_process_writes(path: Path, other: sqlite3.Connection) -> None:
    index = RunIndex.open(f"sqlite:///{path}")
    opened(index)
    other.execute("BEGIN IMMEDIATE")
    other.execute("DELETE FROM runs")

    assert index.get("run-1").run_id == "run-1"
    index.close()


def test_a_database_that_stays_locked_is_unavailable(
    path: Path, other: sqlite3.Connection, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_database, "PATIENCE_S", 0.05)
    index = RunIndex.open(f"sqlite:///{path}")
    other.execute("BEGIN IMMEDIATE")

    with pytest.raises(IndexUnavailableError, match="other processes have kept it locked"):
        opened(index)

    index.close()


def test_threads_of_one_process_wait_for_each_other_only_so_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_database, "PATIENCE_S", 0.05)
    database = Database(f"sqlite:///{path}")
    inside, done = threading.Event(), threading.Event()

    def slow(_connection: object) -> None:
        inside.set()
        assert done.wait(10)

    with ThreadPoolExecutor(1) as threads:
        writing = threads.submit(database.write, slow)
        assert inside.wait(10)
        with pytest.raises(IndexUnavailableError, match="other threads have kept it locked"):
            database.write(lambda _: None)
        done.set()
        writing.result(10)
    database.close()


def test_a_read_waits_for_a_free_connection_only_so_long(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(_database, "PATIENCE_S", 0.05)
    database = Database(f"sqlite:///{path}")

    def read_inside(_connection: Connection, depth: int) -> None:
        if depth:
            database.read(read_inside, depth - 1)

    database.read(read_inside, 7)
    with pytest.raises(IndexUnavailableError, match="8 connections have been in use"):
        database.read(read_inside, 8)

    assert database.checked_out == 0
    database.close()


def test_work_that_fails_is_undone_and_gives_its_connection_back(path: Path) -> None:
    database = Database(f"sqlite:///{path}")
    group = {"run_group_id": "g", "task_id": "t", "created_at": T0}

    def work(connection: Connection) -> None:
        connection.execute(run_groups.insert(), group)
        raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        database.write(work)

    assert database.checked_out == 0
    assert RunIndex(database).groups().groups == ()
    database.close()


@pytest.mark.parametrize("table", ["runs", "run_groups"])
def test_a_missing_table_is_named_and_nothing_is_left(
    path: Path, other: sqlite3.Connection, table: str
) -> None:
    database = Database(f"sqlite:///{path}")
    index = RunIndex(database)
    other.execute(f"ALTER TABLE {table} RENAME TO away")
    run = new_run(run_group_id="grp")

    for _ in range(20):
        with pytest.raises(IndexUnavailableError, match=f"no such table: {table}; .*db upgrade"):
            index.open_run(run, host="here", room=1, at=T0)

    other.execute(f"ALTER TABLE away RENAME TO {table}")
    assert database.checked_out == 0
    assert index.page(RunFilter()).runs == ()
    assert index.groups().groups == ()
    database.close()


def open_until_refused(index: RunIndex) -> tuple[int, IndexUnavailableError]:
    """How many runs could be listed, and why no more."""
    for listed in range(10_000):
        try:
            opened(index, f"run-{listed}", room=10_000)
        except IndexUnavailableError as error:
            return listed, error
    raise AssertionError("the disk never filled up")


def test_a_full_disk_is_told_and_nothing_is_left(path: Path) -> None:
    with each_connection("max_page_count = 40"):
        database = Database(f"sqlite:///{path}")
        index = RunIndex(database)

        listed, refused = open_until_refused(index)

    assert str(refused) == (
        f"the run index {path} can't be used: its disk is full; free some space"
    )
    assert database.checked_out == 0
    assert listed > 0
    assert index.count_running("here") == listed
    database.close()


def test_an_end_that_met_a_full_disk_is_written_once_there_is_space(path: Path) -> None:
    index = RunIndex.open(f"sqlite:///{path}")
    opened(index)
    index.close()
    end = finished(error="x" * 8000, scores={f"s{number}": 1.0 for number in range(9000)})
    with each_connection("max_page_count = 1"):
        index = RunIndex.open(f"sqlite:///{path}")
        with pytest.raises(IndexUnavailableError, match="disk is full"):
            index.finish_run(end, at=T0)
        index.close()

    index = RunIndex.open(f"sqlite:///{path}")
    row, moved = index.finish_run(end, at=T0)

    assert moved
    assert len(row.scores) == 9000
    index.close()


def test_a_database_that_can_only_be_read_is_unavailable(path: Path) -> None:
    with pytest.raises(IndexUnavailableError, match="it can't be written; check who may write"):
        RunIndex.open(f"sqlite:///file:{path}?mode=ro&uri=true")


def test_a_file_that_is_no_database_is_unavailable(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("these are notes, not a database\n" * 100)

    with pytest.raises(IndexUnavailableError, match="is not a SQLite database; name another"):
        RunIndex.open(f"sqlite:///{tmp_path}/notes.txt")

    assert (tmp_path / "notes.txt").read_text().startswith("these are notes")


def test_a_folder_that_does_not_exist_is_named(tmp_path: Path) -> None:
    with pytest.raises(IndexUnavailableError, match="make sure that its folder exists") as told:
        RunIndex.open(f"sqlite:///{tmp_path}/none/index.sqlite")

    assert f"{tmp_path}/none/index.sqlite" in str(told.value)


def test_no_message_holds_a_password(tmp_path: Path) -> None:
    url = f"sqlite:///file:{tmp_path}/none/x?password=hunter2&uri=true"
    with pytest.raises(IndexUnavailableError) as told:
        RunIndex.open(url)

    assert "hunter2" not in str(told.value)


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("hunter2", "not an SQLAlchemy URL"),
        ("", "not an SQLAlchemy URL"),
        ("mysql://user:hunter2@host/name", "can't be kept in 'mysql'"),
        ("sqlite+nobody:///hunter2", "not an SQLAlchemy URL"),
        ("postgresql+nobody://user:hunter2@host/name", "not an SQLAlchemy URL"),
        ("postgresql+pg8000://user:hunter2@host/name", "pip install pg8000"),
        ("sqlite://", "name a file"),
        ("sqlite:///:memory:", "name a file"),
        ("sqlite:///file::memory:?cache=shared&uri=true", "name a file"),
        ("sqlite:///file:x?mode=memory&uri=true", "name a file"),
    ],
)
def test_a_url_that_can_not_be_used_is_refused(url: str, says: str) -> None:
    with pytest.raises(ConfigError, match=says) as refused:
        RunIndex.open(url)

    assert "hunter2" not in str(refused.value)


def test_a_server_that_does_not_answer_is_unavailable(monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("psycopg", reason="needs-postgres")

    with pytest.raises(IndexUnavailableError, match="make sure that it runs") as told:
        RunIndex.open("postgresql+psycopg://user:hunter2@127.0.0.1:1/name")

    assert "hunter2" not in str(told.value)


def test_connections_keep_to_what_the_index_relies_on(path: Path) -> None:
    database = Database(f"sqlite:///{path}")

    def pragma(connection: Connection, name: str) -> object:
        return connection.exec_driver_sql(f"PRAGMA {name}").scalar()

    names = ("journal_mode", "synchronous", "foreign_keys", "busy_timeout")
    found = {name: database.read(pragma, name) for name in names}

    assert found == {
        "journal_mode": "wal",
        "synchronous": 1,
        "foreign_keys": 1,
        "busy_timeout": 30_000,
    }
    database.close()
