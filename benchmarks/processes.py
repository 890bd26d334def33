"""Real workers, and what /proc tells of processes."""

import asyncio
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterable
from pathlib import Path

from agent_env.config import Settings

_TICK_S = 1 / os.sysconf("SC_CLK_TCK")
_POLL_S = 0.005


class WorkerProcess:
    """``episodes worker`` on a state folder, and when it began to serve.

    Args:
        state_dir: Its own folder.
        shared_dir: The folder that has the run index.
        address: Of the Temporal server.
        settings: More settings, by name.
    """

    def __init__(self, state_dir: Path, shared_dir: Path, address: str, **settings: float) -> None:
        self._log = state_dir / "worker.log"
        env = {
            **os.environ,
            "EPISODES_STATE_DIR": str(state_dir),
            "EPISODES_DATABASE": Settings(state_dir=shared_dir).database_url,
            "TEMPORAL_ADDRESS": address,
            **{f"EPISODES_{name.upper()}": f"{value:g}" for name, value in settings.items()},
        }
        with self._log.open("w") as log:
            self._popen = subprocess.Popen(
                [sys.executable, "-m", "agent_env.cli", "worker"],
                env=env,
                stdout=subprocess.DEVNULL,
                stderr=log,
            )

    async def serves(self) -> float:
        """Wait until it says so; when that was seen, on ``time.perf_counter``."""
        await until(lambda: "serving" in self._log.read_text(encoding="utf-8"))
        return time.perf_counter()

    def kill(self) -> None:
        """As a power cut would."""
        self._popen.kill()
        self._popen.wait()

    def end(self) -> None:
        """Ask it to drain, and wait."""
        self._popen.terminate()
        self._popen.wait(timeout=120)


async def until(condition: Callable[[], bool], within_s: float = 180) -> None:
    """Wait for a condition.

    Raises:
        TimeoutError: it did not come true.
    """
    async with asyncio.timeout(within_s):
        while not condition():
            await asyncio.sleep(_POLL_S)


def commands() -> dict[int, str]:
    """The command line of each process of this machine."""
    found: dict[int, str] = {}
    for entry in os.scandir("/proc"):
        if entry.name.isdigit():
            try:
                words = Path(entry.path, "cmdline").read_bytes().split(b"\0")
            except OSError:
                continue  # it ended meanwhile
            found[int(entry.name)] = b" ".join(words).decode(errors="replace").strip()
    return found


def running(*words: str) -> list[int]:
    """Ids of the processes that any of these words started, whatever wraps them."""
    return [pid for pid, line in commands().items() if any(word in line for word in words)]


def any_alive(pids: Iterable[int]) -> bool:
    """Whether one of these processes runs."""
    return any(_state(pid) not in (None, "Z") for pid in pids)


def cpu_s(pid: int) -> float:
    """Seconds of CPU that a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8").rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) * _TICK_S


def _state(pid: int) -> str | None:
    try:
        stat = Path(f"/proc/{pid}/stat").read_text(encoding="utf-8")
    except OSError:
        return None
    return stat.rpartition(")")[2].split()[0]
