"""What a database's refusals mean: which pass by themselves, and what to do about the others."""

from __future__ import annotations

import sqlite3
from typing import Any

from sqlalchemy.exc import DBAPIError

from agent_env.errors import bounded

PATIENCE_S = 30.0
"""How long a busy database is asked again before its caller hears of it."""
CONNECTIONS = 8
"""Most connections of one process."""

OTHER_THREADS = f"other threads have kept it locked for {PATIENCE_S:g} s; try again"
NO_CONNECTION = f"its {CONNECTIONS} connections have been in use for {PATIENCE_S:g} s; try again"
_OTHER_PROCESSES = f"other processes have kept it locked for {PATIENCE_S:g} s; try again"
_FULL = "its disk is full; free some space"
_SQLITE_BUSY = (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED)
_SQLITE = {
    sqlite3.SQLITE_BUSY: _OTHER_PROCESSES,
    sqlite3.SQLITE_LOCKED: OTHER_THREADS,
    sqlite3.SQLITE_FULL: _FULL,
    sqlite3.SQLITE_READONLY: "it can't be written; check who may write the file and its folder",
    sqlite3.SQLITE_PERM: "it can't be written; check who may write the file and its folder",
    sqlite3.SQLITE_NOTADB: "the file is not a SQLite database; name another one",
    sqlite3.SQLITE_CORRUPT: "the file is damaged; restore a copy of it",
    sqlite3.SQLITE_CANTOPEN: (
        "it can't be opened; make sure that its folder exists and is writable, and that the file "
        "was not moved"
    ),
    sqlite3.SQLITE_IOERR: "the disk does not read or write it; check the disk and its free space",
}
_POSTGRES_BUSY = ("40001", "40P01")
"""A conflict or a deadlock with another transaction, which has gone on."""
_POSTGRES = {
    "25006": "it can't be written; name the server that takes writes, not a copy that follows it",
    "42P07": "it has other tables of the same names; name a database or a schema of its own",
    "53100": _FULL,
    "55P03": _OTHER_PROCESSES,
}
_CONNECTING = {
    "password authentication failed": (
        "its server refused the user or the password; set the right ones in its URL"
    ),
    "sorry, too many clients": (
        "its server takes no more connections; raise its max_connections, or start fewer workers: "
        f"each takes up to {CONNECTIONS}"
    ),
    "remaining connection slots": (
        "its server takes no more connections; raise its max_connections, or start fewer workers: "
        f"each takes up to {CONNECTIONS}"
    ),
}
"""By what a server says that has let nobody in: then it tells no number."""
_NO_TABLE = "is it a run index? Restore it, or run `episodes db upgrade` on an empty database"


def is_busy(error: DBAPIError) -> bool:
    """Whether the same work may succeed in a moment."""
    return _sqlite_code(error) in _SQLITE_BUSY or _sqlstate(error) in _POSTGRES_BUSY


def cure(error: DBAPIError) -> str:
    """What is wrong and what to do."""
    said = str(error.orig).strip().partition("\n")[0]
    known = _SQLITE.get(_sqlite_code(error) or 0) or _POSTGRES.get(_sqlstate(error) or "")
    if known is not None:
        return known
    for text, meaning in _CONNECTING.items():
        if text in said:
            return meaning
    if any(text in said for text in ("no such table", "no such column", "does not exist")):
        return f"it has {bounded(said, 200)}; {_NO_TABLE}"
    if _sqlstate(error) == "42501":
        return f"its user may not do all it needs to: {bounded(said, 200)}; grant it its tables"
    kind = type(error.orig).__name__
    return f"its database answered {kind}: {bounded(said, 500)}; make sure that it runs, try again"


def _sqlite_code(error: DBAPIError) -> int | None:
    """SQLite's own number of the error, without what specializes it."""
    code: Any = getattr(error.orig, "sqlite_errorcode", None)
    return None if code is None else code & 0xFF


def _sqlstate(error: DBAPIError) -> str | None:
    """The number that the SQL standard gives it. None while there is no connection."""
    return getattr(error.orig, "sqlstate", None)
