"""Folders kept by what is in them: put once, found again by digest from any process."""

from __future__ import annotations

import hashlib
import io
import os
import secrets
import tarfile
from collections.abc import Iterator
from pathlib import Path
from typing import IO, TYPE_CHECKING

from agent_env.errors import InvalidSpecError

if TYPE_CHECKING:
    from _typeshed import ReadableBuffer

_PREFIX = "sha256:"
_DIGITS = frozenset("0123456789abcdef")
# Every member gets the same time, or a digest would tell when a file was copied. This is the first
# moment that a zip file can hold, 1980-01-01: the epoch itself would break those who zip.
_MTIME = 315_532_800


class ArtifactStore:
    """A store in one folder. Content never changes once it is in, so a run can be repeated.

    An artifact is one tar file, named by its own SHA-256. It holds files, folders and links that
    stay inside; of a file's permissions it keeps only whether its owner may execute it. So the
    same content has the same digest on every machine.

    Thread-safe and process-safe; methods block, so call them from a thread.
    """

    def __init__(self, root: Path) -> None:
        self._root = root

    def put(self, folder: Path) -> str:
        """Keep a copy of a folder, or of one file, as ``sha256:…``. The same content is kept once.

        Raises:
            FileNotFoundError: there is no such folder.
            InvalidSpecError: it holds a link that leads out of it, or a socket, pipe or device.
        """
        if not folder.exists():
            raise FileNotFoundError(f"there is no folder {str(folder)!r}")
        digest = _packed(folder, None)
        if not self._file(digest).exists():
            digest = self._keep(folder)
        return _PREFIX + digest

    def extract(self, ref: str, destination: Path) -> None:
        """Write a copy of the folder's content into ``destination``, which is made if missing.

        Raises:
            FileNotFoundError: the store has no such artifact; names the store's folder.
        """
        digest = ref.removeprefix(_PREFIX)
        is_ref = ref.startswith(_PREFIX) and len(digest) == 64 and _DIGITS.issuperset(digest)
        if not is_ref or not self._file(digest).exists():
            raise FileNotFoundError(f"there is no artifact {ref!r} in {str(self._root)!r}")
        destination.mkdir(parents=True, exist_ok=True)
        with tarfile.open(self._file(digest), "r:") as archive:
            archive.extractall(destination, filter="data")

    def _keep(self, folder: Path) -> str:
        """Write the tar file under another name first: whoever sees it sees all of it."""
        self._file("").parent.mkdir(parents=True, exist_ok=True)
        unfinished = self._file(f"unfinished-{secrets.token_hex(8)}")
        try:
            with unfinished.open("xb") as file:
                # Digested anew: the folder may have changed since.
                digest = _packed(folder, file)
                file.flush()
                os.fsync(file.fileno())
            unfinished.replace(self._file(digest))
        finally:
            unfinished.unlink(missing_ok=True)
        return digest

    def _file(self, digest: str) -> Path:
        return self._root / "sha256" / f"{digest}.tar"


class _Digesting(io.RawIOBase):
    """A sink that digests what is written, and passes it on if there is somewhere to."""

    def __init__(self, onward: IO[bytes] | None) -> None:
        self._onward = onward
        self.sha256 = hashlib.sha256()

    def write(self, data: ReadableBuffer, /) -> int:
        self.sha256.update(data)
        return memoryview(data).nbytes if self._onward is None else self._onward.write(data)


def _packed(folder: Path, onward: IO[bytes] | None) -> str:
    """Write the folder's tar file, and digest it."""
    sink = _Digesting(onward)
    with tarfile.open(fileobj=sink, mode="w|", format=tarfile.PAX_FORMAT) as archive:
        for path, name in _entries(folder):
            member = _member(folder, path, name)
            if member.isreg():
                with path.open("rb") as content:
                    member.size = os.fstat(content.fileno()).st_size
                    archive.addfile(member, content)
            else:
                archive.addfile(member)
    return sink.sha256.hexdigest()


def _entries(folder: Path) -> Iterator[tuple[Path, str]]:
    """All there is below the folder, in an order that depends on the names alone."""
    if not folder.is_dir():
        yield folder, folder.name
        return
    waiting = [folder]
    while waiting:
        path = waiting.pop()
        if path is not folder:
            yield path, path.relative_to(folder).as_posix()
        if path is folder or (path.is_dir() and not path.is_symlink()):
            waiting += sorted(path.iterdir(), reverse=True)


def _member(folder: Path, path: Path, name: str) -> tarfile.TarInfo:
    member = tarfile.TarInfo(name)
    member.mtime = _MTIME
    member.mode = 0o755
    if path.is_symlink() and path is not folder:
        member.type, member.linkname = tarfile.SYMTYPE, str(path.readlink())
        target = Path(os.path.realpath(path))
        if os.path.isabs(member.linkname) or not target.is_relative_to(folder.resolve()):
            raise InvalidSpecError.of(
                str(path), f"links to {member.linkname!r}, out of {str(folder)!r}; copy it instead"
            )
    elif path.is_dir():
        member.type = tarfile.DIRTYPE
    elif path.is_file():
        member.mode = 0o755 if path.stat().st_mode & 0o100 else 0o644
    else:
        raise InvalidSpecError.of(
            str(path), "is a socket, a pipe or a device; an artifact holds files and folders"
        )
    return member
