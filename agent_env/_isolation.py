"""Ways to start a command so that its whole tree can be killed, and what each is worth."""

import functools
import os
import shutil
import subprocess
import tempfile
from dataclasses import dataclass
from enum import IntEnum, StrEnum
from pathlib import Path
from typing import NamedTuple

_TRY_TIMEOUT_S = 10
_PATH = "/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin"

SYSTEM_FOLDERS = (
    "usr", "bin", "sbin", "lib", "lib32", "lib64", "libx32", "opt", "nix", "gnu",
)  # fmt: skip
"""What a sandbox sees of the machine, read-only, unless it has a folder of that name itself."""
CLOSED_FOLDERS = frozenset({*SYSTEM_FOLDERS, "etc", "proc", "dev", "sys"} - {"opt"})
"""Names at the root that a sandbox can't have as its own."""


class Fd(IntEnum):
    """Open files that a command's supervisor is started with."""

    TROUBLE = 2
    SCRIPT = 3
    STDOUT = 4
    STDERR = 5
    CONTROL = 6
    """What the supervisor reports: that it started, and how the command ended."""
    INFO = 7
    """For bubblewrap a second ``CONTROL``; for unshare the machine's ``/proc``."""
    ALIVE = 8
    """Ends when the process that asked for the command is dead."""
    HOLD = 9
    """Stays open for as long as anything of the command lives."""
    OPTIONS = 10
    """Options of bubblewrap."""


class Isolation(StrEnum):
    """How a command's processes are kept together, the best first."""

    BUBBLEWRAP = "bubblewrap"
    UNSHARE = "unshare"
    PROCESS_GROUP = "process group"

    @property
    def worth(self) -> str:
        """What it protects from and what not, in a sentence."""
        return _WORTH[self]

    @property
    def is_rooted(self) -> bool:
        """Whether a sandbox has a file system of its own under it."""
        return self is Isolation.BUBBLEWRAP


_WORTH = {
    Isolation.BUBBLEWRAP: (
        "Every descendant dies with its command, whatever it does; a sandbox sees its own folders "
        "and the system's programs, no other files and, unless asked, no network."
    ),
    Isolation.UNSHARE: (
        "Every descendant dies with its command, and a sandbox has no network unless asked; but "
        "its commands see and may change the files of this machine. Install bubblewrap."
    ),
    Isolation.PROCESS_GROUP: (
        "A descendant that starts a session of its own and clears its environment escapes, and "
        "commands see the files and the network of this machine. Install bubblewrap."
    ),
}


@dataclass(frozen=True)
class Limits:
    """What one command may use. None means as much as the worker itself."""

    memory_bytes: int | None = None
    """Address space of each process."""
    file_bytes: int | None = None
    """Size of each file it writes."""
    processes: int | None = None
    """Processes at once. Binds under bubblewrap, and under unshare when the worker is not root."""


@dataclass(frozen=True)
class HostView:
    """The machine as it is, for code that is trusted."""


@dataclass(frozen=True)
class SandboxView:
    """A file system of the command's own; only ``network`` counts where there can be none."""

    root: Path
    """Each folder and file in it appears at the sandbox's ``/``, writable."""
    etc: Path
    """Folder that appears as ``/etc``, read-only."""
    own_etc: Path
    """Files that take the place of those of the same names in ``etc``."""
    shared_memory: Path
    """Folder that appears as ``/dev/shm``."""
    hidden: Path
    """A folder of the machine that must not show, wherever it lies."""
    uid: int | None = None
    """User and group of the command; None keeps the worker's."""
    network: bool = False


View = HostView | SandboxView


def best_isolation() -> Isolation:
    """The best way this machine permits. Tries each for real; blocks for some 20 ms."""
    for isolation in (Isolation.BUBBLEWRAP, Isolation.UNSHARE):
        if isolation_works(isolation):
            return isolation
    return Isolation.PROCESS_GROUP


def isolation_works(isolation: Isolation) -> bool:
    """Whether commands can be run this way here, in both views. Blocks."""
    with tempfile.TemporaryDirectory(prefix="episodes-") as folder:
        here = Path(folder)
        for name in ("root", "etc", "own", "shm"):
            (here / name).mkdir()
        closed = SandboxView(
            here / "root",
            here / "etc",
            here / "own",
            here / "shm",
            here,
            uid=unprivileged_uid(0),
        )
        return all(_runs(isolation, view) for view in (HostView(), closed))


def _runs(isolation: Isolation, view: View) -> bool:
    try:
        argv = [*prefix(isolation, view), program("prlimit"), "--fsize=1048576", program("true")]
        done = subprocess.run(
            argv, stdin=subprocess.DEVNULL, capture_output=True, timeout=_TRY_TIMEOUT_S, check=False
        )
    except (OSError, subprocess.TimeoutExpired):
        return False
    return done.returncode == 0


