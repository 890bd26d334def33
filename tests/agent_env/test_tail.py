"""The end of an output is kept, and lines are cut, whatever the pieces."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from agent_env._tail import MAX_LINE_BYTES, Lines, Tail


@given(st.lists(st.binary(max_size=40)), st.integers(0, 50))
def test_what_fits_is_kept_whole_and_of_more_the_end(pieces: list[bytes], limit: int) -> None:
    tail = Tail(limit)
    for piece in pieces:
        tail.feed(piece)
    whole = b"".join(pieces)

    text, cut = tail.text()

    if len(whole) <= limit:
        assert (text, cut) == (whole.decode("utf-8", "replace"), 0)
    else:
        assert len(whole) - limit <= cut <= len(whole) - limit + 3
        assert text == f"[… {cut:,} bytes cut …]\n" + whole[cut:].decode("utf-8", "replace")


@pytest.mark.parametrize("limit", range(1, 12))
def test_a_cut_makes_no_broken_character(limit: int) -> None:
    tail = Tail(limit)
    tail.feed("aé日🎉z".encode())

    text, _ = tail.text()

    assert "\ufffd" not in text
    assert text.endswith("z")


def test_invalid_bytes_are_shown_as_replacements() -> None:
    tail = Tail(10)
    tail.feed(b"a\xffb\xe6")

    assert tail.text() == ("a\ufffdb\ufffd", 0)


@given(st.lists(st.binary(max_size=10)))
def test_lines_are_the_same_however_they_arrive(pieces: list[bytes]) -> None:
    found: list[bytes] = []
    lines = Lines(found.append)
    for piece in pieces:
        lines.feed(piece)
    lines.end()
    *complete, rest = b"".join(pieces).split(b"\n")

    assert found == [*complete, *([rest] if rest else [])]


def test_a_line_without_end_is_cut() -> None:
    found: list[bytes] = []
    lines = Lines(found.append)
    for _ in range(10):
        lines.feed(b"x" * 1024 * 1024)
    lines.feed(b"\nnext\n")

    assert [len(line) for line in found] == [MAX_LINE_BYTES, 4]
