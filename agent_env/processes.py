"""Runs a command on this machine so that nothing of it is left, whoever dies.

Every command runs under a small supervisor (``_supervisor``). However the command ends, by itself,
at its timeout or because the call was canceled, everything it started is killed before
``run_process`` returns.
"""

import uuid
from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta
from pathlib import Path

from agent_env._isolation import (
    HostView,
    Isolation,
    Limits,
    SandboxView,
    View,
    best_isolation,
    command_line,
    isolation_works,
    program,
    unprivileged_uid,
)
from agent_env._pipes import to_its_end
from agent_env._supervised import Supervised
from agent_env._supervisor import supervisor_script
from agent_env._tail import Lines, Tail
from agent_env.errors import SandboxUnavailableError
from agent_env.sandboxes.base import ExecResult

__all__ = [
    "HostView",
    "Isolation",
    "Limits",
    "SandboxView",
    "View",
    "best_isolation",
    "isolation_works",
    "program",
    "run_process",
    "unprivileged_uid",
]

_TRAILING_S = 0.1
"""How long output of a command that has ended may trail before its pipes count as left open."""


async def run_process(
    argv: Sequence[str],
    *,
    isolation: Isolation,
    cwd: Path,
    env: Mapping[str, str],
    timeout: timedelta | None,
    max_output_bytes: int,
    stdin: bytes | int | None = None,
    limits: Limits = Limits(),  # noqa: B008 (frozen)
    view: View = HostView(),  # noqa: B008 (frozen)
    on_stdout_line: Callable[[bytes], None] | None = None,
    hold: int | None = None,
    mark: str | None = None,
) -> ExecResult:
    """Run a command to its end, or to its timeout, and kill what is left of it.

    A command that can't be found exits with 127, one that can't be executed with 126, and a missing
    ``cwd`` is a result too: it says so on stderr.

    Args:
        argv: Program, looked up on the ``PATH`` of ``env``, and its arguments.
        isolation: How its processes are kept together.
        cwd: Where it runs, as the command sees it.
        env: Its whole environment.
        timeout: Longest it may run; None means no limit.
        max_output_bytes: What is kept of each stream: the tail.
        stdin: What it can read, or an open file that it reads; None is an empty input.
        limits: What it may use.
        view: What it sees of the machine.
        on_stdout_line: Called with each line of stdout, without its newline, as it arrives; a line
            over 8 MiB is cut. What it raises ends the command and this call.
        hold: An open file that stays open until nothing of the command lives, even if this process
            dies: lock it to learn of that.
        mark: ``NAME=value`` in the environment of a process that all others of it die with.

    Raises:
        SandboxUnavailableError: it could not be started this way.
        ValueError: ``argv`` is empty, or it or ``env`` holds a NUL byte.
    """
    if not argv:
        raise ValueError("there is no command to run")
    marks = [f"EPISODES_COMMAND={uuid.uuid4().hex}", *([mark] if mark else [])]
    marked = dict(one.split("=", 1) for one in marks)
    if isolation is Isolation.PROCESS_GROUP:
        env = {**env, **marked}
    out, err = Tail(max_output_bytes), Tail(max_output_bytes)
    lines = Lines(on_stdout_line) if on_stdout_line else None
    command = Supervised(
        isolation,
        sweep=marks[0],
        on_stdout=[out.feed, *([lines.feed] if lines else [])],
        on_stderr=[err.feed],
    )
    left_open = False
    try:
        try:
            script = supervisor_script(argv, isolation=isolation, cwd=cwd, env=env, limits=limits)
            line = command_line(isolation, view, holds=hold is not None)
            command.start(line, script, env=marked, stdin=stdin, hold=hold)
        except OSError as error:
            raise SandboxUnavailableError(
                f"a command could not be started under {isolation}: {error}"
            ) from error
        timed_out = not await command.ended(timeout)
        if not timed_out:
            left_open = not await command.closed_output(_TRAILING_S)
    finally:
        await to_its_end(command.stop())
    if lines:
        lines.end()
    if not command.has_started and not timed_out:
        raise SandboxUnavailableError(
            f"a command could not be started under {isolation}: {command.trouble}"
        )
    (stdout, out_cut), (stderr, err_cut) = out.text(), err.text()
    code = -9 if timed_out else command.exit_code
    return ExecResult(code, stdout, stderr, timed_out, out_cut + err_cut, left_open)
