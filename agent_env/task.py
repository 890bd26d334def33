"""What is to be done: a task and its steps, and every check that needs no other code. Pure.

A task is JSON-shaped. A step is flat: the fields of ``StepSpec`` and, beside them, the parameters
of its type, which only the step's own class understands.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Annotated, cast

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    JsonValue,
    model_validator,
)

from agent_env._model import EdgeModel, Problems, validated
from agent_env.errors import Problem
from agent_env.ids import id_problem

MAX_TASK_BYTES = 1024 * 1024
"""Largest task, as JSON, in bytes: it travels in workflow history."""


def _checked_id(value: str) -> str:
    if problem := id_problem(value):
        raise ValueError(problem)
    return value


Id = Annotated[str, AfterValidator(_checked_id)]
"""1 to 200 characters, none of them a control character."""


def _dependency(value: object) -> object:
    """Accept agentenv-framework's long form, ``{"task_step_id": ID}``."""
    if isinstance(value, dict):
        given = cast("dict[object, object]", value)
        if set(given) == {"task_step_id"}:
            return given["task_step_id"]
    return cast(object, value)


class RetryConfig(EdgeModel):
    """What happens when a step fails: run it again, or go back to an earlier one."""

    retry_from_step_id: Id | None = None
    """The step to resume from: this one or an ancestor. None means this one."""
    max_retries: int = Field(default=1, ge=0, le=1000)
    """How many times, in the whole episode."""


class StepSpec(BaseModel):
    """One step. Keys that are not fields here are parameters of its ``type``."""

    model_config = ConfigDict(frozen=True, extra="allow", allow_inf_nan=False)
    __pydantic_extra__: dict[str, JsonValue] = Field(init=False)  # pyright: ignore[reportIncompatibleVariableOverride]

    id: Id
    type: str = Field(min_length=1)
    depends_on: tuple[Annotated[Id, BeforeValidator(_dependency)], ...] | None = None
    """Ids of earlier steps. Absent means all earlier steps; an empty list means none."""
    fail_task_on_error: bool = True
    """False lets the rest of the task go on when this step fails; the episode still ends FAILED."""
    retry_config: RetryConfig | None = None
    timeout_seconds: float | None = Field(default=None, gt=0)
    """Longest one attempt may take, in seconds. None means the type's own limit."""
    rerun: bool = True
    """False: when the worker dies in this step, it fails instead of running again."""

    @property
    def params(self) -> dict[str, JsonValue]:
        """The parameters of the step's type."""
        return self.__pydantic_extra__


class Task(EdgeModel):
    """A list of steps that form a DAG, and which score is the reward."""

    id: Id
    version: Annotated[str, BeforeValidator(lambda v: str(v) if isinstance(v, int) else v)] = "1"
    steps: tuple[StepSpec, ...]
    reward: Id | None = None
    """Id of the step whose score is the reward. May be absent when only one step scores."""
    artifacts: Mapping[str, str] = {}
    """Where each named artifact is: a folder, or ``sha256:…`` of one in the artifact store."""
    segment_limit: int = Field(default=16, ge=1, le=64)
    """Most steps that run in one activity. 1 shows each step in the Temporal UI."""
    deadline_seconds: float | None = Field(default=None, gt=0)
    """Longest an episode may take from its start to its outcome, in seconds."""

    @model_validator(mode="after")
    def _is_a_dag(self) -> Task:
        if problems := list(_dag_problems(self)):
            raise Problems(problems)
        return self

    @model_validator(mode="after")
    def _fits_into_history(self) -> Task:
        try:
            size = len(self.model_dump_json().encode())
        except ValueError:  # what pydantic raises when text is not encodable
            raise ValueError("holds text that is not valid Unicode; remove it") from None
        if size > MAX_TASK_BYTES:
            raise ValueError(
                f"is {size:,} bytes as JSON, over the limit of {MAX_TASK_BYTES:,}; "
                "put large content into an artifact"
            )
        return self

    @classmethod
    def of(cls, data: object, *, where: str = "") -> Task:
        """Read a task from JSON-shaped data; a plain list is a list of steps.

        Args:
            data: An object with the fields of ``Task``, or a list of steps.
            where: What to call it in errors. Also the id of a task that has none.

        Raises:
            InvalidSpecError: with every problem, each naming its field.
        """
        given = {"steps": cast(object, data)} if isinstance(data, list) else data
        if isinstance(given, Mapping) and where:
            given = {"id": where, **cast("Mapping[str, object]", given)}
        return validated(cls, cast(object, given), where=where)

    def step(self, step_id: str) -> StepSpec:
        """The step with this id.

        Raises:
            KeyError: there is none.
        """
        for step in self.steps:
            if step.id == step_id:
                return step
        raise KeyError(step_id)


