import json

from hypothesis import given
from hypothesis import strategies as st

from agent_env.steps._texts import head, json_bytes, tail

ANY_TEXT = st.text(st.characters(exclude_categories=()))


@given(ANY_TEXT, st.integers(8, 60))
def test_a_head_fits_and_is_the_start(text: str, limit: int) -> None:
    kept = head(text, limit)

    assert json_bytes(kept) <= limit
    assert kept == text or (kept.endswith(" …") and text.startswith(kept[:-2]))


@given(ANY_TEXT, st.integers(0, 60))
def test_a_tail_fits_and_is_the_end_and_says_what_was_cut(text: str, limit: int) -> None:
    kept, cut = tail(text, limit)

    assert json_bytes(kept) <= limit
    assert text.endswith(kept)
    assert (cut == 0) == (kept == text)


def test_as_much_is_kept_as_fits() -> None:
    text = "\0日x" * 1000

    kept, cut = tail(text, 1000)

    assert 990 < len(json.dumps(kept, ensure_ascii=False).encode()) - 2 <= 1000
    assert cut == len(text.encode()) - len(kept.encode())
