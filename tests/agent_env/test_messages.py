"""What a model said is read in whichever form its client gives it."""

from typing import Any

import pytest

from agent_env._messages import said
from agent_env.errors import TurnError
from agent_env.turns import MAX_MESSAGE_BYTES


def read(message: Any, **more: Any) -> Any:
    return said(message, **{"model": None, "usage": None, **more})


def test_text_is_an_assistants_message() -> None:
    assert read("hello").message == {"role": "assistant", "content": "hello"}


def test_an_openai_message_stays_as_it_is() -> None:
    call = {"id": "c", "type": "function", "function": {"name": "bash", "arguments": '{"a": 1}'}}
    message = {"role": "assistant", "content": None, "tool_calls": [call], "refusal": None}

    found = read(message, model="m", usage={"prompt_tokens": 3, "completion_tokens": 4})

    assert found.message == message
    assert [tuple(call) for call in found.calls] == [("c", "bash", {"a": 1})]
    assert (found.usage.model, found.usage.prompt_tokens, found.usage.completion_tokens) == (
        "m",
        3,
        4,
    )


def test_an_anthropic_message_becomes_an_openai_one() -> None:
    found = read(
        {
            "type": "message",
            "role": "assistant",
            "model": "claude",
            "usage": {"input_tokens": 5, "output_tokens": 6},
            "content": [
                {"type": "thinking", "thinking": "hm"},
                {"type": "text", "text": "I look"},
                {"type": "tool_use", "id": "t", "name": "bash", "input": {"command": "ls"}},
            ],
        }
    )

    assert found.message["content"] == "I look"
    assert found.message["reasoning_content"] == "hm"
    assert [tuple(call) for call in found.calls] == [("t", "bash", {"command": "ls"})]
    assert (found.usage.model, found.usage.prompt_tokens) == ("claude", 5)


@pytest.mark.parametrize(
    ("message", "why"),
    [
        ({"role": "user", "content": "x"}, "role 'assistant', not 'user'"),
        ({"content": object()}, "as JSON"),
        ({"content": float("nan")}, "as JSON"),
        ({"content": "x" * MAX_MESSAGE_BYTES}, "over the limit"),
        ({"tool_calls": [{"id": "c"}]}, "can't be read"),
        ({"tool_calls": [{"id": "", "function": {"name": "a"}}]}, "without an id"),
        ({"tool_calls": [{"id": "c", "function": {"name": "a"}}] * 2}, "one id"),
        ({"type": "message", "content": [{"type": "text"}]}, "can't be read"),
    ],
)
def test_what_can_not_be_read_is_refused(message: Any, why: str) -> None:
    with pytest.raises(TurnError, match=why):
        read(message)


def test_arguments_that_are_no_json_are_the_models_to_hear_of() -> None:
    call = {"id": "c", "function": {"name": "bash", "arguments": "{oops"}}

    assert read({"tool_calls": [call]}).calls[0].arguments is None
