"""What local sandboxes see of this machine's ``/etc``, in one folder. Blocking.

Bound one by one, these files would cost every command some three milliseconds.
"""

import hashlib
import os
import shutil
import uuid
from collections.abc import Iterator
from pathlib import Path

from agent_env._isolation import SYSTEM_FOLDERS
from agent_env._remove import remove_tree

_SHOWN = (
    "alternatives", "ca-certificates", "fonts", "java", "ld.so.cache", "ld.so.conf",
    "ld.so.conf.d", "localtime", "magic", "mime.types", "nsswitch.conf", "os-release", "perl",
    "pki", "protocols", "python3", "services", "ssl", "terminfo", "timezone",
)  # fmt: skip
_OWN = {
    "hosts": "127.0.0.1 localhost sandbox\n::1 localhost sandbox\n",
    # Each sandbox, or each command, lays its own over these.
    "passwd": "",
    "group": "",
    "resolv.conf": "",
}
_SYSTEM = tuple(f"/{name}/" for name in SYSTEM_FOLDERS)


def machine_etc(parent: Path, source: Path = Path("/etc")) -> Path:
    """A folder below ``parent`` with what sandboxes may see of ``source`` as it is now.

    It is named by what is in it, made once and never changed, so that processes share it. Links
    lead into the system's folders or became copies; what not everybody may read is left out.

    Raises:
        OSError: it could not be made.
    """
    entries = [*_entries(source)]
    digest = hashlib.sha256(repr([_OWN, entries]).encode()).hexdigest()[:32]
    folder = parent / digest
    if folder.is_dir():
        return folder
    parent.mkdir(mode=0o755, parents=True, exist_ok=True)
    unfinished = parent / f".{digest}-{uuid.uuid4().hex}"
    unfinished.mkdir()
    try:
        _fill(unfinished, source, entries)
        unfinished.rename(folder)
    except OSError:
        remove_tree(unfinished)
        if not folder.is_dir():  # or another process was faster
            raise
    return folder


def _entries(source: Path) -> Iterator[tuple[str, str, float]]:
    """Path below the source, where it leads if that is a link to keep, and the time of a file."""
    waiting = [name for name in sorted(_SHOWN) if (source / name).exists()]
    while waiting:
        name = waiting.pop()
        path = source / name
        real = os.path.realpath(path)
        if not os.path.exists(real):
            continue
        found = os.stat(real)
        if path.is_symlink() and real.startswith(_SYSTEM):
            yield name, real, 0
        elif os.path.isdir(real):
            if found.st_mode & 0o005 == 0o005:
                yield name, "", 0
                waiting += sorted(f"{name}/{inside}" for inside in os.listdir(real))
        elif os.path.isfile(real) and found.st_mode & 0o004:
            yield name, "", found.st_mtime


def _fill(folder: Path, source: Path, entries: list[tuple[str, str, float]]) -> None:
    for name, target, _ in entries:
        path = folder / name
        if target:
            path.symlink_to(target)
        elif (source / name).is_dir():
            path.mkdir(0o755)
        else:
            shutil.copyfile(source / name, path)
            path.chmod(0o644)
    for name, text in _OWN.items():
        (folder / name).write_text(text, encoding="ascii")
        (folder / name).chmod(0o644)
    folder.chmod(0o755)
