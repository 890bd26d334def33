"""Who plays the turns of a task: refused before the start when nobody would."""

from datetime import timedelta

import pytest
from pydantic import JsonValue

from agent_env.episode import EpisodeSpec
from agent_env.errors import InvalidSpecError
from agent_env.task import Task


def ask(step_id: str, **more: JsonValue) -> JsonValue:
    return {"id": step_id, "type": "prompt_agent", "prompt": f"do {step_id}", **more}


def task(*steps: JsonValue) -> Task:
    return Task.of({"id": "t", "steps": list(steps)})


def test_the_only_agent_is_the_trainers_unless_it_says_otherwise() -> None:
    spec = EpisodeSpec.from_task(task(ask("a"), ask("b")))

    assert spec.trainer_agents == ("default-agent",)
    assert [step.params["player"] for step in spec.task.steps] == ["outside", "outside"]


def test_of_several_agents_the_trainers_are_named() -> None:
    several = task(ask("a", agent_name="left"), ask("b", agent_name="right"))

    with pytest.raises(InvalidSpecError, match="2 agents, 'left', 'right'; name those"):
        EpisodeSpec.from_task(several)
    with pytest.raises(InvalidSpecError, match="nobody plays 'right'"):
        EpisodeSpec.from_task(several, trainer_agents=["left"])
    assert EpisodeSpec.from_task(several, trainer_agents=["left", "right"])


def test_an_agent_that_the_task_does_not_prompt_is_refused() -> None:
    with pytest.raises(InvalidSpecError, match="no agent 'x'; it prompts 'default-agent'"):
        EpisodeSpec.from_task(task(ask("a")), trainer_agents=["default-agent", "x"])
    with pytest.raises(InvalidSpecError, match="it prompts none"):
        EpisodeSpec.from_task(task({"id": "w", "type": "wait", "seconds": 1}), trainer_agents=["x"])


@pytest.mark.parametrize("player", ["model", "command"])
def test_a_player_that_is_not_there_yet_is_refused(player: str) -> None:
    with pytest.raises(InvalidSpecError, match=f"nobody plays as '{player}' yet"):
        EpisodeSpec.from_task(task(ask("a", player=player)))

    assert EpisodeSpec.from_task(task(ask("a", player=player)), trainer_agents=["default-agent"])


def test_every_problem_is_named_at_once() -> None:
    wrong = task(ask("a", agent_name="left"), ask("b", agent_name="right"))

    with pytest.raises(InvalidSpecError) as refused:
        EpisodeSpec.from_task(wrong, trainer_agents=["x"], turn_timeout=-1)

    assert len(refused.value.problems) == 4


def test_what_will_be_asked_is_known_before_the_start() -> None:
    spec = EpisodeSpec.from_task(
        task(ask("a", system_prompt="be <tone>"), ask("b", agent_name="other", player="outside")),
        seed={"tone": "brief"},
    )

    assert spec.prompts == (("do a", "be brief"), ("do b", None))


@pytest.mark.parametrize("timeout", [90, timedelta(seconds=90)])
def test_a_turns_time_is_the_trainers_to_set(timeout: float | timedelta) -> None:
    spec = EpisodeSpec.from_task(task(ask("a", timeout_seconds=5)), turn_timeout=timeout)

    assert spec.task.steps[0].timeout_seconds == 90
