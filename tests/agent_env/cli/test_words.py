"""agent_env/cli/_words.py."""

from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.cli import _words
from agent_env.cli._session import TimeFormat
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus, StepStatus

NOW = datetime(2026, 1, 31, 12, 0, tzinfo=UTC)


@given(st.text(st.characters()))
def test_nothing_that_a_terminal_acts_on_gets_through(text: str) -> None:
    shown = _words.printable(text)

    assert all(char.isprintable() or char == "\n" for char in shown)
    shown.encode()


def test_what_is_harmless_stays_as_it_is() -> None:
    assert _words.printable("日本 a/b <script> ◌\n") == "日本 a/b <script> ◌\n"
    assert _words.printable("\x1b[2J\u202eevil\ud800\0") == "\\x1b[2J\\u202eevil\\ud800\\x00"


def test_the_first_line_that_says_something_is_chosen() -> None:
    assert _words.first_line("\n \nboom\nmore") == "boom"
    assert _words.first_line("") == ""


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (None, _words.NONE),
        (0, "0.00 s"),
        (9.994, "9.99 s"),
        (12.34, "12.3 s"),
        (59.99, "1 m 00 s"),
        (192, "3 m 12 s"),
        (3599.7, "1 h 00 m"),
        (7500, "2 h 05 m"),
        (2 * 86_400 + 3600, "2 d 01 h"),
    ],
)
def test_a_duration_has_the_units_a_person_would_use(seconds: float | None, text: str) -> None:
    assert _words.duration(seconds) == text


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (None, _words.NONE),
        (0.0, "0.000"),
        (0.8124, "0.812"),
        (-12.5, "-12.500"),
        (1e-9, "1e-09"),
        (1e300, "1e+300"),
    ],
)
def test_a_number_is_short_and_a_missing_one_is_not_zero(value: float | None, text: str) -> None:
    assert _words.number(value) == text


def test_moments_have_three_forms() -> None:
    at = NOW - timedelta(hours=3)

    assert _words.moment(at, NOW, TimeFormat.RELATIVE) == "3 h ago"
    assert _words.moment(at, NOW, TimeFormat.ISO) == "2026-01-31T09:00:00Z"
    assert _words.moment(at, NOW, TimeFormat.RAW) == "1769850000.000000"
    assert _words.moment(NOW + timedelta(minutes=10), NOW, TimeFormat.RELATIVE) == "0 s ago"


def test_an_unscored_group_has_no_mean() -> None:
    assert _words.mean_and_std(GroupFigures(n=2)) == "– (0 scored of 2)"
    assert (
        _words.mean_and_std(GroupFigures(n=8, n_scored=5, mean=0.8124, std=0.1))
        == "0.812 ± 0.100 (5 scored of 8)"
    )
    assert _words.mean_and_std(GroupFigures(n=1, n_scored=1, mean=1)) == "1.000 (1 scored of 1)"


def test_every_status_has_a_mark_of_its_own() -> None:
    assert {_words.mark(status).plain for status in RunStatus} == set("◌●✓✕⊘")
    assert [_words.step_status(status).plain for status in StepStatus] == [
        "● RUNNING",
        "✓ COMPLETED",
        "✕ FAILED",
        "⊘ CANCELED",
        "◌ SKIPPED",
    ]
