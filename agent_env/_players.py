"""Who plays the turns of a task, decided before it starts. Pure."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import timedelta

from agent_env._model import validated
from agent_env.errors import InvalidSpecError, Problem
from agent_env.seeds import seeded
from agent_env.steps.prompt_agent import PromptAgentParams
from agent_env.task import StepSpec, Task
from agent_env.turns import OUTSIDE, STEP_TYPE

_NO_SUCH_PLAYER = "nobody plays as {!r} yet; remove player and name the agent in trainer_agents"


def played(
    task: Task,
    seed: Mapping[str, str],
    trainer_agents: Sequence[str] | None,
    turn_timeout: float | timedelta | None,
) -> tuple[tuple[str, ...], Task]:
    """The agents that the trainer plays, and the task that says so at each of their turns.

    Args:
        task: What is to be played; its steps have been checked.
        seed: Values for the task's ``<key>`` places.
        trainer_agents: None means the only agent that the task prompts.
        turn_timeout: Longest each of their turns may be open, in seconds.

    Raises:
        InvalidSpecError: with every reason why the task can't be played so.
    """
    prompted = list(_prompted(task, seed))
    names = list(dict.fromkeys(params.agent_name for _, _, params in prompted))
    unplayed = [params.agent_name for _, _, params in prompted if params.player is None]
    if trainer_agents is None:
        agents = tuple(dict.fromkeys(unplayed))
        if len(agents) > 1:
            raise InvalidSpecError.of(
                "trainer_agents",
                f"the task prompts {len(agents)} agents, {', '.join(map(repr, agents))}; name "
                "those that the trainer plays",
            )
    else:
        agents = tuple(dict.fromkeys(trainer_agents))
    problems = list(_problems(prompted, names, agents))
    timeout_s = turn_timeout
    if isinstance(timeout_s, timedelta):
        timeout_s = timeout_s.total_seconds()
    if timeout_s is not None and not 0 < timeout_s < float("inf"):
        problems.append(Problem("turn_timeout", f"is a number of seconds over 0, not {timeout_s}"))
    if problems:
        raise InvalidSpecError(problems)
    if not prompted:
        return agents, task
    outside = {step.id for _, step, params in prompted if params.agent_name in agents}
    outside |= {step.id for _, step, params in prompted if params.player == OUTSIDE}
    steps = [_outside(step, timeout_s) if step.id in outside else step for step in task.steps]
    return agents, task.model_copy(update={"steps": tuple(steps)})


def prompts(task: Task, seed: Mapping[str, str]) -> tuple[tuple[str, str | None], ...]:
    """Prompt and system prompt of each turn that a trainer plays, in order."""
    return tuple(
        (params.prompt, params.system_prompt)
        for _, _, params in _prompted(task, seed)
        if params.player == OUTSIDE
    )


def _prompted(
    task: Task, seed: Mapping[str, str]
) -> Iterator[tuple[str, StepSpec, PromptAgentParams]]:
    for number, step in enumerate(task.steps):
        if step.type == STEP_TYPE:
            params = validated(PromptAgentParams, seeded(step, seed).params)
            yield f"steps[{number}] {step.id!r}", step, params


def _problems(
    prompted: Sequence[tuple[str, StepSpec, PromptAgentParams]],
    names: Sequence[str],
    agents: Sequence[str],
) -> Iterator[Problem]:
    for agent in agents:
        if agent not in names:
            known = ", ".join(map(repr, names)) or "none"
            yield Problem(
                "trainer_agents", f"the task prompts no agent {agent!r}; it prompts {known}"
            )
    for where, _, params in prompted:
        if params.player in ("model", "command") and params.agent_name not in agents:
            yield Problem(f"{where}: player", _NO_SUCH_PLAYER.format(params.player))
        elif params.player is None and params.agent_name not in agents:
            yield Problem(
                f"{where}: agent_name",
                f"nobody plays {params.agent_name!r}; start the task from a training loop that "
                "names it in trainer_agents",
            )


def _outside(step: StepSpec, timeout_s: float | None) -> StepSpec:
    fields = step.model_dump()
    fields["player"] = OUTSIDE
    if timeout_s is not None:
        fields["timeout_seconds"] = timeout_s
    return StepSpec.model_validate(fields)
