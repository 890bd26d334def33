"""Copies an artifact of the task into a sandbox.

What a step needs and an agent must not have seen or changed, a verifier's script for example, is
loaded after the agent has ended, into a folder that did not exist before, or with ``replace``.
"""

from collections.abc import Sequence
from datetime import timedelta

from pydantic import Field, model_validator
from typing_extensions import override

from agent_env.errors import StepFailedError
from agent_env.sandboxes import Sandbox
from agent_env.steps._foreign_keys import without
from agent_env.steps._functions import extracted
from agent_env.steps.base import Params, Step, StepContext, StepResult

_REMOVE = 'chmod -R u+rwX -- "$1" 2>/dev/null; rm -rf -- "$1"'
"""What was there may be of somebody who wants it to stay."""
_REMOVAL_TIMEOUT = timedelta(minutes=1)
_PUT_IT_INTO_ONE = "put the files into a folder under artifacts/ and name that with artifact_id"
_NO_AGENTS = "name the sandbox with sandbox_name"
_FOREIGN = {
    "artifact_version": "a task's artifacts are fixed by their content when it starts; remove it",
    "artifacts": "write one load_artifact step for each, with artifact_id",
    "urls": _PUT_IT_INTO_ONE,
    "artifact_from_step_id": _PUT_IT_INTO_ONE,
    "collected_artifacts_step_id": _PUT_IT_INTO_ONE,
    "env_id": _NO_AGENTS,
    "env_step_id": _NO_AGENTS,
    "agent_name": _NO_AGENTS,
    "container_name": _NO_AGENTS,
    "snapshot_after_load": "remove it",
}


class LoadArtifactParams(Params):
    """What goes where."""

    artifact_id: str = Field(min_length=1)
    """The artifact's name in the task."""
    sandbox_name: str | None = None
    """Where it goes; may be left out when there is one sandbox."""
    destination_path: str = Field(default="/loaded", min_length=1)
    """The folder that gets its content. Files of the same names are replaced, others stay."""
    replace: bool = False
    """Whether what is at the destination is removed first, whatever it is."""

    @model_validator(mode="before")
    @classmethod
    def _supported(cls, data: object) -> object:
        return without(data, _FOREIGN)


class LoadArtifact(Step[LoadArtifactParams]):
    """Ends once all files are there."""

    type = "load_artifact"

    @override
    async def run(self, params: LoadArtifactParams, ctx: StepContext) -> StepResult:
        sandbox = await ctx.sandbox(params.sandbox_name)
        folder = await extracted(ctx, params.artifact_id)
        if params.replace:
            await _remove(sandbox, params.destination_path)
        await sandbox.upload(folder, params.destination_path)
        return StepResult({"destination_path": params.destination_path})

    @override
    def artifacts(self, params: LoadArtifactParams) -> Sequence[str]:
        return (params.artifact_id,)

    @override
    def sandboxes(self, params: LoadArtifactParams) -> Sequence[str | None]:
        return (params.sandbox_name,)


async def _remove(sandbox: Sandbox, path: str) -> None:
    done = await sandbox.exec(["sh", "-c", _REMOVE, "sh", path], timeout=_REMOVAL_TIMEOUT)
    if done.exit_code != 0:
        raise StepFailedError(
            f"{path} was there before, and can't be removed: {done.stderr.strip()[-500:]}; load it "
            "to where nobody else writes"
        )


STEP = LoadArtifact