def unprivileged_uid(number: int) -> int | None:
    """A user id nobody else has, for a worker that is root; None if it can't have one.

    The kernel doesn't hold root to a number of processes, not even in a user namespace. In a
    container of few user ids, sandboxes may come to share one, which then counts for both.
    """
    if os.geteuid() != 0:
        return None
    lines = Path("/proc/self/uid_map").read_text(encoding="ascii").splitlines()
    top = max(int(first) + int(count) for first, _, count in map(str.split, lines))
    if top > 2_100_000_000:
        return 2_000_000_000 + number % 100_000_000
    return 20_000 + number % (top - 20_000) if top >= 60_000 else None


def program(name: str) -> str:
    """Where a program of the system is.

    Raises:
        FileNotFoundError: it is not installed.
    """
    return _found(name, os.environ.get("PATH"))


@functools.cache
def _found(name: str, path: str | None) -> str:
    found = shutil.which(name, path=_PATH) or shutil.which(name, path=path)
    if found is None:
        raise FileNotFoundError(f"{name} is not installed")
    return found


class CommandLine(NamedTuple):
    """What starts a supervisor."""

    argv: list[str]
    """It expects the open files of ``Fd``."""
    options: bytes | None
    """Content of ``Fd.OPTIONS``."""


def command_line(isolation: Isolation, view: View, *, holds: bool) -> CommandLine:
    """What starts a supervisor, which has ``Fd.HOLD`` if ``holds``."""
    start = prefix(isolation, view)
    options = None
    if isolation is Isolation.BUBBLEWRAP:
        # A sandbox sees the arguments of its first process, and they name folders of the machine.
        end = start.index("--")
        wanted = [*start[1:end], "--info-fd", str(Fd.INFO.value)]
        wanted += ["--sync-fd", str(Fd.HOLD.value)] if holds else []
        options = b"".join(os.fsencode(option) + b"\0" for option in wanted)
        start = [start[0], "--args", str(Fd.OPTIONS.value), *start[end:]]
    argv = [*start, program("sh"), f"/proc/self/fd/{Fd.SCRIPT.value}"]
    return CommandLine(argv, options)


def prefix(isolation: Isolation, view: View) -> list[str]:
    """What to put before a command, to run it this way."""
    if isolation is Isolation.BUBBLEWRAP:
        seen = _whole_machine() if isinstance(view, HostView) else _own_root(view)
        uid = view.uid if isinstance(view, SandboxView) else None
        return [program("bwrap"), "--die-with-parent", "--unshare-pid", *seen, "--",
                *(_as_user(uid) if uid is not None else ())]  # fmt: skip
    if isolation is Isolation.UNSHARE:
        closed = isinstance(view, SandboxView) and not view.network
        return [program("setpriv"), "--pdeathsig", "KILL",
                program("unshare"), "--pid", "--fork", "--kill-child", "--mount-proc",
                *(["--ipc", "--net"] if closed else ()),
                *(["--user", "--map-current-user"] if os.geteuid() != 0 else ()), "--"]  # fmt: skip
    return []


def _whole_machine() -> list[str]:
    return ["--dev-bind", "/", "/", "--proc", "/proc"]


def _own_root(view: SandboxView) -> list[str]:
    argv = ["--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try", "--hostname", "sandbox"]
    argv += [] if view.network else ["--unshare-net"]
    if os.geteuid() != 0 or view.uid is None:
        argv += ["--unshare-user", "--uid", "1000", "--gid", "1000"]
    own = {entry.name: entry for entry in os.scandir(view.root) if not entry.is_symlink()}
    hidden = view.hidden.resolve()
    for path, target in _system_folders():
        if target:
            argv += ["--symlink", target, path]
        elif path[1:] not in own:
            argv += ["--ro-bind", path, path]
            if hidden.is_relative_to(path):
                argv += ["--tmpfs", str(hidden)]
    argv += ["--ro-bind", str(view.etc), "/etc"]
    for entry in os.scandir(view.own_etc):
        argv += ["--ro-bind", entry.path, f"/etc/{entry.name}"]
    if view.network and Path("/etc/resolv.conf").exists():
        argv += ["--ro-bind", "/etc/resolv.conf", "/etc/resolv.conf"]
    argv += ["--proc", "/proc", "--dev", "/dev", "--bind", str(view.shared_memory), "/dev/shm"]
    for name, entry in own.items():
        argv += ["--bind", entry.path, f"/{name}"]
    return [*argv, "--remount-ro", "/", "--chdir", "/"]


@functools.cache
def _system_folders() -> tuple[tuple[str, str], ...]:
    """Those of ``SYSTEM_FOLDERS`` that this machine has: the path, and its target if it links."""
    paths = [Path("/", name) for name in SYSTEM_FOLDERS]
    return tuple(
        (str(path), os.readlink(path) if path.is_symlink() else "")
        for path in paths
        if path.is_symlink() or path.is_dir()
    )


def _as_user(uid: int) -> list[str]:
    return [program("setpriv"), "--reuid", str(uid), "--regid", str(uid), "--clear-groups",
            "--inh-caps=-all", "--bounding-set=-all"]  # fmt: skip
