"""agent_env/cli/_output.py."""

import json
from collections.abc import Iterator

import pytest
from rich.text import Text

from agent_env.cli._output import Output
from agent_env.cli._session import Color, Format, TimeFormat

ITEMS: list[dict[str, object]] = [{"a": 1}, {"a": "日本"}]


def lines() -> Iterator[Text]:
    yield Text("one", style="red")
    yield Text("w" * 300)


def output(format: Format, color: Color = Color.AUTO) -> Output:
    return Output(format, TimeFormat.RELATIVE, color, options=["--state-dir", "a b"])


def test_a_json_list_says_whether_there_is_more(capsys: pytest.CaptureFixture[str]) -> None:
    output(Format.JSON).items(ITEMS, lines, next="c")
    output(Format.JSON).items(ITEMS, lines)

    first, _, second = capsys.readouterr().out.partition("}\n{")
    assert json.loads(first + "}") == {"items": ITEMS, "next": "c", "truncated": True}
    assert json.loads("{" + second) == {"items": ITEMS, "next": None, "truncated": False}


def test_jsonl_is_an_item_a_line_and_names_the_next_page(
    capsys: pytest.CaptureFixture[str],
) -> None:
    output(Format.JSONL).items(ITEMS, lines, next="c")

    out, err = capsys.readouterr()
    assert [json.loads(line) for line in out.splitlines()] == ITEMS
    assert "--after c" in err


def test_none_writes_nothing(capsys: pytest.CaptureFixture[str]) -> None:
    silent = output(Format.NONE)

    silent.items(ITEMS, lines, next="c")
    silent.document({"a": 1}, lines)
    silent.hint("show", "x")
    silent.remark("x")
    silent.say("x")

    assert capsys.readouterr() == ("", "")


def test_text_in_a_pipe_is_neither_cut_nor_colored(capsys: pytest.CaptureFixture[str]) -> None:
    output(Format.TEXT).items(ITEMS, lines)

    assert capsys.readouterr().out == "one\n" + "w" * 300 + "\n"


@pytest.mark.parametrize(
    ("color", "no_color", "expected"),
    [
        (Color.ALWAYS, False, True),
        (Color.ALWAYS, True, True),
        (Color.NEVER, False, False),
        (Color.AUTO, False, False),
    ],
)
def test_color_is_what_was_asked_for(
    color: Color,
    no_color: bool,
    expected: bool,
    capsys: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("TERM", "xterm-256color")
    if no_color:
        monkeypatch.setenv("NO_COLOR", "1")

    output(Format.TEXT, color).document({}, lines)

    assert ("\x1b[31mone" in capsys.readouterr().out) is expected


def test_a_named_command_reaches_the_same_place() -> None:
    assert output(Format.TEXT).command("show", "a b") == "episodes --state-dir 'a b' show 'a b'"


def test_words_for_a_person_are_kept_from_scripts(capsys: pytest.CaptureFixture[str]) -> None:
    for format, expected in ((Format.JSON, ""), (Format.TEXT, "\nnext: episodes show x\nwhy\n")):
        written = Output(format, TimeFormat.RELATIVE, Color.AUTO)
        written.hint("show", "x")
        written.remark("why")

        assert capsys.readouterr() == ("", expected)
