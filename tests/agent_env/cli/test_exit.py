"""agent_env/cli/_exit.py: exit codes and kinds of STYLE 12."""

import json

import click
import pytest
from temporalio.service import RPCError, RPCStatusCode

from agent_env import errors
from agent_env.cli._exit import DeclinedError, Kind, StoppedError, failure_of


@pytest.mark.parametrize(
    ("error", "code", "kind", "name"),
    [
        (errors.InvalidSpecError.of("task.json", "is empty"), 2, "usage", "InvalidSpec"),
        (errors.UnknownTypeError("x"), 2, "usage", "UnknownType"),
        (errors.ConfigError("x"), 2, "usage", "Config"),
        (click.UsageError("x"), 2, "usage", "Usage"),
        (errors.RunNotFoundError("x"), 3, "not_found", "RunNotFound"),
        (errors.ConflictError("x"), 4, "conflict", "Conflict"),
        (errors.MoveRefusedError("x"), 4, "conflict", "MoveRefused"),
        (errors.UnavailableError("x"), 5, "unavailable", "Unavailable"),
        (errors.IndexUnavailableError("x"), 5, "unavailable", "IndexUnavailable"),
        (RPCError("x", RPCStatusCode.UNAVAILABLE, b""), 5, "unavailable", "Unavailable"),
        (errors.StepFailedError("x"), 1, "episode", "StepFailed"),
        (DeclinedError("x"), 6, "canceled", "Declined"),
        (StoppedError("x"), 130, "canceled", "Stopped"),
        (KeyboardInterrupt(), 130, "canceled", "Stopped"),
        (click.Abort(), 130, "canceled", "Stopped"),
        (errors.RunIndexError("x"), 70, "internal", "RunIndex"),
        (ZeroDivisionError("x"), 70, "internal", "ZeroDivisionError"),
    ],
)
def test_each_family_has_its_code_and_its_kind(
    error: BaseException, code: int, kind: str, name: str
) -> None:
    failure = failure_of(error)

    assert (failure.exit_code, failure.kind, failure.type) == (code, kind, name)
    document = json.loads(json.dumps(failure.document("run-1")))
    assert document == {
        "error": {"kind": kind, "message": failure.message, "type": name, "run_id": "run-1"}
    }


def test_the_list_of_kinds_is_closed() -> None:
    assert {kind.value for kind in Kind} == {
        "usage",
        "conflict",
        "not_found",
        "unavailable",
        "episode",
        "canceled",
        "internal",
    }


def test_a_group_of_errors_is_told_by_its_first() -> None:
    inner = ExceptionGroup("inner", [errors.ConflictError("taken"), ValueError("later")])

    failure = failure_of(ExceptionGroup("outer", [inner]))

    assert (failure.exit_code, failure.message) == (4, "taken")


def test_every_problem_of_an_input_has_a_line() -> None:
    failure = failure_of(
        errors.InvalidSpecError([errors.Problem("a", "is wrong"), errors.Problem("b", "is too")])
    )

    assert list(failure.lines(debug=False)) == ["error: a: is wrong", "error: b: is too"]


def test_a_bug_is_told_in_one_line_and_traced_only_when_asked_for() -> None:
    try:
        raise KeyError("lost")
    except KeyError as error:
        failure = failure_of(error)

    (line,) = failure.lines(debug=False)
    traced = list(failure.lines(debug=True))

    assert line.startswith("error: KeyError: 'lost'")
    assert traced[0] == "Traceback (most recent call last):"
    assert traced[-1] == "error: KeyError: 'lost'"
