"""Messages as people read them, whatever an agent wrote."""

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import JsonValue

from agent_env.explorer import talk
from agent_env.explorer.run_views import MessageView


def message(value: JsonValue) -> talk.Shown:
    return talk.shown(
        MessageView(key="1.0.solver", epoch=1, step_id="solver", seq=0, message=value)
    )


def test_words_of_people_and_models_are_prose_and_what_tools_say_is_not() -> None:
    assert message({"role": "user", "content": "hello"}).is_prose
    assert message({"role": "assistant", "content": "hello"}).is_prose
    tool = message({"role": "tool", "tool_call_id": "call_1", "content": "1 passed"})
    assert (tool.is_prose, tool.about, tool.words) == (False, "call_1", "1 passed")


@pytest.mark.parametrize(
    ("arguments", "name", "shown"),
    [
        ('{"command": "ls\\n-l"}', "bash command", "ls\n-l"),
        ({"path": "a", "lines": 3}, "bash", '{\n  "path": "a",\n  "lines": 3\n}'),
        ("{broken", "bash", "{broken"),
        (None, "bash", "null"),
    ],
)
def test_a_tool_call_is_read_from_what_the_model_wrote(
    arguments: JsonValue, name: str, shown: str
) -> None:
    function: JsonValue = {"name": "bash", "arguments": arguments}
    found = message({"role": "assistant", "content": None, "tool_calls": [{"function": function}]})

    assert found.calls == (talk.Call(name, shown),)
    assert found.words == ""


def test_parts_are_put_together_and_what_is_no_text_is_named() -> None:
    parts: JsonValue = [{"type": "text", "text": "look:"}, {"type": "image_url"}, "and"]

    assert message({"role": "user", "content": parts}).words == "look:\n[image_url]\nand"


@pytest.mark.parametrize("text", ["line\n" * 40, "x" * 3000])
def test_a_long_text_is_folded(text: str) -> None:
    assert message({"role": "tool", "content": text}).is_folded
    assert not message({"role": "tool", "content": "short"}).is_folded


@given(st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(
        st.sampled_from(["role", "content", "tool_calls", "function", "name", "arguments", "text"]),
        inner,
    ),
))  # fmt: skip
def test_any_json_is_shown(value: JsonValue) -> None:
    assert message(value).role


def test_what_was_looked_for_is_marked_and_everything_is_escaped() -> None:
    found = talk.highlighted("a <B> and a <b>", "<b>")

    assert found == "a <mark>&lt;B&gt;</mark> and a <mark>&lt;b&gt;</mark>"
    assert talk.highlighted("<i>", None) == "&lt;i&gt;"
