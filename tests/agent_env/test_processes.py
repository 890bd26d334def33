"""Commands run as asked, under each isolation that this machine permits."""

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from pathlib import Path
from typing import Any, Protocol

import pytest

from agent_env.processes import Isolation, Limits, best_isolation, isolation_works, run_process
from agent_env.sandboxes.base import ExecResult

MIB = 1024 * 1024
Run = Callable[..., Coroutine[Any, Any, ExecResult]]
Until = Callable[..., Awaitable[None]]


class Naps(Protocol):
    command: str

    def running(self) -> list[int]: ...


def test_the_best_isolation_is_one_that_works() -> None:
    assert isolation_works(best_isolation())
    assert best_isolation() is next(filter(isolation_works, Isolation))


@pytest.mark.parametrize("isolation", Isolation)
def test_each_isolation_says_what_it_is_worth(isolation: Isolation) -> None:
    assert isolation.worth.endswith(".")


async def test_a_command_gets_its_input_environment_and_folder(
    run_command: Run, tmp_path: Path
) -> None:
    done = await run_command(
        "sh", "-c", "cat; pwd; env", env={"A": "b 'c'\n$d"}, stdin=b"x" * 200_000
    )

    text = done.stdout.removeprefix("x" * 200_000)
    assert text.startswith(f"{tmp_path}\n")
    assert "A=b 'c'\n$d\n" in text
    assert done[2:] == ("", False, 0, False)


async def test_a_command_gets_no_more_than_its_own_environment(
    run_command: Run, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("WORKERS_SECRET", "hidden")

    done = await run_command("env", env={"LD_PRELOAD": ""})

    names = {line.partition("=")[0] for line in done.stdout.splitlines()}
    assert names - {"EPISODES_COMMAND"} == {"PATH", "LD_PRELOAD"}


async def test_arguments_arrive_as_they_are(run_command: Run) -> None:
    odd = ["a b", "", "'", '"$(id)`id`', "-n", "\\n", "日本", "x\ny", "*", "\udcff"]

    done = await run_command("printf", "%s|", *odd)

    assert done.stdout == "|".join(odd).replace("\udcff", "\ufffd") + "|"


async def test_a_shell_builtin_is_no_program(run_command: Run) -> None:
    assert (await run_command("exit", "0")).exit_code == 127


async def test_a_program_may_have_an_equals_sign_in_its_path(
    run_command: Run, tmp_path: Path
) -> None:
    script = tmp_path / "a=b"
    script.write_text("#!/bin/sh\necho ran $1\n")
    script.chmod(0o755)

    done = await run_command(str(script), "it")

    assert done.stdout == "ran it\n"


@pytest.mark.parametrize(
    ("command", "code"),
    [("exit 3", 3), ("exit 137", 137), ("kill -9 $$", -9), ("kill -TERM $$", -15)],
)
async def test_an_exit_code_is_told_from_a_signal(
    run_command: Run, command: str, code: int
) -> None:
    assert (await run_command("sh", "-c", command)).exit_code == code


@pytest.mark.parametrize(("command", "code"), [("kill -TERM $$", -15), ("exit 143", 143)])
async def test_a_busy_loop_tells_a_signal_that_it_hears_of_late(
    run_command: Run, command: str, code: int
) -> None:
    running = asyncio.create_task(run_command("sh", "-c", command))
    await asyncio.sleep(0)
    time.sleep(0.5)  # noqa: ASYNC251 (so that the loop is busy)

    assert (await running).exit_code == code


async def test_programs_that_can_not_run_are_results(run_command: Run, tmp_path: Path) -> None:
    missing = await run_command("no-such-program")
    folder = await run_command(str(tmp_path))

    assert (missing.exit_code, folder.exit_code) == (127, 126)
    assert "no-such-program" in missing.stderr


async def test_no_signal_is_ignored_or_blocked_in_a_command(run_command: Run) -> None:
    done = await run_command(
        "sh", "-c", "yes | head -n 1; grep -E 'Sig(Ign|Blk)' /proc/self/status"
    )

    _, _, blocked, _, ignored = done.stdout.split()
    # The C library keeps two above the 31 for itself.
    assert (int(blocked, 16) & 0x7FFFFFFF, int(ignored, 16) & 0x7FFFFFFF) == (0, 0)


@pytest.mark.parametrize(
    ("argv", "env"), [([], {}), (["a\0b"], {}), (["a"], {"A": "\0"}), (["a"], {"A=B": ""})]
)
async def test_what_no_command_can_have_is_refused(
    tmp_path: Path, argv: list[str], env: dict[str, str]
) -> None:
    with pytest.raises(ValueError, match=r"NUL|no command|not a name"):
        await run_process(
            argv,
            isolation=Isolation.PROCESS_GROUP,
            cwd=tmp_path,
            env=env,
            timeout=None,
            max_output_bytes=1,
        )


async def test_a_hundred_megabytes_are_read_in_little_memory(run_command: Run) -> None:
    before = forget_peak_bytes()

    done = await run_command(
        "sh", "-c", "head -c 100000000 /dev/zero | tr '\\0' x; printf '\\377end'"
    )

    assert done.stdout.startswith("[… 98,951,428 bytes cut …]\nxxx")
    assert done.stdout.endswith("xxx\ufffdend")
    assert done.cut_bytes == 100_000_004 - MIB
    assert peak_bytes() - before < 24 * MIB


def forget_peak_bytes() -> int:
    """Begin to measure anew the most memory this process used."""
    Path("/proc/self/clear_refs").write_text("5")
    return peak_bytes()


def peak_bytes() -> int:
    for line in Path("/proc/self/status").read_text().splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    raise AssertionError("no VmHWM")


async def test_lines_come_while_the_command_runs(
    run_command: Run, naps: Naps, until: Until
) -> None:
    lines: list[bytes] = []
    running = asyncio.ensure_future(
        run_command("sh", "-c", f"echo one; echo two; {naps.command}", on_stdout_line=lines.append)
    )

    await until(lambda: lines == [b"one", b"two"])

    assert not running.done()
    running.cancel()
    await asyncio.wait([running])


async def test_what_a_reader_of_lines_raises_ends_the_command(run_command: Run, naps: Naps) -> None:
    def refuse(line: bytes) -> None:
        raise LookupError(line)

    with pytest.raises(LookupError, match="one"):
        await run_command("sh", "-c", f"echo one; {naps.command}", on_stdout_line=refuse)

    assert naps.running() == []


async def test_limits_hold_in_the_command(run_command: Run) -> None:
    limits = Limits(memory_bytes=300 * MIB, file_bytes=MIB)

    done = await run_command("cat", "/proc/self/limits", limits=limits)

    found = [line.split() for line in done.stdout.splitlines()]
    assert ["Max", "file", "size", str(MIB), str(MIB), "bytes"] in found
    assert ["Max", "address", "space", str(300 * MIB), str(300 * MIB), "bytes"] in found
