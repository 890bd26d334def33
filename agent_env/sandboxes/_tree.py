"""Files below a root that somebody hostile may write to. Blocking; no path leads out of the root.

A path is walked folder by folder through open folders, and links are followed by hand: an absolute
one starts at the root again. What is swapped meanwhile is noticed, never followed.
"""

import errno
import os
import shutil
import stat
from collections import deque
from collections.abc import Generator
from contextlib import contextmanager, suppress
from pathlib import Path, PurePosixPath
from typing import NamedTuple

from agent_env._isolation import CLOSED_FOLDERS

_MAX_LINKS = 40
_FOLDER = os.O_RDONLY | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC


class _Place(NamedTuple):
    """An open folder and a name in it; ``.`` for the root itself."""

    folder: int
    name: str
    parts: tuple[str, ...]
    """Its whole path, from the root."""


class Tree:
    """A folder of this machine that a sandbox knows as its root.

    Args:
        root: The folder.
        home: What relative paths start from, a path in the tree.
        uid: User and group of what is made in it; None keeps the worker's.
    """

    def __init__(self, root: Path, *, home: str, uid: int | None) -> None:
        self._root = root
        self._home = home
        self._uid = uid

    def on_host(self, path: str) -> Path:
        """Where a folder lies on this machine, its links followed. It need not be there."""
        try:
            with self._place(path) as place:
                return self._root.joinpath(*place.parts)
        except OSError:
            return self._root / PurePosixPath("/", self._home, path).relative_to("/")

    def read(self, path: str, max_bytes: int) -> bytes:
        """A file's bytes.

        Raises:
            FileNotFoundError: there is no such file.
            ValueError: it is no regular file, or larger than ``max_bytes``.
        """
        with self._place(path) as place, os.fdopen(_opened(place, path), "rb") as file:
            size = os.fstat(file.fileno()).st_size
            data = file.read(max_bytes + 1) if size <= max_bytes else b""
        if max(size, len(data)) > max_bytes:
            raise ValueError(
                f"{path} has {max(size, len(data)):,} bytes; at most {max_bytes:,} can be read"
            )
        return data

    def write(self, path: str, data: bytes, *, mode: int = 0o644) -> None:
        """Make a file anew, and the folders it needs."""
        with self._created(path, mode) as file, open(file, "wb", closefd=False) as target:
            target.write(data)

    def make_folder(self, path: str, *, mode: int = 0o755) -> None:
        """Make a folder, and those it needs; nothing if it is there."""
        with self._place(path, make=True) as place:
            if place.name != ".":
                self._make_folder(place.folder, place.name, mode, is_top=len(place.parts) == 1)

    def copy_in(self, source: Path, destination: str) -> None:
        """Copy a file to a path, or a folder's content into a folder. Links stay links."""
        if not source.is_dir():
            self._copy_file_in(source, destination)
            return
        self.make_folder(destination)
        for folder, folders, files in os.walk(source):
            inside = f"{destination}/{os.path.relpath(folder, source)}"
            for name in [*folders, *files]:
                path = Path(folder, name)
                if path.is_symlink():
                    self._link(f"{inside}/{name}", os.readlink(path))
                elif path.is_dir():
                    self.make_folder(f"{inside}/{name}")
                elif path.is_file():
                    self._copy_file_in(path, f"{inside}/{name}")

    def copy_out(self, source: str, destination: Path) -> None:
        """Copy a file to a path, or a folder's content into a folder.

        A link becomes a copy of the file it leads to in the tree; links to folders or to nothing,
        and what is neither a file nor a folder, are left out.

        Raises:
            FileNotFoundError: there is no such path.
        """
        waiting = [(source, destination)]
        while waiting:
            path, target = waiting.pop()
            with self._place(path) as place:
                if not stat.S_ISDIR(_stat(place, path).st_mode):
                    _copy_file_out(place, path, target)
                    continue
                here = "/" + "/".join(place.parts)
                folder = os.open(place.name, _FOLDER, dir_fd=place.folder)
            target.mkdir(parents=True, exist_ok=True)
            try:
                for entry in os.scandir(folder):
                    inside = f"{here}/{entry.name}"
                    if entry.is_dir(follow_symlinks=False) or self._is_file(inside):
                        waiting.append((inside, target / entry.name))
            finally:
                os.close(folder)

    def _is_file(self, path: str) -> bool:
        try:
            with self._place(path) as place:
                return stat.S_ISREG(_stat(place, path).st_mode)
        except OSError:
            return False

    def _copy_file_in(self, source: Path, destination: str) -> None:
        with source.open("rb") as original:
            mode = stat.S_IMODE(os.fstat(original.fileno()).st_mode) & 0o755 | 0o600
            with (
                self._created(destination, mode) as file,
                open(file, "wb", closefd=False) as target,
            ):
                shutil.copyfileobj(original, target, 1024 * 1024)

    def _link(self, path: str, target: str) -> None:
        with self._place(path, make=True, follow=False) as place:
            _refuse_closed(place.parts, path)
            _unlinked(place)
            os.symlink(target, place.name, dir_fd=place.folder)
            if self._uid is not None:
                os.chown(
                    place.name, self._uid, self._uid, dir_fd=place.folder, follow_symlinks=False
                )

    @contextmanager
    def _created(self, path: str, mode: int) -> Generator[int]:
        with self._place(path, make=True) as place:
            _refuse_closed(place.parts, path)
            file = _opened_anew(place)
        try:
            self._own(file, mode)
            yield file
        finally:
            os.close(file)

    def _own(self, file: int, mode: int) -> None:
        os.fchmod(file, mode)
        if self._uid is not None:
            os.fchown(file, self._uid, self._uid)

    def _make_folder(self, folder: int, name: str, mode: int, *, is_top: bool) -> None:
        """Make a folder if there is nothing of that name."""
        if is_top:
            _refuse_closed((name,), name)
        try:
            os.mkdir(name, 0o700, dir_fd=folder)
        except FileExistsError:
            return
        made = os.open(name, _FOLDER, dir_fd=folder)
        try:
            self._own(made, mode)
        finally:
            os.close(made)

    @contextmanager
    def _place(self, path: str, *, make: bool = False, follow: bool = True) -> Generator[_Place]:
        """Where a path leads. Its folders must be there, or are made; its last part need not be.

        Without ``follow``, a last part that is a link stays one.
        """
        waiting = deque(_parts(self._home if not path.startswith("/") else "") + _parts(path))
        folders = [os.open(self._root, _FOLDER)]
        names: list[str] = []
        links = 0
        try:
            while waiting:
                part = waiting.popleft()
                if part == "..":
                    if names:
                        names.pop()
                        os.close(folders.pop())
                    continue
                target = _link_target(part, folders[-1]) if waiting or follow else None
                if target is not None:
                    links += 1
                    if links > _MAX_LINKS:
                        raise OSError(errno.ELOOP, os.strerror(errno.ELOOP), path)
                    if target.startswith("/"):
                        names.clear()
                        while len(folders) > 1:
                            os.close(folders.pop())
                    waiting.extendleft(reversed(_parts(target)))
                elif waiting:
                    if make:
                        self._make_folder(folders[-1], part, 0o755, is_top=not names)
                    folders.append(os.open(part, _FOLDER, dir_fd=folders[-1]))
                    names.append(part)
                else:
                    yield _Place(folders[-1], part, (*names, part))
                    return
            yield _Place(folders[-1], ".", tuple(names))
        finally:
            for folder in folders:
                os.close(folder)


