"""Waits for a while. The workflow does it: it survives every crash and holds no worker."""

from datetime import timedelta

from pydantic import Field
from typing_extensions import override

from agent_env.errors import StepError
from agent_env.seeds import MAX_WAIT_S
from agent_env.steps.base import Params, Step, StepContext, StepResult


class WaitParams(Params):
    """How long."""

    seconds: float = Field(ge=0, le=MAX_WAIT_S)
    """Time to wait, in seconds."""


class Wait(Step[WaitParams]):
    """A timer. Waiting for a point in time needs a clock that the task does not have."""

    type = "wait"

    @override
    async def run(self, params: WaitParams, ctx: StepContext) -> StepResult:
        """Never called by an episode.

        Raises:
            StepError: always.
        """
        raise StepError("a wait is the workflow's; it can't run in a segment")

    @override
    def timeout(self, params: WaitParams) -> timedelta | None:
        return None


STEP = Wait
