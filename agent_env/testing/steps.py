"""Steps that do as they are told, for tests that are about what is around a step.

``Steps({"good": step_of(succeeds("done")), "bad": step_of(fails(ValueError("no")))})``
"""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from datetime import timedelta

from pydantic import JsonValue

from agent_env.sandboxes import SandboxSpec
from agent_env.steps.base import DEFAULT_TIMEOUT, Params, Scoring, Step, StepContext, StepResult

Act = Callable[[StepContext], Awaitable[StepResult]]
"""What a fake step does. It may be any coroutine function with this signature."""


class FakeParams(Params):
    """Nothing: what a fake step does is in its type."""


def step_of(
    act: Act,
    *,
    scoring: Scoring | None = None,
    deploys: tuple[str, ...] = (),
    timeout: timedelta | None = DEFAULT_TIMEOUT,
) -> type[Step[FakeParams]]:
    """A step type that does one thing, and says of itself what it is told to say."""

    class FakeStep(Step[FakeParams]):
        """Does as it was told when its type was made."""

        type = "fake"

        async def run(self, params: FakeParams, ctx: StepContext) -> StepResult:
            return await act(ctx)

        def scoring(self, params: FakeParams) -> Scoring:
            return scoring or Scoring()

        def deploys(self, params: FakeParams) -> tuple[str, ...]:
            return deploys

        def timeout(self, params: FakeParams) -> timedelta | None:
            return timeout

    return FakeStep


def succeeds(output: JsonValue = None) -> Act:
    """Returns this output at once."""

    async def act(_: StepContext) -> StepResult:
        return StepResult(output)

    return act


def scores(score: object) -> Act:
    """Returns this score, whatever it is."""

    async def act(_: StepContext) -> StepResult:
        return StepResult(score=score)

    return act


def fails(error: BaseException) -> Act:
    """Raises this error."""

    async def act(_: StepContext) -> StepResult:
        raise error

    return act


def deploys(name: str, then: Act | None = None) -> Act:
    """Deploys a sandbox of type ``fake``, then does something else."""

    async def act(ctx: StepContext) -> StepResult:
        await ctx.deploy(SandboxSpec(type="fake", name=name))
        return await (then or succeeds())(ctx)

    return act


def waits(event: asyncio.Event) -> Act:
    """Reports progress, ``"waiting"``, and returns once the event is set."""

    async def act(ctx: StepContext) -> StepResult:
        ctx.progress("waiting")
        await event.wait()
        return StepResult()

    return act


def hangs() -> Act:
    """Reports progress, and never ends until it is canceled."""
    return waits(asyncio.Event())


def swallows(output: JsonValue = "swallowed") -> Act:
    """Reports progress, waits to be canceled, and then returns as if nothing had happened."""

    async def act(ctx: StepContext) -> StepResult:
        try:
            return await hangs()(ctx)
        except asyncio.CancelledError:
            return StepResult(output, score=1.0)

    return act


def blocks(release: threading.Event) -> Act:
    """Reports progress, and does not even hear that it is canceled until it is released.

    As a blocking call in a thread that the step insists on waiting for.
    """

    async def act(ctx: StepContext) -> StepResult:
        ctx.progress("blocked")
        call = asyncio.ensure_future(asyncio.to_thread(release.wait))
        while not call.done():
            try:
                await asyncio.shield(call)
            except asyncio.CancelledError:
                continue
        return StepResult()

    return act
