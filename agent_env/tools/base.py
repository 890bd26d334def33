"""The contract of tools: what one says of itself, takes, and answers."""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Mapping
from datetime import timedelta
from typing import NamedTuple

from pydantic import JsonValue

from agent_env._model import WireModel

Content = str | list[JsonValue]
"""What a tool says: text, or parts as those of an OpenAI chat message."""


class ToolSpec(WireModel):
    """What a model is told of a tool."""

    name: str
    description: str
    input_schema: Mapping[str, JsonValue]
    """JSON Schema of its arguments."""


class ToolAnswer(NamedTuple):
    """What a tool answered. An error is the model's to read, never the episode's to die of."""

    content: Content
    is_error: bool = False


class Tool(ABC):
    """One tool of one turn."""

    def __init__(self, spec: ToolSpec) -> None:
        self.spec = spec

    @abstractmethod
    async def call(self, arguments: Mapping[str, JsonValue], *, timeout: timedelta) -> ToolAnswer:
        """Run it, once. Canceling this stops it.

        Args:
            arguments: As the model wrote them; they need not fit the schema.
            timeout: Longest it may run.

        Raises:
            SandboxUnavailableError: the sandbox's provider can't serve now. Safe to retry.
            SandboxLostError: the sandbox is gone.
            ToolError: what the model is to read.
        """


class ToolError(Exception):
    """A call that a tool refuses or can't do; the model reads the message."""


def cut(text: str, max_bytes: int) -> str:
    """The text's last bytes, with a mark where it was cut."""
    data = text.encode("utf-8", "surrogatepass")
    if len(data) <= max_bytes:
        return text
    kept = data[-max_bytes:].decode("utf-8", "ignore")
    return f"… {len(data) - max_bytes:,} bytes cut …\n{kept}"
