"""Folders of step attempts on this host, as a janitor sees them: owned by runs, like sandboxes."""

import asyncio
from collections.abc import Mapping
from pathlib import Path
from typing import ClassVar

from agent_env.results import SandboxRef
from agent_env.steps._work_dirs import WorkDir, WorkDirs

_TYPE = "work folder"


class WorkFolders:
    """Lists and removes what attempts left, the way a sandbox provider does.

    Args:
        root: Where the folders are, as ``SegmentRunner`` was told.
    """

    type: ClassVar[str] = _TYPE
    is_local: ClassVar[bool] = True

    def __init__(self, root: Path) -> None:
        self._dirs = WorkDirs(root)
        self._found: Mapping[str, WorkDir] = {}

    async def owners(self) -> set[str]:
        """Every run that has a folder here."""
        found = await asyncio.to_thread(self._dirs.found)
        self._found = {each.run_id: each for each in found}
        return set(self._found)

    async def list_owned(self, owner: str) -> list[SandboxRef]:
        """The run's folder, if it had one when ``owners`` was asked last."""
        found = self._found.get(owner)
        if found is None:
            return []
        return [SandboxRef(type=_TYPE, id=found.name, name=found.name, created_at=found.changed_at)]

    async def destroy(self, ref: SandboxRef) -> None:
        """Remove a run's folder.

        Raises:
            OSError: something is left. Safe to retry.
        """
        await asyncio.to_thread(self._dirs.clean_named, ref.id)
