"""Reads what a model said, in whichever form its client gives it, as an OpenAI message. Pure."""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any, NamedTuple, cast

from pydantic import JsonValue

from agent_env.errors import TurnError
from agent_env.turns import MAX_MESSAGE_BYTES, Usage

Message = dict[str, JsonValue]


class Call(NamedTuple):
    """A tool call of a message."""

    id: str
    name: str
    arguments: JsonValue
    """None if what the model wrote is no JSON."""


class Said(NamedTuple):
    """A message of a player."""

    message: Message
    calls: tuple[Call, ...]
    usage: Usage

    @property
    def text(self) -> str:
        """What it says, without its calls."""
        return text_of(self.message)


def said(
    message: str | Mapping[str, Any], *, model: str | None, usage: Mapping[str, Any] | None
) -> Said:
    """Read a message.

    Args:
        message: An OpenAI chat message, an Anthropic message, or text.
        model: Which model said it; None means what the message says.
        usage: Tokens, in OpenAI's or Anthropic's words; None means what the message says.

    Raises:
        TurnError: it can't be read, or is too large.
    """
    given: Mapping[str, Any] = {"content": message} if isinstance(message, str) else message
    try:
        plain: dict[str, Any] = json.loads(json.dumps(dict(given), allow_nan=False))
    except (TypeError, ValueError) as error:
        raise TurnError(f"the message can't be written as JSON: {error}") from None
    if plain.get("role", "assistant") != "assistant":
        raise TurnError(f"a model's message has the role 'assistant', not {plain['role']!r}")
    is_anthropic = plain.get("type") == "message" or _has_blocks(plain.get("content"))
    read = _of_anthropic(plain) if is_anthropic else {"role": "assistant", **plain}
    own_usage, own_model = (plain.get("usage"), plain.get("model")) if is_anthropic else (None,) * 2
    size = len(json.dumps(read).encode())
    if size > MAX_MESSAGE_BYTES:
        raise TurnError(
            f"the message is {size:,} bytes as JSON, over the limit of {MAX_MESSAGE_BYTES:,}"
        )
    return Said(cast(Message, read), _calls(read), _usage(usage or own_usage, model or own_model))


def text_of(message: Mapping[str, Any]) -> str:
    """The text of a message's content."""
    content = message.get("content")
    if isinstance(content, list):
        parts = cast("list[dict[str, Any]]", content)
        return "".join(str(part.get("text", "")) for part in parts)
    return content if isinstance(content, str) else ""


def _has_blocks(content: Any) -> bool:
    """Whether it has blocks that only Anthropic's messages have."""
    return isinstance(content, list) and any(
        isinstance(part, dict) and part.get("type") in ("tool_use", "thinking")
        for part in cast("list[Any]", content)
    )


def _of_anthropic(message: dict[str, Any]) -> dict[str, Any]:
    content: Any = message.get("content")
    blocks: list[dict[str, Any]] = (
        [{"type": "text", "text": content}] if isinstance(content, str) else content or []
    )
    try:
        texts = [block["text"] for block in blocks if block["type"] == "text"]
        thoughts = [block["thinking"] for block in blocks if block["type"] == "thinking"]
        calls = [
            {
                "id": block["id"],
                "type": "function",
                "function": {"name": block["name"], "arguments": json.dumps(block["input"])},
            }
            for block in blocks
            if block["type"] == "tool_use"
        ]
    except (KeyError, TypeError) as error:
        raise TurnError(f"the message has a block that can't be read: {error!r}") from None
    read: dict[str, Any] = {"role": "assistant", "content": "".join(texts) or None}
    if thoughts:
        read["reasoning_content"] = "\n".join(thoughts)
    if calls:
        read["tool_calls"] = calls
    return read


def _calls(message: Mapping[str, Any]) -> tuple[Call, ...]:
    found: list[Call] = []
    for call in message.get("tool_calls") or ():
        try:
            id, function = call["id"], call["function"]
            name, text = function["name"], function.get("arguments")
        except (KeyError, TypeError) as error:
            raise TurnError(f"the message has a tool call that can't be read: {error!r}") from None
        if not (isinstance(id, str) and id and isinstance(name, str)):
            raise TurnError("the message has a tool call without an id or a name")
        found.append(Call(id, name, parsed(text)))
    if len({call.id for call in found}) < len(found):
        raise TurnError("two tool calls of the message have one id")
    return tuple(found)


def parsed(text: Any) -> JsonValue:
    """The arguments of a call as a model wrote them; None if they are no JSON."""
    if not isinstance(text, str):
        return text or {}
    try:
        return json.loads(text or "{}")
    except ValueError:
        return None


def _usage(usage: Mapping[str, Any] | None, model: str | None) -> Usage:
    given = usage or {}

    def tokens(*keys: str) -> int:
        counts = [given[key] for key in keys if isinstance(given.get(key), int)]
        return max(0, *counts, 0)

    return Usage(
        model=model,
        prompt_tokens=tokens("prompt_tokens", "input_tokens"),
        completion_tokens=tokens("completion_tokens", "output_tokens"),
    )
