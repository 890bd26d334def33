"""How values read on a page."""

from datetime import UTC, datetime

import pytest
from markupsafe import Markup

from agent_env.explorer import words
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus, StepStatus

NOW = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("two\nlines\tand a tab", "two\nlines\tand a tab"),
        ("nul \0", "nul \\x00"),
        ("\x1b[31mred", "\\x1b[31mred"),
        ("half \ud800", "half \\ud800"),
        ("evil\u202egpj.exe", "evil\\u202egpj.exe"),
        ("日本 👩\u200d🚀 é", "日本 👩\u200d🚀 é"),
    ],
)
def test_what_can_not_be_seen_is_shown_as_an_escape(text: str, shown: str) -> None:
    assert words.visible(text) == shown
    assert words.visible(text).encode()


def test_a_template_writes_nothing_for_none_and_leaves_markup_alone() -> None:
    assert words.finalized(None) == ""
    assert words.finalized(Markup("<b>\x00</b>")) == "<b>\x00</b>"
    assert words.finalized("\x00") == "\\x00"


def test_a_long_id_keeps_its_end_apart_and_is_whole() -> None:
    found = words.ident("grp-20260131-093005-k3f9q2-0007")

    assert "<span>-k3f9q2-0007</span>" in found
    assert found.striptags().replace(" ", "") == "grp-20260131-093005-k3f9q2-0007"
    assert "<span>short</span>" in words.ident("short")
    assert "&lt;script&gt;" in words.ident("<script>")


def test_every_status_has_a_mark_of_its_own() -> None:
    marks = [words.MARKS[status.value] for status in RunStatus]

    assert len(set(marks)) == len(marks)
    assert all(status.value in words.MARKS for status in StepStatus)


def test_a_status_is_a_word_for_those_who_do_not_see_its_mark() -> None:
    assert '<span class="hidden-words">FAILED</span>' in words.status_mark("FAILED")
    assert "s-canceling" in words.status_mark("RUNNING", is_canceling=True)


@pytest.mark.parametrize(
    ("at", "shown"),
    [
        (datetime(2026, 1, 31, 8, 4, 5, tzinfo=UTC), ">08:04:05<"),
        (datetime(2026, 1, 30, 8, 4, 5, tzinfo=UTC), ">Jan 30 08:04<"),
        (datetime(2025, 1, 30, 8, 4, 5, tzinfo=UTC), ">2025-01-30<"),
    ],
)
def test_a_moment_is_as_short_as_it_can_be_and_exact_in_its_title(at: datetime, shown: str) -> None:
    found = words.moment(at, NOW)

    assert shown in found
    assert f'title="{at:%Y-%m-%d %H:%M:%S} UTC"' in found
    assert words.moment(None, NOW) == "–"


def test_counts_show_all_five_and_make_those_nobody_has_faint() -> None:
    found = words.counts(GroupFigures(n=1203, completed=1200, failed=3))

    assert "</span> 1,200</span>" in found
    assert found.count('class="none"') == 3


@pytest.mark.parametrize(("text", "size"), [("a\nb", "2 lines"), ("x" * 2500, "2,500 characters")])
def test_a_folded_text_says_how_much_it_is(text: str, size: str) -> None:
    assert words.size(text) == size


def test_json_is_laid_out_and_text_is_left_as_it_is() -> None:
    assert words.pretty({"é": 1}) == '{\n  "é": 1\n}'
    assert words.pretty("as\nit is") == "as\nit is"


def test_numbers_of_things_agree_with_their_word() -> None:
    assert [words.times(n, "run") for n in (0, 1, 2000)] == ["0 runs", "1 run", "2,000 runs"]
