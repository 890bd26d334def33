"""Text, JSON and times survive what a database would refuse."""

from datetime import UTC, datetime, timedelta, timezone
from typing import Any

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from sqlalchemy import Column, MetaData, Table, create_engine, select

from agent_env.runs._columns import AnyJson, AnyText, UtcTime, escaped, unescaped

ANY_TEXT = st.text(st.characters(), max_size=20) | st.text('a\0\ud800\udfff␀0d8\\u"', max_size=20)
ANY_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | ANY_TEXT,
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(ANY_TEXT, inner, max_size=3),
    max_leaves=10,
)
OFFSETS = st.integers(-840, 840).map(lambda minutes: timezone(timedelta(minutes=minutes)))
YEAR_2 = datetime(2, 1, 1, tzinfo=UTC)


def stored(kind: Any, value: Any) -> Any:
    """The value after a trip through a database."""
    table = Table("t", MetaData(), Column("value", kind))
    engine = create_engine("sqlite://")
    try:
        with engine.begin() as connection:
            table.create(connection)
            connection.execute(table.insert(), {"value": value})
            return connection.execute(select(table.c.value)).scalar_one()
    finally:
        engine.dispose()


@given(ANY_TEXT)
def test_any_text_can_be_encoded_once_escaped_and_comes_back(text: str) -> None:
    safe = escaped(text)

    safe.encode()
    assert "\0" not in safe
    assert unescaped(safe) == text


@pytest.mark.parametrize("text", ["", "plain", "日本 🙂", "back\\slash \\u0000 %"])
def test_ordinary_text_is_stored_as_it_is(text: str) -> None:
    assert escaped(text) == text


@given(ANY_TEXT)
def test_any_text_is_stored_whole(text: str) -> None:
    assert stored(AnyText(), text) == text


@given(ANY_JSON)
def test_any_json_is_stored_whole(value: Any) -> None:
    assert stored(AnyJson(), value) == value


def test_keys_that_differ_in_what_is_escaped_stay_two() -> None:
    value = {"a\0": 1, "a␀0000": 2}

    assert stored(AnyJson(), value) == value


@given(st.datetimes(timezones=OFFSETS, min_value=YEAR_2.replace(tzinfo=None)))
def test_an_instant_comes_back_in_utc(value: datetime) -> None:
    assume(value.year < 9999)

    found = stored(UtcTime(), value)

    assert found == value
    assert found.utcoffset() == timedelta(0)


@given(st.lists(st.datetimes(timezones=st.just(UTC)), min_size=2, max_size=5))
def test_stored_times_sort_as_the_instants_do(values: list[datetime]) -> None:
    table = Table("t", MetaData(), Column("value", UtcTime()))
    engine = create_engine("sqlite://")
    with engine.begin() as connection:
        table.create(connection)
        connection.execute(table.insert(), [{"value": value} for value in values])
        found = connection.execute(select(table.c.value).order_by(table.c.value)).scalars().all()
    engine.dispose()

    assert found == sorted(values)
