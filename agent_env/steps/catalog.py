"""Finds a step type, and checks what can be known of a task before it runs."""

import importlib
from collections.abc import Mapping
from importlib.metadata import EntryPoint, entry_points
from typing import Any, cast

from agent_env.errors import UnknownTypeError, error_text, error_type, unknown_name
from agent_env.steps._check import checked
from agent_env.steps.base import Step
from agent_env.task import Task

ENTRY_POINTS = "durable_episodes.steps"
_BUILT_IN = frozenset(
    {
        "aggregate_verifiers",
        "deploy_sandbox",
        "gymnasium",
        "load_artifact",
        "prompt_agent",
        "python",
        "run_code",
        "verify_sandbox",
        "wait",
    }
)


class Steps:
    """The step types of one process: built-in ones, plugins, and any that are given.

    Args:
        given: Step types to use in place of built-in ones and plugins, by name.
    """

    def __init__(self, given: Mapping[str, type[Step[Any]]] | None = None) -> None:
        self._open: dict[str, Step[Any]] = {name: step() for name, step in (given or {}).items()}

    def open(self, type: str) -> Step[Any]:
        """The step of a type; of the built-in ones only its own module is imported.

        Raises:
            UnknownTypeError: nobody provides it, and the message has the nearest name; or the
                package that does can't be used.
        """
        if type not in self._open:
            self._open[type] = self._load(type)()
        return self._open[type]

    @property
    def known(self) -> list[str]:
        """Every type that can be asked for."""
        plugins = {point.name for point in entry_points(group=ENTRY_POINTS)}
        return sorted({*self._open, *_BUILT_IN, *plugins})

    def check(self, task: Task, seed: Mapping[str, str] | None = None) -> Task:
        """Everything that can be known before a run; returns the task with its reward filled in.

        Args:
            task: What is to be run.
            seed: Values for the task's ``<key>`` places. One named ``seed`` may come later, as a
                group numbers its members with it.

        Raises:
            InvalidSpecError: with every problem.
        """
        return checked(task, {"seed": "0", **(seed or {})}, self.open)

    def _load(self, type: str) -> type[Step[Any]]:
        if type in _BUILT_IN:
            return importlib.import_module(f"agent_env.steps.{type}").STEP
        for point in entry_points(group=ENTRY_POINTS, name=type):
            return _plugin(point)
        raise UnknownTypeError(unknown_name("step type", type, self.known))


def _plugin(point: EntryPoint) -> type[Step[Any]]:
    package = point.dist.name if point.dist else point.value
    try:
        found: object = point.load()
    except Exception as error:
        raise UnknownTypeError(
            f"step type {point.name!r} of {package!r} can't be loaded: {error_type(error)}: "
            f"{error_text(error)}; repair or remove that package"
        ) from error
    if not (isinstance(found, type) and issubclass(found, Step)):
        raise UnknownTypeError(
            f"step type {point.name!r} of {package!r} is no step: {point.value} must name a "
            "subclass of agent_env.steps.Step"
        )
    return cast(type[Step[Any]], found)
