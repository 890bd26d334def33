"""Folders of step attempts on this host, found again by the run's id."""

import asyncio
import hashlib
from pathlib import Path

from agent_env._remove import remove_tree


class WorkDirs:
    """One folder a run, in it one an attempt. Ids are hashed: they may hold what a name can't.

    Args:
        root: Where they are; made when first needed.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def make(self, run_id: str, step_id: str, epoch: int) -> Path:
        """An empty folder for an attempt. What a dead worker left there is removed."""
        folder = self._named(run_id, step_id, epoch)
        remove_tree(folder)
        folder.mkdir(parents=True)
        return folder

    async def remove(self, folder: Path) -> None:
        """Remove an attempt's folder, and its run's if that is empty then."""
        if not _remove_empty(folder):  # most are empty, and a thread costs more than this
            await asyncio.to_thread(remove_tree, folder)
        _remove_empty(folder.parent)

    def mark_started(self, run_id: str, step_id: str, epoch: int) -> bool:
        """Note, so that it outlives this process, that a step starts. False if it did before."""
        mark = self._named(run_id, step_id, epoch).with_suffix(".started")
        mark.parent.mkdir(parents=True, exist_ok=True)
        try:
            mark.touch(exist_ok=False)
        except FileExistsError:
            return False
        return True

    def clean(self, run_id: str) -> None:
        """Remove everything of a run. Blocks."""
        remove_tree(self._root / _hashed(run_id))

    def _named(self, run_id: str, step_id: str, epoch: int) -> Path:
        return self._root / _hashed(run_id) / f"{_hashed(step_id)}-{epoch}"


def _hashed(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]


def _remove_empty(folder: Path) -> bool:
    try:
        folder.rmdir()
    except OSError:
        return False
    return True
