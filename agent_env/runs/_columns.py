"""Types of columns: text that may hold anything, times in UTC, JSON."""

import json
import re
from datetime import UTC, datetime
from typing import Any, cast

from sqlalchemy import DateTime, Dialect, Text
from sqlalchemy.types import TypeDecorator

_MARK = "␀"
_UNSTORABLE = re.compile(f"[\0\ud800-\udfff{_MARK}]")
_ESCAPED = re.compile(f"{_MARK}([0-9a-f]{{4}})")


def escaped(text: str) -> str:
    """The text without what a database refuses: NUL, half surrogate pairs. See ``unescaped``.

    Each becomes the symbol for NUL and four hexadecimal digits, and so does that symbol.
    """
    return _UNSTORABLE.sub(lambda found: f"{_MARK}{ord(found[0]):04x}", text)


def unescaped(text: str) -> str:
    """What ``escaped`` was given."""
    return _ESCAPED.sub(lambda found: chr(int(found[1], 16)), text)


class AnyText(TypeDecorator[str]):
    """Text, whatever is in it."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        """Escape it, and make a plain string of an enum's member."""
        return None if value is None else escaped(str(value))

    def process_result_value(self, value: str | None, dialect: Dialect) -> str | None:
        """Take the escapes back."""
        return unescaped(value) if value is not None and _MARK in value else value


class UtcTime(TypeDecorator[datetime]):
    """An instant with microseconds. Stored as UTC, in a form that sorts; read back aware."""

    impl = DateTime(timezone=True)
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Convert to UTC.

        Raises:
            ValueError: it is naive, so nobody can tell which instant it is.
        """
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time in the run index needs a time zone; {value} has none")
        return value.astimezone(UTC)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        """Say that it is UTC: SQLite keeps no time zone, PostgreSQL answers in the session's."""
        if value is None or value.tzinfo is UTC:
            return value
        return value.replace(tzinfo=UTC) if value.tzinfo is None else value.astimezone(UTC)


class AnyJson(TypeDecorator[Any]):
    """JSON as text, whatever is in its strings."""

    impl = Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str:
        """Escape its strings, keys included, before they become JSON."""
        text = _dumped(value)
        if _UNSTORABLE.search(text) or "\\u0000" in text:
            text = _dumped(_in_strings(escaped, value))
        return text

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        """Take the escapes back."""
        if value is None:
            return None
        found = json.loads(value)
        return _in_strings(unescaped, found) if _MARK in value else found


def _dumped(value: Any) -> str:
    return json.dumps(value, ensure_ascii=False, separators=(",", ":"))


def _in_strings(change: Any, value: Any) -> Any:
    """The same JSON with every string changed."""
    if isinstance(value, str):
        return change(value)
    if isinstance(value, dict):
        items = cast("dict[str, Any]", value).items()
        return {change(key): _in_strings(change, item) for key, item in items}
    if isinstance(value, list | tuple):
        return [_in_strings(change, item) for item in cast("list[Any]", value)]
    return value
