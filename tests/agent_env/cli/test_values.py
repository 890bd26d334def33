"""agent_env/cli/_values.py."""

from datetime import UTC, datetime, timedelta

import click
import pytest

from agent_env.cli import _values


@pytest.mark.parametrize(
    ("text", "seconds"),
    [("90", 90), ("90s", 90), ("1.5h", 5400), ("2d", 172_800), (" 5 m", 300), ("0.25", 0.25)],
)
def test_a_duration_is_seconds_or_has_a_unit(text: str, seconds: float) -> None:
    assert _values.duration(text) == timedelta(seconds=seconds)


@pytest.mark.parametrize("text", ["", "0", "-1", "5x", "nan", "inf", "1e9d", "99999999999d", "h"])
def test_what_is_no_duration_is_refused_with_examples(text: str) -> None:
    with pytest.raises(click.BadParameter, match=r"is not a duration; write 90, 90s"):
        _values.duration(text)


def test_a_moment_is_a_time_or_how_long_ago() -> None:
    ago = _values.moment("2h")

    assert _values.moment("2026-01-31T09:30+02:00") == datetime(2026, 1, 31, 7, 30, tzinfo=UTC)
    assert _values.moment("2026-01-31").utcoffset() == timedelta(0)
    assert timedelta(hours=2) <= datetime.now(UTC) - ago < timedelta(hours=2, minutes=1)


@pytest.mark.parametrize("text", ["yesterday", "", "2026-13-01", "0h"])
def test_what_is_no_moment_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a time"):
        _values.moment(text)


def test_a_seed_is_a_number_or_a_pair() -> None:
    assert _values.seed("-7") == ("seed", "-7")
    assert _values.seed("url=a=b") == ("url", "a=b")
    assert _values.seed("empty=") == ("empty", "")


@pytest.mark.parametrize("text", ["x", "=x", "1.5", ""])
def test_what_is_no_seed_is_refused(text: str) -> None:
    with pytest.raises(click.BadParameter, match="is not a whole number or KEY=VALUE"):
        _values.seed(text)


def test_a_key_given_twice_is_refused() -> None:
    with pytest.raises(click.BadParameter, match="'a' is given twice"):
        _values.mapping((("a", "1"), ("a", "2")))
