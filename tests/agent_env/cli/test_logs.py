"""A server's log says a thing once a minute, however often it happens."""

import logging
from collections.abc import Generator

import pytest

from agent_env.cli._logs import Repeats


class Clock:
    def __init__(self) -> None:
        self.now = 100.0

    def __call__(self) -> float:
        return self.now


class Lines(logging.Handler):
    def __init__(self) -> None:
        super().__init__()
        self.lines: list[str] = []

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(self.format(record))


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lines(clock: Clock) -> Generator[list[str]]:
    handler = Lines()
    handler.addFilter(Repeats(clock))
    logger.addHandler(handler)
    logger.propagate = False
    yield handler.lines
    logger.removeHandler(handler)


logger = logging.getLogger("tests.repeats")


def wait(what: str, text: str = "%s waits") -> None:
    logger.warning(text, what)


def test_a_line_comes_once_a_minute_and_says_how_many_it_stands_for(
    clock: Clock, lines: list[str]
) -> None:
    for _ in range(4):
        wait("finish")
    clock.now += 61
    wait("finish")
    clock.now += 61
    wait("finish")

    assert lines == ["finish waits", "finish waits (and 3 more like it)", "finish waits"]


def test_what_says_something_else_is_another_line(lines: list[str]) -> None:
    wait("finish")
    wait("begin")
    logger.warning("one")
    logger.warning("two")

    assert lines == ["finish waits", "begin waits", "one", "two"]


def test_details_in_the_text_make_no_other_line(lines: list[str]) -> None:
    wait("finish", "%s waits (run-1)")
    wait("finish", "%s waits (run-2)")

    assert lines == ["finish waits (run-1)"]


def test_stack_traces_always_pass(lines: list[str]) -> None:
    for _ in range(2):
        try:
            raise ZeroDivisionError
        except ZeroDivisionError:
            logger.exception("failed")

    assert len(lines) == 2
