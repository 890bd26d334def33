"""Keeps the connections of a SQLite run index on the file that its name means now.

A file that is moved away takes the open connections along: what they write is lost to all who open
the name, where SQLite would make a new, empty file. Then the old file's journal would be taken for
the new one's.
"""

import os
import sqlite3
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote

from sqlalchemy import Engine, event
from sqlalchemy.engine.interfaces import Dialect
from sqlalchemy.exc import DisconnectionError

_KEY = "agent_env_file"


def keep_on_file(engine: Engine, path: Path) -> None:
    """See to it that no connection of this engine is used once its file is not the one at ``path``.

    Only the first connection may make the file, and only if no journal waits for it; while it is
    away, connecting fails with ``SQLITE_CANTOPEN``.
    """
    file = _File(Path(os.path.abspath(path)))
    event.listen(engine, "do_connect", file.connecting)
    event.listen(engine, "connect", file.connected)
    event.listen(engine, "checkout", file.checked_out)


class _File:
    def __init__(self, path: Path) -> None:
        self._path = path
        self._journal = path.with_name(path.name + "-wal")
        self._was_there = False

    def connecting(
        self, dialect: Dialect, _record: object, _args: object, options: Mapping[str, Any]
    ) -> Any:
        may_make = not self._was_there and not _has_content(self._journal)
        mode = "rwc" if may_make else "rw"
        return dialect.connect(f"file://{quote(str(self._path))}?mode={mode}", uri=True, **options)

    def connected(self, _connection: sqlite3.Connection, record: Any) -> None:
        self._was_there = True
        record.info[_KEY] = self._identity()

    def checked_out(self, _connection: sqlite3.Connection, record: Any, _proxy: object) -> None:
        if record.info[_KEY] != self._identity():
            raise DisconnectionError(f"{self._path} is another file now")

    def _identity(self) -> tuple[int, int] | None:
        """Which file it is; None while there is none."""
        try:
            found = self._path.stat()
        except OSError:
            return None
        return found.st_dev, found.st_ino


def _has_content(path: Path) -> bool:
    try:
        return path.stat().st_size > 0
    except OSError:
        return False
