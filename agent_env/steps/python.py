"""Calls a Python function on the episode's host, in a process of its own.

The function is trusted: it sees the machine as the worker does. It can't harm the worker, though:
what it does to its own process, and what it starts, ends with the step.
"""

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import cast

from pydantic import JsonValue
from typing_extensions import override

from agent_env.errors import InvalidScoreError, StepFailedError
from agent_env.scores import checked_score
from agent_env.steps._functions import (
    FunctionCall,
    FunctionReference,
    ResultNotJsonError,
    Source,
    call_function,
    placed,
)
from agent_env.steps.base import Params, Scoring, Step, StepContext, StepResult


class PythonParams(Params):
    """Which function, and what it is called with."""

    function: FunctionReference
    """``package.module:function`` or ``path/to/file.py:function``; may be ``async``. Has all that
    the worker can import; relative paths start in the artifact."""
    args: Mapping[str, JsonValue] = {}
    """Keyword arguments. A parameter named ``progress`` gets a callable that shows JSON data as the
    step's progress."""
    artifact_id: str | None = None
    """Artifact that can be imported from."""
    pythonpath: tuple[str, ...] = ()
    """More folders to import from; relative ones start in the artifact."""
    cwd: str | None = None
    """Whole path of the folder that it runs in; None is an empty one that is removed afterwards."""
    score: bool = False
    """Whether what it returns is the score; None is unscored."""
    verifier_id: str | None = None
    """What other steps call the score; None means the step's id."""


class Python(Step[PythonParams]):
    """Its output is what the function returns, as JSON. Any finite score is possible."""

    type = "python"

    @override
    async def run(self, params: PythonParams, ctx: StepContext) -> StepResult:
        function, path = await placed(params.function, _source(params), ctx)
        call = FunctionCall(
            function=function,
            args=params.args,
            path=path,
            cwd=None if params.cwd is None else Path(params.cwd),
        )
        try:
            value = await call_function(call, ctx)
        except ResultNotJsonError as error:
            kind = InvalidScoreError if params.score else StepFailedError
            raise kind(str(error)) from None
        if not params.score:
            return StepResult(cast(JsonValue, value))
        score = None if value is None else checked_score(value)
        return StepResult({"verifier_id": params.verifier_id or ctx.step_id}, score)

    @override
    def scoring(self, params: PythonParams) -> Scoring:
        return Scoring(records=params.score, verifier_id=params.verifier_id)

    @override
    def artifacts(self, params: PythonParams) -> Sequence[str]:
        return () if params.artifact_id is None else (params.artifact_id,)

    @override
    def problems(self, params: PythonParams) -> Sequence[str]:
        found = _source(params).problems(params.function)
        if params.cwd is not None and not Path(params.cwd).is_absolute():
            found.append(f"cwd: {params.cwd!r} is relative; write the whole path")
        return found


def _source(params: PythonParams) -> Source:
    return Source(params.artifact_id, params.pythonpath)


STEP = Python
