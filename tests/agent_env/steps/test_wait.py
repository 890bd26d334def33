from typing import ClassVar

import pytest

from agent_env._model import validated
from agent_env.errors import StepError
from agent_env.steps.wait import Wait, WaitParams
from agent_env.testing.step_contract import StepContract


class TestWait(StepContract):
    step = Wait
    good_params: ClassVar = {"seconds": "1.5"}
    bad_params: ClassVar = {"seconds": -1}


async def test_it_never_runs_in_a_segment() -> None:
    params = validated(WaitParams, {"seconds": 1})

    assert Wait().timeout(params) is None
    with pytest.raises(StepError, match="is the workflow's"):
        await Wait().run(params, None)  # type: ignore[arg-type] # it must not look at it