def _parts(path: str) -> list[str]:
    return [part for part in path.split("/") if part not in ("", ".")]


def _link_target(name: str, folder: int) -> str | None:
    try:
        return os.readlink(name, dir_fd=folder)
    except OSError as error:
        if error.errno in (errno.EINVAL, errno.ENOENT):
            return None
        raise


def _refuse_closed(parts: tuple[str, ...], path: str) -> None:
    if not parts or parts[0] in CLOSED_FOLDERS:
        raise OSError(errno.EROFS, "read-only in a local sandbox", path)


def _opened_anew(place: _Place) -> int:
    """A new file: never what is there, which may be a pipe, in use, or held open by somebody.

    When others write the same path at once, the last one stands.
    """
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_NOFOLLOW | os.O_CLOEXEC
    while True:
        _unlinked(place)
        with suppress(FileExistsError):
            return os.open(place.name, flags, 0o600, dir_fd=place.folder)


def _unlinked(place: _Place) -> None:
    with suppress(FileNotFoundError):
        os.unlink(place.name, dir_fd=place.folder)


def _stat(place: _Place, path: str) -> os.stat_result:
    try:
        return os.stat(place.name, dir_fd=place.folder, follow_symlinks=False)
    except FileNotFoundError:
        raise FileNotFoundError(errno.ENOENT, "no such file in the sandbox", path) from None


def _opened(place: _Place, path: str) -> int:
    """The file, open for reading; never a pipe that somebody would have to write to first."""
    if not stat.S_ISREG(_stat(place, path).st_mode):
        raise ValueError(f"{path} is not a regular file")
    flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
    return os.open(place.name, flags, dir_fd=place.folder)


def _copy_file_out(place: _Place, path: str, target: Path) -> None:
    with os.fdopen(_opened(place, path), "rb") as original:
        target.parent.mkdir(parents=True, exist_ok=True)
        with target.open("wb") as copy:
            shutil.copyfileobj(original, copy, 1024 * 1024)
        target.chmod(stat.S_IMODE(os.fstat(original.fileno()).st_mode) & 0o755 | 0o600)
