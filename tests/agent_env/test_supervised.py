"""However a command ends, all that it started ends, and nothing of it is left here."""

import asyncio
import os
import threading
import time
from collections.abc import Awaitable, Callable, Coroutine
from contextlib import AbstractContextManager
from pathlib import Path
from typing import Any, Protocol

import pytest

from agent_env.errors import SandboxUnavailableError
from agent_env.processes import Isolation, SandboxView, isolation_works, run_process
from agent_env.sandboxes.base import ExecResult

KILL_S = 2.0
Killed = Callable[[str], AbstractContextManager[None]]
Run = Callable[..., Coroutine[Any, Any, ExecResult]]
Until = Callable[..., Awaitable[None]]


class Naps(Protocol):
    command: str

    def running(self) -> list[int]: ...


needs_bubblewrap = pytest.mark.skipif(
    not isolation_works(Isolation.BUBBLEWRAP), reason="needs-bubblewrap"
)

ESCAPING = "{0} & setsid {0} & (setsid sh -c '{0} & {0}' &) & nohup {0} >/dev/null 2>&1 & {0}"
ESCAPED = 6


async def test_a_timeout_kills_every_descendant(run_command: Run, naps: Naps, until: Until) -> None:
    running = asyncio.ensure_future(
        run_command("sh", "-c", ESCAPING.format(naps.command), timeout_s=1.5)
    )
    await until(lambda: len(naps.running()) == ESCAPED)
    begun = time.monotonic()

    done = await running

    assert (done.timed_out, done.exit_code) == (True, -9)
    assert naps.running() == []
    assert time.monotonic() - begun < 1.5 + KILL_S


async def test_canceling_kills_every_descendant(run_command: Run, naps: Naps, until: Until) -> None:
    running = asyncio.ensure_future(run_command("sh", "-c", ESCAPING.format(naps.command)))
    await until(lambda: len(naps.running()) == ESCAPED)
    begun = time.monotonic()

    running.cancel()
    await asyncio.wait([running])

    assert running.cancelled()
    assert naps.running() == []
    assert time.monotonic() - begun < KILL_S


async def test_canceling_at_any_moment_leaves_nothing(run_command: Run, naps: Naps) -> None:
    files = len(os.listdir("/proc/self/fd"))
    for step in range(30):
        running = asyncio.ensure_future(
            run_command("sh", "-c", f"setsid {naps.command} & {naps.command}")
        )
        await asyncio.wait([running], timeout=step / 2000)

        running.cancel()
        running.cancel()
        await asyncio.wait([running])

        assert running.cancelled()
    assert naps.running() == []
    assert len(os.listdir("/proc/self/fd")) == files


async def test_what_a_command_leaves_behind_dies_with_it(run_command: Run, naps: Naps) -> None:
    begun = time.monotonic()

    done = await run_command("sh", "-c", f"setsid {naps.command} & {naps.command} & echo done")

    assert (done.exit_code, done.stdout, done.left_open) == (0, "done\n", True)
    assert naps.running() == []
    assert time.monotonic() - begun < KILL_S


async def test_a_child_that_holds_no_pipe_is_not_reported(run_command: Run, naps: Naps) -> None:
    done = await run_command("sh", "-c", f"{naps.command} >/dev/null 2>&1 & echo done")

    assert (done.stdout, done.left_open) == ("done\n", False)


async def test_output_that_trails_the_end_is_kept(run_command: Run) -> None:
    done = await run_command("bash", "-c", "for i in 1 2 3 4 5; do echo $i; done > >(cat)")

    assert done.stdout == "1\n2\n3\n4\n5\n"


async def test_fifty_commands_run_at_once_and_leave_nothing(run_command: Run) -> None:
    files = set(os.listdir("/proc/self/fd"))
    tasks = asyncio.all_tasks()
    threads = threading.active_count()

    done = await asyncio.gather(
        *(run_command("sh", "-c", f"echo {n}; exit {n}") for n in range(50))
    )

    assert [(one.exit_code, one.stdout) for one in done] == [(n, f"{n}\n") for n in range(50)]
    assert set(os.listdir("/proc/self/fd")) == files
    assert asyncio.all_tasks() == tasks
    assert threading.active_count() == threads
    assert children() == []


def children() -> list[str]:
    """Processes that this one started, dead ones that nobody has reaped included."""
    found: list[str] = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdecimal():
            try:
                status = (entry / "status").read_text()
            except OSError:
                continue
            if f"\nPPid:\t{os.getpid()}\n" in status:
                found.append(status)
    return found


async def test_a_file_the_worker_inherited_is_not_passed_on(
    run_command: Run, tmp_path: Path
) -> None:
    secret = os.open(tmp_path, os.O_RDONLY)
    os.set_inheritable(secret, True)

    done = await run_command("sh", "-c", "ls -l /proc/self/fd | grep -c -F -- '-> /'")
    os.close(secret)

    # stdin, and the folder that ls reads.
    assert done.stdout == "2\n"


async def test_the_kernel_would_kill_a_command_before_the_worker(run_command: Run) -> None:
    done = await run_command("cat", "/proc/self/oom_score_adj")

    assert done.stdout == "1000\n"


@needs_bubblewrap
async def test_trouble_of_the_isolation_is_no_result_of_the_command(tmp_path: Path) -> None:
    for name in ("root", "etc", "own"):
        (tmp_path / name).mkdir()
    view = SandboxView(
        root=tmp_path / "root",
        etc=tmp_path / "etc",
        own_etc=tmp_path / "own",
        shared_memory=tmp_path / "no-such-shm",
        hidden=tmp_path,
    )

    with pytest.raises(SandboxUnavailableError, match=r"bubblewrap.*no-such-shm"):
        await run_process(
            ["true"],
            isolation=Isolation.BUBBLEWRAP,
            cwd=Path("/"),
            env={},
            timeout=None,
            max_output_bytes=1,
            view=view,
        )


async def test_nothing_outlives_a_worker_that_is_killed(
    isolation: Isolation, naps: Naps, until: Until, killed_at_the_end: Killed
) -> None:
    # A process group can't hold what leaves it: that is what its worth says.
    leaves = isolation is not Isolation.PROCESS_GROUP
    command = ESCAPING.format(naps.command) if leaves else f"({naps.command} &); {naps.command}"
    count = ESCAPED if leaves else 2
    program = f"""
import asyncio
from pathlib import Path
from agent_env.processes import Isolation, run_process

asyncio.run(run_process(
    ["sh", "-c", {command!r}], isolation=Isolation({isolation.value!r}), cwd=Path("/"),
    env={{"PATH": "/usr/bin:/bin"}}, timeout=None, max_output_bytes=1,
))
"""
    with killed_at_the_end(program):
        await until(lambda: len(naps.running()) == count, within_s=60)

    await until(lambda: naps.running() == [], within_s=KILL_S)
