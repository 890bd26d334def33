"""Reads one JSON, YAML or TOML file as plain JSON data, and says where it is not that."""

import json
import math
import reprlib
import tomllib
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple, cast

from ruamel.yaml import YAML
from ruamel.yaml.error import MarkedYAMLError, YAMLError

from agent_env.errors import InvalidSpecError, Problem, bounded, unknown_name

MAX_FILE_BYTES = 1024 * 1024
"""Largest file that is read, in bytes."""
_MAX_DEPTH = 100
"""Deepest nesting: what comes later recurses."""


def read_data(path: Path) -> object:
    """What a file holds, by its suffix: objects, lists, strings, finite numbers, booleans, null.

    Raises:
        InvalidSpecError: it can't be read, is larger than ``MAX_FILE_BYTES``, is not UTF-8 or not
            in its format, gives a key twice, or holds what JSON can't: NaN, dates, keys that are
            not text.
    """
    where = str(path)
    if path.suffix not in _PARSERS:
        raise InvalidSpecError.of(where, unknown_name("suffix", path.suffix, _PARSERS))
    text = _text(path)
    try:
        data = _PARSERS[path.suffix](text)
    except RecursionError:
        raise InvalidSpecError.of(where, _TOO_DEEP) from None
    except _SyntaxProblem as problem:
        raise InvalidSpecError.of(where, bounded(str(problem), 500)) from None
    except ValueError as error:  # a date or a number that Python has no value for
        raise InvalidSpecError.of(where, bounded(f"can't be read: {error}", 500)) from None
    problems = [Problem(f"{where}: {field}", what) for field, what in _foreign(data)]
    if problems:
        raise InvalidSpecError(problems)
    return data


class _SyntaxProblem(Exception):
    """Where a text is not what its format asks for."""


_TOO_DEEP = f"is nested deeper than {_MAX_DEPTH} levels; make it flatter"


def _text(path: Path) -> str:
    try:
        with path.open("rb") as file:
            content = file.read(MAX_FILE_BYTES + 1)
    except OSError as error:
        raise InvalidSpecError.of(str(path), f"can't be read: {error.strerror}") from None
    if len(content) > MAX_FILE_BYTES:
        raise InvalidSpecError.of(
            str(path),
            f"is over the limit of {MAX_FILE_BYTES:,} bytes; put large content into an artifact",
        )
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        before = content[: error.start]
        line, column = before.count(b"\n") + 1, error.start - before.rfind(b"\n")
        raise InvalidSpecError.of(
            str(path), f"line {line}, byte {column}: is not UTF-8; save the file as UTF-8"
        ) from None


class _Object(dict[str, Any]):
    """A JSON object that remembers which of its keys were given twice."""

    twice: tuple[str, ...] = ()


def _json(text: str) -> object:
    def collected(pairs: list[tuple[str, Any]]) -> _Object:
        found = _Object(pairs)
        if len(found) < len(pairs):
            counts = Counter(key for key, _ in pairs)
            found.twice = tuple(key for key, count in counts.items() if count > 1)
        return found

    try:
        return json.loads(text, object_pairs_hook=collected)
    except json.JSONDecodeError as error:
        raise _SyntaxProblem(
            f"line {error.lineno}, column {error.colno}: is not JSON: {error.msg}"
        ) from None


def _toml(text: str) -> object:
    try:
        return tomllib.loads(text)
    except tomllib.TOMLDecodeError as error:
        message, _, place = str(error).rstrip(")").rpartition(" (at ")
        if message.startswith(("Cannot overwrite", "Cannot declare")):
            message += "; a key or table is given twice, keep one"
        raise _SyntaxProblem(f"{place}: is not TOML: {message}") from None


def _yaml(text: str) -> object:
    try:
        return cast(Any, YAML(typ="safe", pure=True)).load(text)  # its types are incomplete
    except MarkedYAMLError as error:
        raise _SyntaxProblem(_yaml_problem(cast(Any, error))) from None
    except YAMLError as error:
        raise _SyntaxProblem(f"is not YAML: {' '.join(str(error).split())}") from None


def _yaml_problem(error: Any) -> str:
    problem = str(error.problem)
    place = f"line {error.problem_mark.line + 1}, column {error.problem_mark.column + 1}"
    if problem.startswith("found duplicate key"):
        key = problem.partition(" with value ")[0].removeprefix("found duplicate key ")
        return f"{place}: the key {key} is given twice; keep one"
    return f"{place}: is not YAML: {problem}"


_PARSERS: Mapping[str, Callable[[str], object]] = {
    ".json": _json,
    ".toml": _toml,
    ".yaml": _yaml,
    ".yml": _yaml,
}
SUFFIXES = frozenset(_PARSERS)
"""Of the files that ``read_data`` reads."""


class _Place(NamedTuple):
    field: str
    value: object
    depth: int


def _foreign(data: object) -> Iterator[tuple[str, str]]:
    """Each field that JSON can't hold, and what to do about it."""
    waiting = [_Place("", data, 0)]
    budget = MAX_FILE_BYTES  # a file has fewer values than bytes, unless its aliases multiply
    while waiting:
        field, value, depth = waiting.pop()
        budget -= 1
        if depth > _MAX_DEPTH:
            yield field[:100], _TOO_DEEP
            return
        if budget < 0:
            yield field, "aliases make this too large; write out what is needed"
            return
        if isinstance(value, dict):
            entries = cast("dict[object, object]", value)
            yield from ((_inside(field, key), what) for key, what in _bad_keys(entries))
            inner = [_Place(_inside(field, key), part, depth + 1) for key, part in entries.items()]
            waiting += reversed(inner)
        elif isinstance(value, list):
            items = enumerate(cast("list[object]", value))
            inner = [_Place(f"{field}[{number}]", part, depth + 1) for number, part in items]
            waiting += reversed(inner)
        elif what := _bad_value(value):
            yield field or "the file", what


def _inside(field: str, key: object) -> str:
    name = key if isinstance(key, str) else reprlib.repr(key)
    return bounded(f"{field}.{name}" if field else name, 200)


def _bad_keys(entries: dict[object, object]) -> Iterator[tuple[object, str]]:
    for key in entries.twice if isinstance(entries, _Object) else ():
        yield key, "is given twice; keep one"
    for key in entries:
        if not isinstance(key, str):
            yield key, f"a key must be text, not {type(key).__name__}; quote it"
        elif not _is_unicode(key):
            yield reprlib.repr(key), _NOT_UNICODE


_NOT_UNICODE = "holds half of a surrogate pair; write the whole character"


def _bad_value(value: object) -> str | None:
    if isinstance(value, float) and not math.isfinite(value):
        return f"a number must be finite, not {value}; use a finite one, or quote it"
    if isinstance(value, str) and not _is_unicode(value):
        return _NOT_UNICODE
    if not isinstance(value, str | int | float | None):
        return f"JSON has no {type(value).__name__}; quote it"
    return None


def _is_unicode(text: str) -> bool:
    try:
        text.encode()
    except UnicodeEncodeError:
        return False
    return True
