"""Whether anything runs in a local sandbox, known from a lock that its processes hold."""

import fcntl
import hashlib
import os
import time
from collections.abc import Generator
from contextlib import contextmanager
from pathlib import Path

from agent_env._descendants import kill_marked
from agent_env.processes import Isolation

BUSY = "busy"
"""The file that is locked."""
_POLL_S = 0.005
_KILL_S = 5.0


def mark_of(sandbox: Path) -> str:
    """What the environment of a sandbox's processes has in it: no path, for they can read it."""
    return f"EPISODES_SANDBOX={hashlib.sha256(os.fsencode(sandbox)).hexdigest()}"


@contextmanager
def in_use(sandbox: Path) -> Generator[int]:
    """The sandbox's lock, shared with others that use it. Processes that inherit it hold it too.

    Raises:
        OSError: it is gone, or is being destroyed.
    """
    busy = os.open(sandbox / BUSY, os.O_RDONLY | os.O_CLOEXEC)
    try:
        fcntl.flock(busy, fcntl.LOCK_SH | fcntl.LOCK_NB)
        yield busy
    finally:
        os.close(busy)


def end_use(sandbox: Path, isolation: Isolation) -> None:
    """Kill what runs in a sandbox, whoever started it, this worker or a dead one. Blocking.

    Raises:
        TimeoutError: something survived for 5 s.
    """
    deadline = time.monotonic() + _KILL_S
    while _was_used(sandbox, isolation):
        if time.monotonic() > deadline:
            raise TimeoutError(f"processes in {sandbox} survive being killed")
        time.sleep(_POLL_S)


def _was_used(sandbox: Path, isolation: Isolation) -> bool:
    """Whether anything ran in it a moment ago; it has been killed then."""
    # Who left a process group may have let go of the lock, too.
    if isolation is Isolation.PROCESS_GROUP and kill_marked(mark_of(sandbox)):
        return True
    try:
        busy = os.open(sandbox / BUSY, os.O_RDONLY | os.O_CLOEXEC)
    except FileNotFoundError:
        return False
    try:
        fcntl.flock(busy, fcntl.LOCK_EX | fcntl.LOCK_NB)
    except BlockingIOError:
        kill_marked(mark_of(sandbox))
        return True
    finally:
        os.close(busy)
    return False
