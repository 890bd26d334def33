"""A recorded chat message as people read it. Pure; takes any JSON, since agents write it."""

from __future__ import annotations

import json
import re
from typing import NamedTuple

from markupsafe import Markup, escape
from pydantic import JsonValue

from agent_env.explorer import words
from agent_env.explorer.run_views import MessageView

FOLD_LINES = 24
FOLD_CHARACTERS = 2000
"""A text over either is folded, with its size."""


class Call(NamedTuple):
    """A tool that a message calls."""

    name: str
    arguments: str


class Shown(NamedTuple):
    """One message, ready to be written."""

    key: str
    step_id: str
    epoch: int
    role: str
    about: str
    """Which tool answers, or who speaks."""
    words: str
    is_prose: bool
    """Words of a person or a model; else what a tool said."""
    calls: tuple[Call, ...]
    is_folded: bool
    is_cut: bool

    @property
    def size(self) -> str:
        """How much there is to unfold."""
        return words.size(self.words)


def shown(view: MessageView) -> Shown:
    """A message, whatever its shape."""
    message = view.message if isinstance(view.message, dict) else {"content": view.message}
    role = _text(message.get("role")) or "message"
    name = _text(message.get("name")) or _text(message.get("tool_call_id"))
    content = said(message.get("content"))
    if refusal := _text(message.get("refusal")):
        content = f"{content}\n{refusal}".strip()
    is_prose = role in ("system", "developer", "user", "assistant")
    lines = content.count("\n") + 1
    return Shown(
        key=view.key,
        step_id=view.step_id,
        epoch=view.epoch,
        role=role,
        about=name,
        words=content,
        is_prose=is_prose,
        calls=_calls(message.get("tool_calls")),
        is_folded=lines > FOLD_LINES or len(content) > FOLD_CHARACTERS,
        is_cut=view.is_cut,
    )


def said(content: JsonValue) -> str:
    """The text of a message's content: a text, parts, or any JSON."""
    if content is None:
        return ""
    if isinstance(content, list):
        return "\n".join(_part(part) for part in content)
    return words.pretty(content)


def _part(part: JsonValue) -> str:
    if isinstance(part, dict) and isinstance(part.get("text"), str):
        return str(part["text"])
    if isinstance(part, dict) and isinstance(part.get("type"), str):
        return f"[{part['type']}]"
    return words.pretty(part)


def _calls(value: JsonValue) -> tuple[Call, ...]:
    if not isinstance(value, list):
        return ()
    return tuple(_call(each) for each in value)


def _call(value: JsonValue) -> Call:
    function = value.get("function") if isinstance(value, dict) else None
    if not isinstance(function, dict):
        return Call("call", words.pretty(value))
    name, arguments = _text(function.get("name")), _read(function.get("arguments"))
    if isinstance(arguments, dict) and len(arguments) == 1:
        key, only = next(iter(arguments.items()))
        if isinstance(only, str):
            return Call(f"{name} {key}", only)
    return Call(name, words.pretty(arguments))


def _read(arguments: JsonValue) -> JsonValue:
    """Arguments as a model writes them: JSON in a text, or what it took for JSON."""
    if not isinstance(arguments, str):
        return arguments
    try:
        read: JsonValue = json.loads(arguments)
    except (ValueError, RecursionError):
        return arguments
    return read


def _text(value: JsonValue) -> str:
    return value if isinstance(value, str) else ""


def highlighted(text: str, find: str | None) -> Markup:
    """The text with what was looked for marked."""
    text = words.visible(text)
    if not find:
        return escape(text)
    parts: list[Markup] = []
    end = 0
    for found in re.finditer(re.escape(words.visible(find)), text, re.IGNORECASE):
        parts += [escape(text[end : found.start()]), Markup("<mark>{}</mark>").format(found[0])]
        end = found.end()
    return Markup("").join([*parts, escape(text[end:])])
