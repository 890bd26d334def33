"""Folders of step attempts on this host, found again by the run's id, and by who has any."""

import asyncio
import contextlib
import hashlib
import os
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import NamedTuple

from agent_env._remove import remove_tree

_NOTE = ".run"


class WorkDir(NamedTuple):
    """What attempts of a run left on this host, or work in."""

    run_id: str
    """The folder's own name if nothing says whose it is."""
    name: str
    """Of the folder."""
    changed_at: datetime


class WorkDirs:
    """One folder a run, in it one an attempt. Ids are hashed: they may hold what a name can't.

    Beside the attempts' folders are what is kept of the run, and marks of steps that were started.
    Beside each run's folder is a note with the run's id, so that a janitor knows whose it is.

    Args:
        root: Where they are; made when first needed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def make(self, run_id: str, step_id: str, epoch: int) -> Path:
        """An empty folder for an attempt. What a dead worker left there is removed."""
        folder = self._named(run_id, step_id, epoch)
        remove_tree(folder)
        self._make_run(folder.parent, run_id)
        folder.mkdir()
        return folder

    async def remove(self, folder: Path) -> None:
        """Remove an attempt's folder, and its run's if that is empty then."""
        if not _remove_empty(folder):  # most are empty, and a thread costs more than this
            await asyncio.to_thread(remove_tree, folder)
        if _remove_empty(folder.parent):
            _note(folder.parent).unlink(missing_ok=True)

    def mark_started(self, run_id: str, step_id: str, epoch: int) -> bool:
        """Note, so that it outlives this process, that a step starts. False if it did before."""
        mark = self._named(run_id, step_id, epoch).with_suffix(".started")
        self._make_run(mark.parent, run_id)
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def keep(self, run_id: str, execution: str, epoch: int, line: bytes) -> None:
        """Keep a line about a run until it is cleaned, for whoever comes after this process."""
        kept = self._kept(run_id, execution, epoch)
        self._make_run(kept.parent, run_id)
        with kept.open("ab") as file:
            # In one write; after a line that death has cut off, it begins one of its own.
            file.write(b"\n" + line)

    def kept(self, run_id: str, execution: str, epoch: int) -> list[bytes]:
        """The lines that were kept and can be read. Death may have cut one off."""
        try:
            return self._kept(run_id, execution, epoch).read_bytes().splitlines()
        except OSError:
            return []

    def has(self, run_id: str) -> bool:
        """Whether there is anything of a run."""
        folder = self._root / _hashed(run_id)
        return folder.exists() or _note(folder).exists()

    def clean(self, run_id: str) -> None:
        """Remove everything of a run. Blocks."""
        self.clean_named(_hashed(run_id))

    def clean_named(self, name: str) -> None:
        """Remove everything of the run whose folder has this name. Blocks."""
        folder = self._root / name
        remove_tree(folder)
        # Last: without it nobody would know whose the rest is.
        _note(folder).unlink(missing_ok=True)

    def found(self) -> list[WorkDir]:
        """Every run's folder on this host. Blocks."""
        try:
            entries = list(os.scandir(self._root))
        except FileNotFoundError:
            return []
        names = {entry.name.removesuffix(_NOTE) for entry in entries}
        return list(self._looked_at(names))

    def _looked_at(self, names: set[str]) -> Iterator[WorkDir]:
        for name in names:
            folder = self._root / name
            run_id = ""
            with contextlib.suppress(OSError, UnicodeDecodeError):
                run_id = _note(folder).read_text(encoding="utf-8")
            with contextlib.suppress(FileNotFoundError):  # removed meanwhile
                seen = (folder if folder.is_dir() else _note(folder)).stat()
                yield WorkDir(run_id or name, name, datetime.fromtimestamp(seen.st_mtime, UTC))

    def _make_run(self, folder: Path, run_id: str) -> None:
        """Make a run's folder if there is none, and first the note that says whose it is."""
        if not folder.exists():
            self._root.mkdir(parents=True, exist_ok=True)
            _note(folder).write_text(run_id, encoding="utf-8")
            folder.mkdir(exist_ok=True)

    def _kept(self, run_id: str, execution: str, epoch: int) -> Path:
        return self._root / _hashed(run_id) / f"{_hashed(execution)}-{epoch}.kept"

    def _named(self, run_id: str, step_id: str, epoch: int) -> Path:
        return self._root / _hashed(run_id) / f"{_hashed(step_id)}-{epoch}"


def _note(folder: Path) -> Path:
    return folder.with_name(folder.name + _NOTE)


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _remove_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
