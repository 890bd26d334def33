"""What can be known of a task before it runs, found by asking each of its steps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from agent_env._model import validated
from agent_env.errors import (
    InvalidSpecError,
    Problem,
    UnknownTypeError,
    error_text,
    error_type,
    unknown_name,
)
from agent_env.seeds import seeded
from agent_env.steps.base import Scoring, Step
from agent_env.task import MAX_TASK_BYTES, StepSpec, Task


class _Facts(NamedTuple):
    """What a step says of itself."""

    where: str
    scoring: Scoring
    artifacts: tuple[str, ...]
    deploys: tuple[str, ...]
    sandboxes: tuple[str | None, ...]
    may_use_sandbox: bool


def checked(task: Task, seed: Mapping[str, str], open_step: Callable[[str], Step[Any]]) -> Task:
    """The task with its reward filled in.

    Raises:
        InvalidSpecError: with every problem.
    """
    problems = list(_size_problems(task))
    known: dict[str, _Facts] = {}
    for number, spec in enumerate(task.steps):
        where = f"steps[{number}] {spec.id!r}"
        try:
            facts, own = _asked(spec, seed, open_step, where)
        except InvalidSpecError as error:
            problems += error.problems
        except UnknownTypeError as error:
            problems.append(Problem(f"{where}: type", error_text(error)))
        except Exception as error:  # the step's own bug, possibly a plugin's
            what = f"type {spec.type!r} can't check it: {error_type(error)}: {error_text(error)}"
            problems.append(Problem(where, what))
        else:
            known[spec.id] = facts
            problems += own
    problems += _missing_artifacts(task, known)
    problems += _missing_steps(task, known)
    problems += _reward_problems(task, known)
    if problems:
        raise InvalidSpecError(problems)
    candidates = _candidates(known)
    if task.reward is None and candidates:
        return task.model_copy(update={"reward": candidates[0]})
    return task


def _asked(
    spec: StepSpec, seed: Mapping[str, str], open_step: Callable[[str], Step[Any]], where: str
) -> tuple[_Facts, list[Problem]]:
    step = open_step(spec.type)
    params = validated(step.params, seeded(spec, seed).params, where=where)
    facts = _Facts(
        where=where,
        scoring=Scoring(*step.scoring(params)),
        artifacts=tuple(step.artifacts(params)),
        deploys=tuple(step.deploys(params)),
        sandboxes=tuple(step.sandboxes(params)),
        may_use_sandbox=step.may_use_sandbox(params),
    )
    return facts, [Problem(where, str(what)) for what in step.problems(params)]


def _size_problems(task: Task) -> Iterator[Problem]:
    # A task that was read is small enough; a copy with changes may not be.
    size = len(task.model_dump_json().encode())
    if size > MAX_TASK_BYTES:
        yield Problem(
            f"task {task.id!r}",
            f"is {size:,} bytes as JSON, over the limit of {MAX_TASK_BYTES:,}; "
            "put large content into an artifact",
        )


def _missing_artifacts(task: Task, known: Mapping[str, _Facts]) -> Iterator[Problem]:
    for facts in known.values():
        for name in facts.artifacts:
            if name not in task.artifacts:
                what = unknown_name("artifact", name, task.artifacts)
                yield Problem(facts.where, f"{what}; add it to the task's artifacts")


def _missing_steps(task: Task, known: Mapping[str, _Facts]) -> Iterator[Problem]:
    """Sandboxes and verifiers that a step needs and no step before it makes."""
    deployed = _by_name((step_id, name) for step_id, f in known.items() for name in f.deploys)
    scored = _by_name(
        (step_id, _verifier(step_id, f)) for step_id, f in known.items() if f.scoring.records
    )
    for step_id, before in _before(task).items():
        if step_id not in known or not before <= known.keys():
            continue  # what an invalid step would have made is not known
        facts = known[step_id]
        for name in facts.scoring.consumes:
            if what := _unmet("verifier", name, scored, before):
                yield Problem(facts.where, what)
        here = {name: by for name, by in deployed.items() if before.intersection(by)}
        if facts.may_use_sandbox and not facts.sandboxes and len(here) > 1:
            yield Problem(facts.where, _several(sorted(here)))
        for name in facts.sandboxes:
            if name is None:
                what = _unclear(sorted(here))
            else:
                what = _unmet("sandbox", name, deployed, before)
            if what:
                yield Problem(facts.where, what)


def _before(task: Task) -> dict[str, frozenset[str]]:
    """For each step, in order, every step that ends before it starts."""
    found: dict[str, frozenset[str]] = {}
    for step in task.steps:
        if step.depends_on is None:
            found[step.id] = frozenset(found)
        else:
            inherited = (found[name] for name in step.depends_on)
            found[step.id] = frozenset(step.depends_on).union(*inherited)
    return found


def _by_name(pairs: Iterator[tuple[str, str]]) -> dict[str, list[str]]:
    """The ids of the steps that make each name."""
    found: dict[str, list[str]] = {}
    for step_id, name in pairs:
        found.setdefault(name, []).append(step_id)
    return found


def _verifier(step_id: str, facts: _Facts) -> str:
    return facts.scoring.verifier_id or step_id


def _unmet(
    kind: str, name: str, makers: Mapping[str, list[str]], before: frozenset[str]
) -> str | None:
    by = makers.get(name, [])
    if before.intersection(by):
        return None
    if by:
        return (
            f"{kind} {name!r} comes from step {by[0]!r}, which this one does not wait for; "
            "put that step before it, and into depends_on"
        )
    return unknown_name(kind, name, (n for n, ids in makers.items() if before.intersection(ids)))


def _unclear(here: list[str]) -> str | None:
    if len(here) == 1:
        return None
    if not here:
        return "needs a sandbox, and no step before it deploys one; add a deploy_sandbox step"
    return _several(here)


def _several(here: list[str]) -> str:
    return f"names no sandbox, and there are several; name one of {_listed(here)}"


def _candidates(known: Mapping[str, _Facts]) -> list[str]:
    """Steps whose score can be the reward: all that score, but for those others combine."""
    consumed = {name for facts in known.values() for name in facts.scoring.consumes}
    return [
        step_id
        for step_id, facts in known.items()
        if facts.scoring.records and _verifier(step_id, facts) not in consumed
    ]


def _reward_problems(task: Task, known: Mapping[str, _Facts]) -> Iterator[Problem]:
    if task.reward is not None:
        scoring = [step_id for step_id, facts in known.items() if facts.scoring.records]
        if task.reward in known and task.reward not in scoring:
            what = f"step {task.reward!r} records no score; these do: {_listed(scoring)}"
            yield Problem("reward", what)
        return
    candidates = _candidates(known)
    if len(candidates) > 1 and len(known) == len(task.steps):
        what = f"{len(candidates)} steps score, name one as the reward: {_listed(candidates)}"
        yield Problem("reward", what)


def _listed(names: Sequence[str]) -> str:
    return ", ".join(map(repr, names)) or "none"
