"""Removes a folder whatever is in it: any depth, any mode, any name. Blocking."""

import os
import uuid
from pathlib import Path


def remove_tree(path: Path) -> None:
    """Remove a folder and all below it, without following links. Nothing if it is gone.

    Each folder found is first moved up to right below ``path``: so no depth is too deep for the
    stack, for open files or for the length of a path.

    Raises:
        OSError: something could not be removed; what is left can be tried again.
    """
    try:
        top = _open_folder(os.fspath(path), None)
    except FileNotFoundError:
        return
    try:
        waiting = _emptied(top, top)
        while waiting:
            name = waiting.pop()
            folder = _open_folder(name, top)
            try:
                waiting += _emptied(folder, top)
            finally:
                os.close(folder)
            os.rmdir(name, dir_fd=top)
    finally:
        os.close(top)
    path.rmdir()


def _emptied(folder: int, top: int) -> list[str]:
    """Remove a folder's files and move its folders to ``top``; returns their names there."""
    moved: list[str] = []
    with os.scandir(folder) as entries:
        for entry in list(entries):
            if not entry.is_dir(follow_symlinks=False):
                os.unlink(entry.name, dir_fd=folder)
            elif folder == top:
                moved.append(entry.name)
            else:
                moved.append(_moved_up(entry.name, folder, top))
    return moved


def _moved_up(name: str, folder: int, top: int) -> str:
    new_name = f".{uuid.uuid4().hex}"
    try:
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=top)
    except PermissionError:
        _make_usable(name, folder)
        os.rename(name, new_name, src_dir_fd=folder, dst_dir_fd=top)
    return new_name


def _open_folder(name: str, top: int | None) -> int:
    flags = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW
    if os.geteuid() != 0:
        _make_usable(name, top)
    return os.open(name, flags, dir_fd=top)


def _make_usable(name: str, folder: int | None) -> None:
    """Give a folder's owner every right to it, without following a link."""
    here = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW, dir_fd=folder)
    try:
        # A file opened by path alone has no fchmod.
        os.chmod(f"/proc/self/fd/{here}", 0o700)
    finally:
        os.close(here)
