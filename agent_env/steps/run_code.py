"""Runs a command in a sandbox; may score with its exit code, its output or a file it writes."""

import posixpath
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Annotated

from pydantic import AfterValidator, Field, model_validator
from typing_extensions import override

from agent_env.errors import InvalidScoreError, StepFailedError, VerifierError
from agent_env.sandboxes import ExecResult, Sandbox
from agent_env.scores import checked_score
from agent_env.steps._foreign_keys import without
from agent_env.steps._scoring_env import SCORING_ENV
from agent_env.steps._texts import tail
from agent_env.steps.base import DEFAULT_TIMEOUT, Params, Scoring, Step, StepContext, StepResult

_NO_SCRIPTS = "bring the script with load_artifact, and run it with command"
_FOREIGN = {
    "script_artifact_id": _NO_SCRIPTS,
    "script_artifact_version": _NO_SCRIPTS,
    "script_file": _NO_SCRIPTS,
    "entrypoint": _NO_SCRIPTS,
    "args": _NO_SCRIPTS,
    "result_id": "its result is known by its step's id; remove it",
    "env_id": "name the sandbox with sandbox_name",
    "agent_name": "name the sandbox with sandbox_name",
}
_MAX_STREAM_JSON = 28 * 1024
"""What the output keeps of each stream, in bytes as JSON, so that both fit."""
_MAX_REWARD_BYTES = 4096
_UNLIMITED = timedelta(days=30)
_SLACK = timedelta(minutes=1)
_REMOVAL_TIMEOUT = timedelta(seconds=30)


def _score_source(value: str) -> str:
    if value in ("exit_code", "stdout") or "/" in value:
        return value
    raise ValueError(
        f"{value!r} is none of 'exit_code', 'stdout' and a file's path with a '/', for example "
        "'./reward.txt'"
    )


class RunCodeParams(Params):
    """What is run, and where its score is."""

    command: str | None = Field(default=None, min_length=1)
    """Command line, run by ``sh -c``. This or ``argv``."""
    argv: tuple[str, ...] | None = Field(default=None, min_length=1)
    """Program and arguments, run as they are."""
    sandbox_name: str | None = None
    """Where it runs; may be left out when there is one sandbox."""
    cwd: str | None = None
    """Folder in the sandbox; None is its home."""
    env: Mapping[str, str] = {}
    """Added to the sandbox's environment. With ``score_from`` that has ``PYTHONNOUSERSITE``, unless
    this says otherwise."""
    stdin: str | None = None
    """What it can read."""
    shell_timeout_seconds: float | None = Field(default=None, gt=0, le=_UNLIMITED.total_seconds())
    """The command is killed then, in seconds, which is a result: a failed command. None leaves it
    to ``timeout_seconds``, at which the step fails and scores nothing."""
    allow_failure: bool = False
    """Whether the step succeeds whatever the exit code."""
    score_from: Annotated[str, AfterValidator(_score_source)] | None = None
    """``exit_code``: 1 for 0, else 0. ``stdout``: the number on its last line; no output is
    unscored. Else the path, relative to ``cwd``, of a file that the command writes a number to:
    what was there before is removed, and without the file the step is unscored."""
    verifier_id: str | None = None
    """What other steps call the score; None means the step's id."""
    max_output_bytes: int = Field(default=16 * 1024, ge=1, le=1024 * 1024)
    """What is read of each stream, in bytes: the tail. The step's output keeps 28 KiB of it."""

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, data: object) -> object:
        return without(data, _FOREIGN)

    @model_validator(mode="after")
    def _is_one_command(self) -> "RunCodeParams":
        if (self.command is None) == (self.argv is None):
            raise ValueError("give either command, a line for sh, or argv, a list")
        return self


