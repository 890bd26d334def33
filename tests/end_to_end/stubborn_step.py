"""A step type, as another package would bring it, that does not stop when it is canceled."""

import asyncio
from pathlib import Path

from typing_extensions import override

from agent_env.steps.base import Params, Step, StepContext, StepResult

_ENTRY_POINT = "[durable_episodes.steps]\nstubborn = tests.end_to_end.stubborn_step:Stubborn\n"


class StubbornParams(Params):
    """What it does, and what it does once it is canceled."""

    command: tuple[str, ...]
    """Run in the sandbox first."""
    then: tuple[str, ...] = ()
    """Run in the sandbox when that is canceled; then the step returns as if nothing had been."""


class Stubborn(Step[StubbornParams]):
    """Swallows the cancellation, and scores 1."""

    type = "stubborn"

    @override
    async def run(self, params: StubbornParams, ctx: StepContext) -> StepResult:
        sandbox = await ctx.sandbox(None)
        try:
            await sandbox.exec(params.command)
        except asyncio.CancelledError:
            if params.then:
                await sandbox.exec(params.then)
        return StepResult("done all the same", 1.0)


def install(folder: Path) -> None:
    """What an installer would write, for processes that have this folder on their path."""
    metadata = folder / "stubborn-1.0.dist-info"
    metadata.mkdir()
    (metadata / "METADATA").write_text("Metadata-Version: 2.1\nName: stubborn\nVersion: 1.0\n")
    (metadata / "entry_points.txt").write_text(_ENTRY_POINT)
