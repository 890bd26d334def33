"""What is in a local sandbox, and whose it is."""

import hashlib
import os
from pathlib import Path

from agent_env.processes import unprivileged_uid
from agent_env.sandboxes._tree import Tree
from agent_env.sandboxes._use import BUSY

HOME = "/home/agent"
_FOLDERS = {HOME: 0o755, "/app": 0o755, "/workspace": 0o755, "/tmp": 0o1777, "/var/tmp": 0o1777}


def fill(sandbox: Path) -> None:
    """Make what a new sandbox has."""
    for name in ("root", "etc", "shm"):
        (sandbox / name).mkdir(exist_ok=True)
    (sandbox / "shm").chmod(0o1777)
    (sandbox / BUSY).touch()
    own = uid(sandbox)
    shown = 1000 if own is None else own
    for name, text in {
        "passwd": f"root:x:0:0::/:/bin/sh\nagent:x:{shown}:{shown}::{HOME}:/bin/sh\n",
        "group": f"root:x:0:\nagent:x:{shown}:\n",
    }.items():
        (sandbox / "etc" / name).write_text(text, encoding="ascii")
        (sandbox / "etc" / name).chmod(0o644)
    inside = tree(sandbox)
    for folder, mode in _FOLDERS.items():
        inside.make_folder(folder, mode=mode)


def tree(sandbox: Path) -> Tree:
    """Its file system, as its commands see it."""
    return Tree(sandbox / "root", home=HOME, uid=uid(sandbox))


def uid(sandbox: Path) -> int | None:
    """User and group of its commands; None keeps the worker's."""
    digest = hashlib.sha256(os.fsencode(sandbox)).digest()
    return unprivileged_uid(int.from_bytes(digest[:8]))
