"""The supervisor of a command: a few lines for ``sh``, which run it and report how it ended."""

import os
import resource
import shlex
from collections.abc import Mapping, Sequence
from pathlib import Path

from agent_env._isolation import Isolation, Limits, program


def supervisor_script(
    argv: Sequence[str],
    *,
    isolation: Isolation,
    cwd: Path,
    env: Mapping[str, str],
    limits: Limits,
) -> bytes:
    """What the supervisor does, for ``sh``: run the command, report, and wait to be killed.

    It stays when the command has ended, so that what the command left behind can be seen before it
    is killed. The environment is applied last: it must not reach the supervisor's own programs.

    Raises:
        ValueError: an argument or a variable holds a NUL byte, or a variable has no proper name.
    """
    words = [program("env"), "-i"]
    for name, value in env.items():
        if not name or "=" in name:
            raise ValueError(f"not a name of an environment variable: {name!r}")
        words.append(f"{name}={value}")
    # env takes a program whose name has an equals sign for one more variable.
    words += [program("sh"), "-c", 'exec "$0" "$@"'] if "=" in argv[0] else []
    words += argv
    if any("\0" in word for word in words):
        raise ValueError("an argument or an environment variable holds a NUL byte")
    script = _SCRIPT.format(
        watch=_WATCH if isolation is Isolation.PROCESS_GROUP else "",
        pid=_READ_PID if isolation is Isolation.UNSHARE else "pid=",
        output=_FIND_OPEN if isolation is Isolation.UNSHARE else "open= ; exec 4>&- 5>&-",
        cwd=shlex.quote(str(cwd)),
        command=f"{_limited(isolation, limits)} {shlex.join(words)}",
    )
    return os.fsencode(script)


_SCRIPT = """\
{watch}
{pid}
printf 'started %s\\n' "$pid" >&6
cd {cwd} 2>&5 && (
  echo 1000 2>/dev/null >/proc/self/oom_score_adj
  {command} >&4 2>&5 3<&- 4>&- 5>&- 6>&- 7>&- 8<&- 9>&-
)
status=$?
{output}
printf 'status %s %s\\n' "$status" "$open" >&6
read -r _ <&8
"""
# The pid that the machine knows pid 1 of the new namespace by.
_READ_PID = "read -r pid _ </proc/self/fd/7/self/stat"
# unshare itself holds the pipes to its end, so their own end tells nothing.
_FIND_OPEN = """\
find_open() {
  open=closed
  for file in /proc/[0-9]*/fd/*; do
    case $file in /proc/1/*) continue ;; esac
    if [ "$file" -ef /proc/1/fd/4 ] || [ "$file" -ef /proc/1/fd/5 ]; then open=open; fi
  done
}
find_open
if [ "$open" = open ]; then
  sleep 0.1 4>&- 5>&-
  find_open
fi"""
# Without a namespace, nothing but this ends the group when the worker is killed.
_WATCH = "{ read -r _ <&8; kill -KILL 0; } </dev/null >/dev/null 2>&1 4>&- 5>&- 6>&- &"


# How a shell names the limit of processes; the others are named alike in all. The shell runs
# anyway: a program of its own for this would cost each command a millisecond.
_NPROC = {"dash": "p", "bash": "u"}


def _limited(isolation: Isolation, limits: Limits) -> str:
    """What precedes the command, to hold it to its limits."""
    # A process group's limit would count every process of the worker's user.
    processes = None if isolation is Isolation.PROCESS_GROUP else limits.processes
    wanted = {
        "as": (resource.RLIMIT_AS, limits.memory_bytes),
        "fsize": (resource.RLIMIT_FSIZE, limits.file_bytes),
        "nproc": (resource.RLIMIT_NPROC, processes),
    }
    most = {name: _most(kind, value) for name, (kind, value) in wanted.items() if value is not None}
    if not most:
        return "exec"
    shell = Path(program("sh")).resolve().name
    if shell in _NPROC:
        options = {"as": ("v", 1024), "fsize": ("f", 512), "nproc": (_NPROC[shell], 1)}
        limited = [f"ulimit -{options[n][0]} {value // options[n][1]}" for n, value in most.items()]
        return " && ".join([*limited, "exec"])
    return shlex.join(["exec", program("prlimit"), *(f"--{n}={v}" for n, v in most.items())])


def _most(kind: int, value: int) -> int:
    most = resource.getrlimit(kind)[1]
    return value if most == -1 else min(value, most)
