"""A cursor as one word, there and back."""

from datetime import UTC, datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from agent_env.errors import InvalidSpecError
from agent_env.runs import RunCursor, RunFilter
from tests.agent_env.runs.conftest import T0


@given(
    created_at=st.datetimes(timezones=st.just(UTC)),
    run_id=st.text(max_size=200),
)
def test_a_cursor_comes_back_from_its_word(created_at: datetime, run_id: str) -> None:
    cursor = RunCursor(created_at=created_at, run_id=run_id)

    assert RunCursor.of(cursor.text()) == cursor


def test_the_word_is_safe_in_a_url_and_in_a_shell() -> None:
    word = RunCursor(created_at=T0, run_id="a/b c?&'日本").text()

    assert word.replace("-", "").replace("_", "").isalnum()
    assert word.isascii()


def test_one_instant_has_one_word() -> None:
    there = T0.astimezone(timezone(timedelta(hours=5, minutes=30)))

    assert (
        RunCursor(created_at=there, run_id="r").text()
        == RunCursor(created_at=T0, run_id="r").text()
    )


@pytest.mark.parametrize(
    "text", ["", "x", "日本", "!!!!", "bm90IGEgY3Vyc29y", "MjAyNi0wMS0zMSBy", "A" * 100_000, "\0"]
)
def test_what_is_no_cursor_is_refused(text: str) -> None:
    with pytest.raises(InvalidSpecError, match="is not a cursor") as refused:
        RunCursor.of(text)

    assert len(str(refused.value)) < 300


def test_a_time_in_a_filter_needs_a_zone() -> None:
    with pytest.raises(ValidationError, match="timezone"):
        RunFilter(created_after=T0.replace(tzinfo=None))
