"""The contract of step types passes a good one, and fails one for each thing that is wrong."""

from typing import Any, ClassVar

import pytest
from pydantic import ConfigDict

from agent_env.steps import Params, Scoring, Step, StepContext, StepResult
from agent_env.testing.step_contract import StepContract


class GoodParams(Params):
    count: int
    """How many."""
    label: str = ""
    """What to call it."""


class GoodStep(Step[GoodParams]):
    """Does nothing well."""

    type = "test_step_contract"

    async def run(self, params: GoodParams, ctx: StepContext) -> StepResult:
        return StepResult()


STEP = GoodStep


class TestGoodStep(StepContract):
    step = GoodStep
    good_params: ClassVar = {"count": 1}
    bad_params: ClassVar = {"count": "many"}


class BadParams(GoodParams):
    model_config = ConfigDict(extra="ignore")

    timeout_seconds: float = 1.0
    """Hides the field that every step has."""
    count: int = 0
    other: int = 0


class BadStep(Step[BadParams]):
    type = "bad"

    async def run(self, params: BadParams, ctx: StepContext) -> StepResult:
        return StepResult()

    def scoring(self, params: BadParams) -> Scoring:
        nothing: Any = None
        return nothing


class BadContract(StepContract):
    step = BadStep
    good_params: ClassVar = {"count": 1}
    bad_params: ClassVar = {"count": 2}


@pytest.mark.parametrize("name", [name for name in dir(StepContract) if name.startswith("test_")])
def test_a_step_that_does_all_wrong_fails_every_test_but_one(name: str) -> None:
    run = getattr(BadContract(), name)

    if name == "test_good_parameters_are_taken":
        run()
    else:
        with pytest.raises((AssertionError, pytest.fail.Exception)):
            run()


def test_each_undocumented_parameter_is_named() -> None:
    with pytest.raises(AssertionError, match=r"BadParams\.count.*BadParams\.other"):
        BadContract().test_every_parameter_is_documented()
