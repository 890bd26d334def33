from typing import ClassVar

import pytest

from agent_env.errors import InvalidSpecError
from agent_env.status import StepStatus
from agent_env.steps.gymnasium import Gymnasium
from agent_env.testing.step_contract import StepContract
from tests.agent_env.steps.real_host import RealHost

POLICY = """
def right(observation): return 1
def seventh(observation): return 7
def make_alternating(env, seed):
    turn = iter(range(10**9))
    return lambda observation: (next(turn) + seed) % env.action_space.n
def make_nothing(env, seed): return None
def fails(observation): raise LookupError("lost")
"""
SLOW = """
import time

import gymnasium

class Slow(gymnasium.Env):
    action_space = gymnasium.spaces.Discrete(2)
    observation_space = gymnasium.spaces.Discrete(2)
    def __init__(self, reward=0.25): self.reward = reward
    def reset(self, *, seed=None, options=None): return 0, {}
    def step(self, action): time.sleep(0.3); return 0, self.reward, False, False, {}

gymnasium.register("Slow-v0", Slow)
"""


class TestGymnasium(StepContract):
    step = Gymnasium
    good_params: ClassVar = {"env_id": "CartPole-v1", "seed": "7", "policy": {"constant": 1}}
    bad_params: ClassVar = {"env_id": "CartPole-v1", "policy": "always right"}


async def test_the_same_seed_gives_the_same_return_every_time(host: RealHost) -> None:
    step = {"type": "gymnasium", "env_id": "CartPole-v1", "seed": "<seed>"}

    reports = [(await host.play({"id": "it", **step}, seed={"seed": seed}))["it"] for seed in "334"]

    first, again, other = reports
    assert first.output == again.output
    assert first.output != other.output
    assert (first.score or 0) > 5


async def test_the_score_is_the_return_and_the_output_says_how_it_ended(host: RealHost) -> None:
    report = await host.play_one(
        type="gymnasium", env_id="CartPole-v1", seed=1, policy={"constant": 1}
    )

    assert isinstance(report.output, dict)
    assert 8 <= (report.score or 0) <= 11
    assert report.output == {
        "verifier_id": "it",
        "return": report.score,
        "length": report.score,
        "terminated": True,
        "truncated": False,
    }


async def test_max_steps_truncates(host: RealHost) -> None:
    report = await host.play_one(type="gymnasium", env_id="CartPole-v1", seed=1, max_steps=3)

    assert isinstance(report.output, dict)
    assert (report.output["length"], report.output["truncated"]) == (3, True)
    assert report.output["terminated"] is False


@pytest.mark.parametrize("policy", ["policy:right", "policy.py:right", "policy:make_alternating"])
async def test_a_policy_is_a_function_or_made_by_one(host: RealHost, policy: str) -> None:
    host.artifact("policy", {"policy.py": POLICY})

    report = await host.play_one(
        type="gymnasium", env_id="CartPole-v1", seed=2, artifact_id="policy", policy=policy
    )

    assert (report.status, report.error) == (StepStatus.COMPLETED, None)
    assert (report.score or 0) > 11 if "make" in policy else (report.score or 0) < 12


@pytest.mark.parametrize(
    ("policy", "kind", "message"),
    [
        ("policy:seventh", "StepFailed", "action 7 is not in Discrete(2)"),
        ({"constant": None}, "StepFailed", "action None is not in Discrete(2)"),
        ({"constant": [1]}, "StepFailed", "action [1] is not in Discrete(2)"),
        ("policy:make_nothing", "StepFailed", "the policy factory returned NoneType"),
        ("policy:fails", "LookupError", "lost (policy.py:8, in fails)"),
        ("policy:right_", "StepFailed", "did you mean 'right'?"),
    ],
)
async def test_a_bad_policy_is_named(
    host: RealHost, policy: str | dict[str, object], kind: str, message: str
) -> None:
    host.artifact("policy", {"policy.py": POLICY})
    step = {"id": "it", "type": "gymnasium", "env_id": "CartPole-v1", "artifact_id": "policy"}

    report = (await host.play({**step, "policy": policy}))["it"]  # type: ignore[dict-item] # JSON by hand

    assert report.error_type == kind
    assert message in str(report.error)


async def test_arrays_of_actions_are_made_to_fit_the_space(host: RealHost) -> None:
    fits = await host.play_one(
        type="gymnasium", env_id="Pendulum-v1", seed=1, max_steps=5, policy={"constant": [0.5]}
    )
    outside = await host.play_one(
        type="gymnasium", env_id="Pendulum-v1", seed=1, policy={"constant": [2.5]}
    )

    assert (fits.error, (fits.score or 0) < 0) == (None, True)
    assert str(outside.error).startswith("action [2.5] is not in Box(-2.0, 2.0")


@pytest.mark.parametrize(
    ("env_id", "message"),
    [
        ("CartPol-v1", "there is no environment 'CartPol-v1'; did you mean 'CartPole-v1'"),
        ("CartPole-v9", "did you mean 'CartPole-v"),
        ("xyz", "there is no environment 'xyz'; register it in a module and write module:id"),
    ],
)
async def test_an_unknown_environment_is_refused_with_near_ids(
    host: RealHost, env_id: str, message: str
) -> None:
    report = await host.play_one(type="gymnasium", env_id=env_id)

    assert report.error_type == "StepFailed"
    assert message in str(report.error)


async def test_an_environment_from_an_artifact_says_how_far_it_is(host: RealHost) -> None:
    host.artifact("envs", {"slow.py": SLOW})

    report = await host.play_one(
        type="gymnasium",
        env_id="slow:Slow-v0",
        env_kwargs={"reward": 0.5},
        artifact_id="envs",
        max_steps=4,
    )

    details = [word.detail for word in host.words if word.detail]
    assert report.score == 2.0
    assert details[0] == {"it": {"steps": 2, "return": 1.0}}


async def test_a_reward_that_is_not_finite_is_an_invalid_score(host: RealHost) -> None:
    host.artifact("envs", {"slow.py": SLOW.replace("self.reward, False", "float('nan'), False")})

    report = await host.play_one(
        type="gymnasium", env_id="slow:Slow-v0", artifact_id="envs", max_steps=1
    )

    assert report.error_type == "InvalidScore"


async def test_a_missing_package_is_said_before_the_run(
    host: RealHost, monkeypatch: pytest.MonkeyPatch
) -> None:
    def missing(name: str) -> None:
        assert name == "gymnasium"

    monkeypatch.setattr("agent_env.steps.gymnasium.find_spec", missing)

    with pytest.raises(InvalidSpecError, match=r"pip install 'durable-episodes\[gymnasium\]'"):
        await host.play_one(type="gymnasium", env_id="CartPole-v1")
