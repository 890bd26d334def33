"""Runs a Python function in a process of its own on this host, and brings its result back.

Whatever the function does, block, exit, crash or start processes, the worker lives and nothing of
it is left when the call returns or is canceled.
"""

import asyncio
import json
import os
import re
import signal
import sys
from collections.abc import Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from datetime import timedelta
from functools import lru_cache
from pathlib import Path
from typing import Annotated, NamedTuple

from pydantic import AfterValidator, JsonValue, ValidationError

from agent_env._model import WireModel
from agent_env._pipes import to_its_end
from agent_env.errors import ForeignError, OutputTooLargeError, StepFailedError, StepTimedOutError
from agent_env.processes import best_isolation, run_process
from agent_env.sandboxes import ExecResult
from agent_env.steps.base import MAX_OUTPUT_BYTES, StepContext

_CHILD = Path(__file__).with_name("_child.py")
_WORKER_CODE = Path(__file__).parents[1] / "_app"
"""What only workers import; a function may need other packages of those names."""
_MAX_RESULT_BYTES = 16 * MAX_OUTPUT_BYTES
"""Largest result that is read at all. ASCII JSON can be several times as large as UTF-8."""
_MAX_LOG_BYTES = 4096
_best_isolation = lru_cache(best_isolation)


def _checked_reference(reference: str) -> str:
    if not re.fullmatch(r"[^:]+:[^\W\d]\w*(\.[^\W\d]\w*)*", reference):
        raise ValueError(
            f"{reference!r} names no function; write 'package.module:function' or "
            "'file.py:function'"
        )
    return reference


FunctionReference = Annotated[str, AfterValidator(_checked_reference)]
"""``package.module:function`` or ``path/to/file.py:function``."""


@dataclass(frozen=True)
class Source:
    """Where functions are found, beside everything that the worker can import."""

    artifact_id: str | None = None
    """An artifact of the task. Its folder is importable, and relative paths start there."""
    pythonpath: Sequence[str] = ()
    """More folders to import from."""

    def problems(self, reference: str) -> list[str]:
        """What can be known to be wrong before a run."""
        file = reference.rpartition(":")[0]
        paths = [*self.pythonpath, *([file] if file.endswith(".py") else [])]
        if self.artifact_id is not None:
            return []
        return [
            f"{path!r} is relative; name the artifact that has it with artifact_id, or write the "
            "whole path"
            for path in paths
            if not Path(path).is_absolute()
        ]


@dataclass(frozen=True)
class FunctionCall:
    """One call. A parameter ``progress`` of the function gets a callable that takes JSON data."""

    function: str
    """``package.module:name`` or ``/path/to/file.py:name``; may be ``async``."""
    args: Mapping[str, JsonValue] = field(default_factory=dict[str, JsonValue])
    """Keyword arguments."""
    callables: Mapping[str, str] = field(default_factory=dict[str, str])
    """More keyword arguments, each a function to be found by its reference."""
    path: Sequence[Path] = ()
    """Folders to import from first."""
    cwd: Path | None = None
    """Where it runs; None is the attempt's own folder."""
    env: Mapping[str, str] = field(default_factory=dict[str, str])
    """Added to the worker's environment."""


async def call_function(
    call: FunctionCall,
    ctx: StepContext,
    *,
    timeout: timedelta | None = None,
) -> object:
    """What the function returns, as JSON data; NaN and infinities pass.

    Raises:
        ForeignError: the function raised; under the name of that.
        ResultNotJsonError: it returned what JSON can't hold.
        OutputTooLargeError: it returned more than a step may.
        StepTimedOutError: it took longer than ``timeout``.
        StepFailedError: its process died.
    """
    result = ctx.work_dir / "result.json"
    result.unlink(missing_ok=True)
    order = {
        "function": call.function,
        "args": dict(call.args),
        "callables": dict(call.callables),
        "path": [*map(str, call.path), *_worker_path()],
        "result": str(result),
    }

    def progressed(line: bytes) -> None:
        with suppress(ValueError, RecursionError):
            ctx.progress(json.loads(line))

    done = await run_process(
        # Without -P the child's own folder would hide packages that steps are named after.
        [sys.executable, "-P", "-X", "faulthandler", str(_CHILD)],
        isolation=ctx.isolation or await asyncio.to_thread(_best_isolation),
        cwd=call.cwd or ctx.work_dir,
        env={**os.environ, **call.env},
        stdin=json.dumps(order).encode(),
        timeout=timeout,
        max_output_bytes=_MAX_LOG_BYTES,
        on_stdout_line=progressed,
    )
    if done.timed_out and timeout is not None:
        raise StepTimedOutError(f"took longer than {timeout.total_seconds():g} s")
    return _value(await asyncio.to_thread(_read, result, done))


