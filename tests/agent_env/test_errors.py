import pickle
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env import errors
from agent_env.errors import (
    MAX_ERROR_CHARS,
    AgentEnvError,
    ForeignError,
    InvalidSpecError,
    Problem,
    RunNotFoundError,
    SandboxLostError,
    bounded,
    error_of,
    error_text,
    error_type,
    flattened,
    root_cause,
    unknown_name,
)

ANY_TEXT = st.text(st.characters(exclude_categories=()))


def tree(root: type[AgentEnvError]) -> Iterator[type[AgentEnvError]]:
    """A class and all below it that the module defines."""
    if root.__module__ == errors.__name__:
        yield root
    for child in root.__subclasses__():
        yield from tree(child)


OURS = [pytest.param(kind, id=kind.__name__) for kind in tree(AgentEnvError)]


class HostileError(Exception):
    def __str__(self) -> str:
        raise RuntimeError("no message for you")


class SurrogateError(Exception):
    def __str__(self) -> str:
        return "half \ud800 of it"


@pytest.mark.parametrize("kind", OURS)
def test_every_error_is_drawn_in_the_docstring(kind: type[AgentEnvError]) -> None:
    assert errors.__doc__ is not None
    assert kind.__name__ in errors.__doc__


@pytest.mark.parametrize("kind", OURS)
def test_an_error_survives_being_sent_by_name(kind: type[AgentEnvError]) -> None:
    sent = InvalidSpecError.of("", "it broke") if kind is InvalidSpecError else kind("it broke")

    back = error_of(error_type(sent), error_text(sent))

    assert type(back) is kind
    assert str(back) == "it broke"


@pytest.mark.parametrize(
    ("kind", "text"), [("ValueError", "ValueError: it broke"), ("", "it broke")]
)
def test_a_foreign_name_comes_back_as_the_root_of_our_errors(kind: str, text: str) -> None:
    back = error_of(kind, "it broke")

    assert type(back) is AgentEnvError
    assert str(back) == text


def test_a_missing_run_is_a_lookup_error_too() -> None:
    with pytest.raises(LookupError):
        raise RunNotFoundError("no run 'x'")


def test_problems_are_listed_and_survive_pickling() -> None:
    error = InvalidSpecError([Problem("a.json: id", "is empty"), Problem("", "is no task")])

    back = pickle.loads(pickle.dumps(error))

    assert str(back) == "a.json: id: is empty\nis no task"
    assert back.problems == error.problems


def test_ours_lose_their_ending_and_foreign_names_are_kept() -> None:
    assert error_type(SandboxLostError("gone")) == "SandboxLost"
    assert error_type(TimeoutError()) == "TimeoutError"


def test_what_foreign_code_raised_elsewhere_keeps_its_name() -> None:
    error = ForeignError("lost", kind="LookupError")

    assert (error_type(error), error_text(error)) == ("LookupError", "lost")
    assert error_type(pickle.loads(pickle.dumps(error))) == "LookupError"


@pytest.mark.parametrize(
    ("error", "text"),
    [
        (TimeoutError(), ""),
        (KeyboardInterrupt("stop"), "stop"),
        (SystemExit(0), "0"),
        (ValueError("nul \0 inside"), "nul \0 inside"),
        (HostileError(), "(its message could not be read: RuntimeError)"),
        (ExceptionGroup("all", [ValueError("first")]), "first"),
        (
            ExceptionGroup("all", [ExceptionGroup("in", [ValueError("first")]), OSError("2nd")]),
            "first (and 1 more in the same group)",
        ),
        (
            BaseExceptionGroup("all", [HostileError(), SystemExit(3)]),
            "(its message could not be read: RuntimeError) (and 1 more in the same group)",
        ),
    ],
)
def test_the_text_of_any_error_can_be_had(error: BaseException, text: str) -> None:
    assert error_text(error) == text


def test_a_lone_surrogate_stays_in_the_text() -> None:
    assert error_text(SurrogateError()) == "half \ud800 of it"


def test_a_message_of_megabytes_is_bounded() -> None:
    text = error_text(ValueError("a" * 5_000_000 + "the end"))

    assert len(text) <= MAX_ERROR_CHARS
    assert "characters cut" in text
    assert text.endswith("the end")


def test_a_group_nested_deeper_than_python_recurses_is_read() -> None:
    error: Exception = ValueError("the root")
    for _ in range(5_000):
        error = ExceptionGroup[Exception]("in", [error])

    assert error_text(error) == "the root"
    assert [type(leaf) for leaf in flattened(error)] == [ValueError]
    assert type(root_cause(error)) is ValueError


def test_the_cause_of_an_error_is_not_shown_in_its_place() -> None:
    error = SandboxLostError("gone")
    error.__cause__ = ValueError("why")

    assert root_cause(error) is error


def test_the_leaves_of_a_group_keep_their_order() -> None:
    first, second, third = ValueError(1), OSError(2), KeyError(3)
    inner = ExceptionGroup[Exception]("in", [second])
    error = ExceptionGroup[Exception]("all", [first, inner, third])

    assert flattened(error) == [first, second, third]


@given(ANY_TEXT, st.integers(min_value=0, max_value=300))
def test_bounded_keeps_its_limit(text: str, limit: int) -> None:
    assert len(bounded(text * 20, limit)) <= limit
    assert bounded(text, len(text)) == text


@given(st.integers(min_value=41, max_value=10_000), st.integers(min_value=1, max_value=100_000))
def test_the_mark_says_how_much_was_cut(limit: int, over: int) -> None:
    text = "x" * (limit + over)

    cut = bounded(text, limit)

    head, mark, tail = cut.split("\n")
    assert int(mark.split()[1].replace(",", "")) == len(text) - len(head) - len(tail)


@pytest.mark.parametrize(
    ("name", "known", "text"),
    [
        (
            "shel",
            ["wait", "shell"],
            "unknown step 'shel': did you mean 'shell'? Known: shell, wait",
        ),
        ("zzz", ["wait", "shell"], "unknown step 'zzz'; known: shell, wait"),
        ("zzz", [], "unknown step 'zzz'; known: none"),
    ],
)
def test_an_unknown_name_is_answered_with_the_nearest(
    name: str, known: list[str], text: str
) -> None:
    assert unknown_name("step", name, known) == text