class RunCode(Step[RunCodeParams]):
    """Fails when the command does, unless ``allow_failure`` or ``score_from: exit_code``."""

    type = "run_code"

    @override
    async def run(self, params: RunCodeParams, ctx: StepContext) -> StepResult:
        sandbox = await ctx.sandbox(params.sandbox_name)
        reward_file = _reward_file(params)
        if reward_file is not None:
            # Whoever worked here before may have left a reward of its own.
            await _remove(sandbox, reward_file)
        limit_s = params.shell_timeout_seconds
        done = await sandbox.exec(
            params.argv or ["sh", "-c", params.command or ""],
            stdin=None if params.stdin is None else params.stdin.encode(),
            env=params.env if params.score_from is None else {**SCORING_ENV, **params.env},
            cwd=params.cwd,
            timeout=_UNLIMITED if limit_s is None else timedelta(seconds=limit_s),
            max_output_bytes=params.max_output_bytes,
        )
        if done.exit_code != 0 and not params.allow_failure and params.score_from != "exit_code":
            raise StepFailedError(_failure(params, done))
        output = {"verifier_id": params.verifier_id or ctx.step_id} if params.score_from else {}
        score = await _score(params, done, sandbox, reward_file)
        return StepResult({**output, **_shown(done)}, score)

    @override
    def timeout(self, params: RunCodeParams) -> timedelta:
        """Leaves time for the command's own timeout."""
        own = timedelta(seconds=params.shell_timeout_seconds or 0)
        return max(DEFAULT_TIMEOUT, own + _SLACK)

    @override
    def scoring(self, params: RunCodeParams) -> Scoring:
        return Scoring(records=params.score_from is not None, verifier_id=params.verifier_id)

    @override
    def sandboxes(self, params: RunCodeParams) -> Sequence[str | None]:
        return (params.sandbox_name,)


def _reward_file(params: RunCodeParams) -> str | None:
    if params.score_from is None or "/" not in params.score_from:
        return None
    return posixpath.join(params.cwd or "", params.score_from)


async def _remove(sandbox: Sandbox, path: str) -> None:
    done = await sandbox.exec(["rm", "-rf", "--", path], timeout=_REMOVAL_TIMEOUT)
    if done.exit_code != 0:
        raise VerifierError(
            f"{path} was there before, and can't be removed: {done.stderr.strip()[-500:]}; have "
            "the reward written where nobody else writes"
        )


async def _score(
    params: RunCodeParams, done: ExecResult, sandbox: Sandbox, reward_file: str | None
) -> float | None:
    if params.score_from is None:
        return None
    if params.score_from == "exit_code":
        return float(done.exit_code == 0)
    if reward_file is None:
        lines = done.stdout.split("\n")
        return _number(next((line for line in reversed(lines) if line.strip()), None), "stdout")
    try:
        content = await sandbox.read_file(reward_file, max_bytes=_MAX_REWARD_BYTES)
    except FileNotFoundError:
        return None
    except (OSError, ValueError) as error:
        raise InvalidScoreError(f"the reward can't be read: {error}") from None
    return _number(content.decode(errors="replace"), reward_file)


def _number(text: str | None, where: str) -> float | None:
    """The score that a text is; None for no text."""
    if text is None:
        return None
    try:
        return checked_score(float(text))
    except ValueError:
        raise InvalidScoreError(
            f"a score is a number, not {text.strip()[:100]!r} in {where}; write one number"
        ) from None


def _failure(params: RunCodeParams, done: ExecResult) -> str:
    how = f"exit code {done.exit_code}"
    if done.timed_out:
        how = f"it took longer than {params.shell_timeout_seconds:g} s"
    said = (done.stderr.strip() or done.stdout.strip())[-2000:]
    return f"{how}{': ' if said else ''}{said}"


def _shown(done: ExecResult) -> dict[str, str | int | bool]:
    stdout, stdout_cut = tail(done.stdout, _MAX_STREAM_JSON)
    stderr, stderr_cut = tail(done.stderr, _MAX_STREAM_JSON)
    return {
        "exit_code": done.exit_code,
        "stdout": stdout,
        "stderr": stderr,
        "cut_bytes": done.cut_bytes + stdout_cut + stderr_cut,
        "timed_out": done.timed_out,
        "left_open": done.left_open,
    }


STEP = RunCode