class Placed(NamedTuple):
    """A function's reference and the folders to import from, as they are on this host."""

    reference: str
    path: list[Path]


async def placed(reference: str, source: Source, ctx: StepContext) -> Placed:
    """Bring a function's source to this host.

    Raises:
        StepFailedError: the artifact is not there.
    """
    root = None if source.artifact_id is None else await extracted(ctx, source.artifact_id)
    path = [(root or Path()) / folder for folder in source.pythonpath]
    if root is not None:
        path.insert(0, root)
    place, _, name = reference.rpartition(":")
    if not place.endswith(".py"):
        return Placed(reference, path)
    file = (root or Path()) / place
    return Placed(f"{file}:{name}", [file.parent, *path])


async def extracted(ctx: StepContext, artifact_id: str) -> Path:
    """A copy of a task's artifact in the attempt's folder.

    Raises:
        StepFailedError: the task has no such artifact, or this host's store does not.
    """
    if artifact_id not in ctx.artifacts:
        raise StepFailedError(
            f"there is no artifact {artifact_id!r}; the task has {sorted(ctx.artifacts) or 'none'}"
        )
    folder = ctx.work_dir / "artifact"
    try:
        # A thread that went on after a cancel would write into a folder that is being removed.
        await to_its_end(asyncio.to_thread(ctx.store.extract, ctx.artifacts[artifact_id], folder))
    except FileNotFoundError as error:
        raise StepFailedError(str(error)) from None
    return folder


class ResultNotJsonError(Exception):
    """A function returned what JSON can't hold. What that means is the step's to say."""


def _worker_path() -> list[str]:
    paths = dict.fromkeys(os.path.abspath(path) for path in sys.path)
    return [path for path in paths if path != str(_WORKER_CODE)]


class _Raised(WireModel):
    kind: str
    message: str


class _Answer(WireModel):
    """What the child wrote."""

    raised: _Raised | None = None
    unfit: str | None = None
    value: object = None


def _read(result: Path, done: ExecResult) -> _Answer:
    try:
        size = result.stat().st_size
    except FileNotFoundError:
        raise StepFailedError(_death(done)) from None
    if size > _MAX_RESULT_BYTES:
        raise OutputTooLargeError(
            f"its output is {size:,} bytes as JSON, over the limit of {MAX_OUTPUT_BYTES:,}; "
            "put it into the artifact store or a sandbox's file, and return where it is"
        )
    try:
        return _Answer.model_validate(json.loads(result.read_bytes()))
    except (ValidationError, ValueError, RecursionError) as error:
        raise ResultNotJsonError(f"its result can't be read: {error}") from None


def _value(answer: _Answer) -> object:
    if answer.raised is not None:
        raise ForeignError(answer.raised.message, kind=answer.raised.kind)
    if answer.unfit is not None:
        raise ResultNotJsonError(
            f"its output is not JSON: {answer.unfit}; return numbers, strings, booleans, None, "
            "lists and dicts"
        )
    return answer.value


def _death(done: ExecResult) -> str:
    how = f"exited with {done.exit_code}"
    if done.exit_code < 0:
        with suppress(ValueError):
            how = f"was killed by {signal.Signals(-done.exit_code).name}"
    said = done.stderr.strip()[-2000:]
    return f"its process {how} before the function returned{': ' if said else ''}{said}"
