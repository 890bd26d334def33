"""Loads tasks: from one file, from a folder with a task in it, or from a bundle of tasks.

A bundle is agentenv-framework's layout: ``tasks/**/*.{json,yaml,yml,toml}`` beside
``artifacts/NAME/``. A folder with one ``task.*`` file, and artifacts beside it, holds one task.
"""

import difflib
import os
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple, cast

from agent_env._data_files import SUFFIXES, read_data
from agent_env.errors import InvalidSpecError, Problem, unknown_name
from agent_env.task import Task

_STORED = "sha256:"
_FORMATS = f"tasks/*.{{{','.join(sorted(suffix[1:] for suffix in SUFFIXES))}}}"


def load_tasks(path: str | os.PathLike[str]) -> list[Task]:
    """The tasks of a file, of a folder with a ``task.*`` file, or of a bundle, sorted by path.

    A task without an id is named by its path inside the bundle, without suffix. The folders in
    ``artifacts/`` become the task's artifacts, beside those that its file names itself.

    Raises:
        InvalidSpecError: with everything that is wrong with any of the files.
    """
    path = Path(path)
    tasks: dict[str, tuple[Path, Task]] = {}
    problems: list[Problem] = []
    try:
        sources = _sources(path)
    except OSError as error:
        raise InvalidSpecError.of(str(path), f"can't be read: {error.strerror}") from None
    for source in sources:
        try:
            task = _read(source)
        except InvalidSpecError as error:
            problems += error.problems
            continue
        other, _ = tasks.setdefault(task.id, (source.file, task))
        if other != source.file:
            problems.append(
                Problem(f"{source.file}: id", f"{other} has the id {task.id!r} too; change one")
            )
    if problems:
        raise InvalidSpecError(problems)
    return [task for _, task in tasks.values()]


def load_task(path: str | os.PathLike[str], name: str | None = None) -> Task:
    """The one task at a path, or the one with this id.

    Raises:
        InvalidSpecError: as ``load_tasks``; or there are several and no name, or none of that name.
    """
    tasks = {task.id: task for task in load_tasks(path)}
    if name is None and len(tasks) == 1:
        return next(iter(tasks.values()))
    if name is None:
        raise InvalidSpecError.of(
            str(path), f"holds {len(tasks)} tasks; name one of: {', '.join(tasks)}"
        )
    if name not in tasks:
        raise InvalidSpecError.of(str(path), unknown_name("task", name, tasks))
    return tasks[name]


class _Source(NamedTuple):
    file: Path
    id: str
    """Of a task that does not say its own."""
    root: Path
    """The folder that may have ``artifacts/``."""


def _sources(path: Path) -> list[_Source]:
    if path.is_file():
        return [_single(path)]
    if not path.exists():
        raise InvalidSpecError.of(str(path), _missing(path))
    if not path.is_dir():
        raise InvalidSpecError.of(str(path), "is neither a file nor a folder; name one")
    if (path / "tasks").is_dir():
        found = sorted(file for file in (path / "tasks").rglob("*") if _is_readable(file))
        if not found:
            raise InvalidSpecError.of(str(path), f"the bundle has no task; add one as {_FORMATS}")
        return [_bundled(file, path / "tasks") for file in found]
    found = sorted(file for file in path.glob("task.*") if _is_readable(file))
    if len(found) > 1:
        names = ", ".join(file.name for file in found)
        raise InvalidSpecError.of(str(path), f"has several task files, {names}; keep one")
    if not found:
        raise InvalidSpecError.of(
            str(path), f"holds no task; add a task.json, or {_FORMATS} for a bundle"
        )
    return [_single(found[0])]


def _single(file: Path) -> _Source:
    absolute = file.absolute()
    for folder in absolute.parents:
        if folder.name == "tasks":
            return _bundled(file, folder)
    name = absolute.parent.name if file.stem == "task" else file.stem
    return _Source(file, name, absolute.parent)


def _bundled(file: Path, tasks: Path) -> _Source:
    inside = file.absolute().relative_to(tasks.absolute())
    return _Source(file, inside.with_suffix("").as_posix(), tasks.absolute().parent)


def _is_readable(file: Path) -> bool:
    return file.suffix in SUFFIXES and file.is_file()


def _missing(path: Path) -> str:
    folder = path.parent
    if not folder.is_dir():
        return f"there is no folder {folder}"
    if path.is_symlink():
        return "is a link that leads nowhere; mend it"
    near = difflib.get_close_matches(path.name, [entry.name for entry in folder.iterdir()], 1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    return f"there is no such file or folder{hint}"


def _read(source: _Source) -> Task:
    where = str(source.file)
    data = read_data(source.file)
    if isinstance(data, list):
        data = {"steps": cast("list[object]", data)}
    if not isinstance(data, dict):
        raise InvalidSpecError.of(where, "a task is an object with steps, or a list of steps")
    fields = {"id": source.id, **cast("dict[str, object]", data)}
    task = Task.of(fields, where=where)
    artifacts = {**_beside(source.root), **_named(task.artifacts, source.file)}
    return task.model_copy(update={"artifacts": artifacts})


def _beside(root: Path) -> dict[str, str]:
    folder = root / "artifacts"
    if not folder.is_dir():
        return {}
    return {
        entry.name: str(entry.resolve())
        for entry in sorted(folder.iterdir())
        if entry.is_dir() and not entry.name.startswith(".")
    }


def _named(artifacts: Mapping[str, str], file: Path) -> dict[str, str]:
    """What a file names itself, as absolute paths.

    Raises:
        InvalidSpecError: one is not there.
    """
    found = {
        name: value
        if value.startswith(_STORED)
        else str((file.absolute().parent / value).resolve())
        for name, value in artifacts.items()
    }
    problems = [
        Problem(f"{file}: artifacts.{name}", f"there is no {value}; paths start at the file")
        for name, value in found.items()
        if not value.startswith(_STORED) and not Path(value).exists()
    ]
    if problems:
        raise InvalidSpecError(problems)
    return found
