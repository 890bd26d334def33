"""Plays one episode of a Gymnasium environment, in a process of its own on the episode's host."""

from collections.abc import Mapping, Sequence
from importlib.util import find_spec
from pathlib import Path
from typing import Annotated, Literal, cast

from pydantic import Field, JsonValue
from typing_extensions import override

from agent_env._model import EdgeModel
from agent_env.scores import checked_score
from agent_env.steps._functions import (
    FunctionCall,
    FunctionReference,
    Source,
    call_function,
    placed,
)
from agent_env.steps.base import Params, Scoring, Step, StepContext, StepResult

_PLAY = f"{Path(__file__).with_name('_rollout.py')}:play"


class Constant(EdgeModel):
    """A policy that always does the same."""

    constant: JsonValue
    """The action: a number, or a list where the action space has arrays."""


class GymnasiumParams(Params):
    """Which environment, and who plays it."""

    env_id: str = Field(min_length=1)
    """What Gymnasium calls it; ``module:id`` imports a module first that registers it."""
    env_kwargs: Mapping[str, JsonValue] = {}
    """Arguments of the environment's constructor."""
    seed: Annotated[int, Field(ge=0)] | None = None
    """Seeds environment, action space and the global generators of Python and NumPy: the same seed
    gives the same episode. None differs each time. ``"<seed>"`` takes the episode's own."""
    policy: Literal["random"] | Constant | FunctionReference = "random"
    """``random``, ``{"constant": action}``, or a function: called with each observation, it returns
    an action. A function whose name starts with ``make_`` is called once, with the environment and
    the seed, and returns such a function."""
    artifact_id: str | None = None
    """Artifact that has the policy or the environment; can be imported from."""
    pythonpath: tuple[str, ...] = ()
    """More folders to import from; relative ones start in the artifact."""
    max_steps: int = Field(default=10_000, ge=1)
    """Most steps; an episode that is longer ends truncated."""
    verifier_id: str | None = None
    """What other steps call the score; None means the step's id."""


class Gymnasium(Step[GymnasiumParams]):
    """The score is the return: the sum of the rewards, in whatever range the environment has."""

    type = "gymnasium"

    @override
    async def run(self, params: GymnasiumParams, ctx: StepContext) -> StepResult:
        reference, path = await placed(_reference(params), _source(params), ctx)
        args: dict[str, JsonValue] = {
            "env_id": params.env_id,
            "env_kwargs": dict(params.env_kwargs),
            "seed": params.seed,
            "max_steps": params.max_steps,
        }
        if isinstance(params.policy, Constant):
            args["constant"] = params.policy.constant
        call = FunctionCall(
            function=_PLAY,
            args=args,
            callables={"policy": reference} if reference else {},
            path=path,
            # The order of sets of strings is another one in each process otherwise.
            env={} if params.seed is None else {"PYTHONHASHSEED": "0"},
        )
        played = cast("dict[str, JsonValue]", await call_function(call, ctx))
        score = checked_score(played["return"])
        return StepResult({"verifier_id": params.verifier_id or ctx.step_id, **played}, score)

    @override
    def scoring(self, params: GymnasiumParams) -> Scoring:
        return Scoring(records=True, verifier_id=params.verifier_id)

    @override
    def artifacts(self, params: GymnasiumParams) -> Sequence[str]:
        return () if params.artifact_id is None else (params.artifact_id,)

    @override
    def problems(self, params: GymnasiumParams) -> Sequence[str]:
        found: list[str] = []
        if find_spec("gymnasium") is None:
            found.append(
                "the package gymnasium is not installed; pip install 'durable-episodes[gymnasium]'"
            )
        return [*found, *_source(params).problems(_reference(params))]


def _reference(params: GymnasiumParams) -> str:
    """The function that is the policy; empty when there is none."""
    is_function = isinstance(params.policy, str) and params.policy != "random"
    return cast(str, params.policy) if is_function else ""


def _source(params: GymnasiumParams) -> Source:
    return Source(params.artifact_id, params.pythonpath)


STEP = Gymnasium
