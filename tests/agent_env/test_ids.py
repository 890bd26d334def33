import re
from datetime import UTC, datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env.ids import MAX_ID_CHARS, group_id, host_id, id_problem, member_id, run_id

NOW = datetime(2026, 1, 31, 9, 30, 5, tzinfo=UTC)
BITS = st.integers(min_value=0, max_value=2**30 - 1)


@given(BITS)
def test_ids_are_lower_case_and_safe_in_a_url_and_a_shell(bits: int) -> None:
    assert re.fullmatch("run-20260131-093005-[0-9a-z]{6}", run_id(NOW, bits))
    assert re.fullmatch("grp-20260131-093005-[0-9a-z]{6}", group_id(NOW, bits))


@given(BITS, BITS)
def test_different_random_bits_make_different_ids(first: int, second: int) -> None:
    assert (run_id(NOW, first) == run_id(NOW, second)) is (first == second)


@given(BITS, BITS, st.timedeltas(min_value=timedelta(seconds=1), max_value=timedelta(days=9999)))
def test_ids_sort_by_time(first: int, second: int, later: timedelta) -> None:
    assert run_id(NOW, first) < run_id(NOW + later, second)


@given(st.lists(st.integers(min_value=0, max_value=9_999), unique=True))
def test_member_ids_sort_by_index(indexes: list[int]) -> None:
    assert [member_id("grp", index) for index in sorted(indexes)] == sorted(
        member_id("grp", index) for index in indexes
    )


@pytest.mark.parametrize(
    ("node", "start"),
    [
        ("MyHost.example.org", "myhost-"),
        ("Bücher box_1", "b-cher-box-1-"),
        ("", "host-"),
        ("日本", "host-"),
        ("x" * 300, "x" * 40 + "-"),
    ],
)
def test_a_host_is_named_after_its_machine(node: str, start: str) -> None:
    assert re.fullmatch(re.escape(start) + "[0-9a-z]{6}", host_id(node, 12345))


@pytest.mark.parametrize(
    "value", ["a/b c", "日本", "..", "<script>", "x" * MAX_ID_CHARS, "run-1", "'; rm -rf /"]
)
def test_ids_of_any_script_are_kept(value: str) -> None:
    assert id_problem(value) is None


@pytest.mark.parametrize(
    ("value", "says"),
    [
        ("", "empty"),
        ("  ", "empty"),
        ("x" * (MAX_ID_CHARS + 1), "at most 200 characters; this one has 201"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\x7fb", "control"),
        ("a\x9fb", "control"),
        ("a\ud800b", "Unicode"),
    ],
)
def test_an_id_that_cannot_be_shown_is_refused(value: str, says: str) -> None:
    problem = id_problem(value)

    assert problem is not None
    assert says in problem


@given(st.text(st.characters(exclude_categories=()), max_size=MAX_ID_CHARS + 5))
def test_what_is_said_of_an_id_can_be_printed(value: str) -> None:
    problem = id_problem(value)

    if problem is None:
        value.encode()
        assert 0 < len(value) <= MAX_ID_CHARS
    else:
        problem.encode()
