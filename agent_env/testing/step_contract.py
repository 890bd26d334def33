"""Tests that every step type passes. Needs pytest.

Derive a test class and fill it in::

    class TestShell(StepContract):
        step = ShellStep
        good_params = {"command": "true"}
        bad_params = {"command": ""}

``pytest.register_assert_rewrite("agent_env.testing.step_contract")`` in a ``conftest.py`` shows
what a failing assertion compared.
"""
# ruff: noqa: D102 (the name of a test says what it tests)

import ast
import inspect
import sys
import textwrap
from collections.abc import Iterator, Mapping
from datetime import timedelta
from typing import Any, ClassVar

import pytest
from pydantic import JsonValue

from agent_env._model import validated
from agent_env.errors import InvalidSpecError
from agent_env.steps.base import Params, Scoring, Step
from agent_env.task import StepSpec


class StepContract:
    """A step type reads its parameters strictly, and says of itself what a check asks."""

    step: ClassVar[type[Step[Any]]]
    """The type under test."""
    good_params: ClassVar[Mapping[str, JsonValue]]
    """Parameters that are right."""
    bad_params: ClassVar[Mapping[str, JsonValue]]
    """Parameters with something wrong in them."""

    def test_its_type_is_the_name_of_its_module(self) -> None:
        assert self.step.type == self.step.__module__.rpartition(".")[2]

    def test_its_module_names_it_as_its_step(self) -> None:
        assert sys.modules[self.step.__module__].STEP is self.step

    def test_it_is_documented(self) -> None:
        assert sys.modules[self.step.__module__].__doc__
        assert self.step.__doc__

    def test_every_parameter_is_documented(self) -> None:
        undocumented = [
            f"{model.__name__}.{name}"
            for model in self.step.params.__mro__
            if issubclass(model, Params) and model is not Params
            for name in _undocumented(model)
        ]

        assert undocumented == [], f"no docstring follows {', '.join(undocumented)}"

    def test_no_parameter_hides_a_field_of_every_step(self) -> None:
        assert self.step.params.model_fields.keys() & StepSpec.model_fields.keys() == set()

    def test_good_parameters_are_taken(self) -> None:
        assert isinstance(self._read(self.good_params), self.step.params)

    def test_bad_parameters_are_refused(self) -> None:
        with pytest.raises(InvalidSpecError):
            self._read(self.bad_params)

    def test_an_unknown_parameter_is_refused_by_name(self) -> None:
        with pytest.raises(InvalidSpecError, match="no_such_parameter"):
            self._read({**self.good_params, "no_such_parameter": 1})

    def test_it_says_what_a_check_asks_of_it(self) -> None:
        step, params = self.step(), self._read(self.good_params)

        assert isinstance(step.scoring(params), Scoring)
        assert isinstance(step.timeout(params), timedelta | None)
        assert all(isinstance(name, str) for name in step.artifacts(params))
        assert all(isinstance(name, str) for name in step.deploys(params))
        assert all(isinstance(name, str | None) for name in step.sandboxes(params))
        assert all(isinstance(problem, str) for problem in step.problems(params))

    def _read(self, params: Mapping[str, JsonValue]) -> Params:
        return validated(self.step.params, params)


def _undocumented(model: type[Params]) -> Iterator[str]:
    """Fields of a model's own body that no docstring follows."""
    (body,) = ast.parse(textwrap.dedent(inspect.getsource(model))).body
    assert isinstance(body, ast.ClassDef)
    for field, following in zip(body.body, [*body.body[1:], None], strict=True):
        if isinstance(field, ast.AnnAssign) and isinstance(field.target, ast.Name):
            is_field = field.target.id in model.model_fields
            is_documented = isinstance(following, ast.Expr) and isinstance(
                following.value, ast.Constant
            )
            if is_field and not is_documented:
                yield field.target.id