def edges(task: Task) -> dict[str, tuple[str, ...]]:
    """For each step, in order, the ids of the steps it waits for."""
    earlier: list[str] = []
    found: dict[str, tuple[str, ...]] = {}
    for step in task.steps:
        found[step.id] = tuple(earlier) if step.depends_on is None else step.depends_on
        earlier.append(step.id)
    return found


def ancestors(task: Task, step_id: str) -> frozenset[str]:
    """Every step that must end before this one starts."""
    after = edges(task)
    found: set[str] = set()
    waiting = list(after[step_id])
    while waiting:
        current = waiting.pop()
        if current not in found:
            found.add(current)
            waiting.extend(after[current])
    return frozenset(found)


def descendants(task: Task, step_id: str) -> frozenset[str]:
    """Every step that can't start before this one has ended."""
    found = {step_id}
    for step, after in edges(task).items():  # in order, so one pass is enough
        if found.intersection(after):
            found.add(step)
    return frozenset(found - {step_id})


def sandbox_types(task: Task) -> set[str]:
    """Providers that the task's steps name, whether they get to run or not."""
    asked = (step.params.get("sandbox_type") for step in task.steps)
    return {type for type in asked if isinstance(type, str)}


def _dag_problems(task: Task) -> Iterator[Problem]:
    if not task.steps:
        yield Problem("steps", "a task has at least one step; add one")
    seen: dict[str, int] = {}
    all_ids = {step.id for step in task.steps}
    for number, step in enumerate(task.steps):
        where = f"steps[{number}] {step.id!r}"
        if step.id in seen:
            yield Problem(where, f"steps[{seen[step.id]}] has this id already; ids are unique")
            continue
        for name in step.depends_on or ():
            yield from _edge_problems(name, step, where, seen, all_ids)
        if len(set(step.depends_on or ())) < len(step.depends_on or ()):
            yield Problem(f"{where}: depends_on", "names a step twice; name each once")
        seen[step.id] = number
    if len(seen) < len(task.steps):
        return
    if any(name not in seen for step in task.steps for name in step.depends_on or ()):
        return
    for number, step in enumerate(task.steps):
        resume = step.retry_config and step.retry_config.retry_from_step_id
        if resume and resume != step.id and resume not in ancestors(task, step.id):
            yield Problem(
                f"steps[{number}] {step.id!r}: retry_config.retry_from_step_id",
                f"{resume!r} is not this step or one it depends on; name one of those",
            )
    if task.reward is not None and task.reward not in seen:
        yield Problem("reward", f"there is no step {task.reward!r}; the steps are {sorted(seen)}")


def _edge_problems(
    name: str, step: StepSpec, where: str, seen: dict[str, int], all_ids: set[str]
) -> Iterator[Problem]:
    where = f"{where}: depends_on"
    if name == step.id:
        yield Problem(where, "a step can't depend on itself; remove it")
    elif name not in all_ids:
        yield Problem(where, f"there is no step {name!r}; the steps are {sorted(all_ids)}")
    elif name not in seen:
        yield Problem(where, f"{name!r} comes later in the list; put it before {step.id!r}")
