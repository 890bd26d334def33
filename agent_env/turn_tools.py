"""What a turn's player can call, and what it is answered."""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, cast

from pydantic import JsonValue

from agent_env.errors import TurnError
from agent_env.runs.conversations import Message


@dataclass(frozen=True)
class EnvironmentTool:
    """A tool that a turn offers, as Model Context Protocol describes tools."""

    name: str
    description: str
    inputSchema: dict[str, JsonValue]
    """JSON Schema of its arguments."""


@dataclass(frozen=True)
class ToolResult:
    """What a tool answered."""

    content: list[dict[str, Any]]
    """Parts, each with a ``type``: ``{"type": "text", "text": …}`` for text."""
    isError: bool = False
    """Whether it is an error for the model to read."""

    @property
    def text(self) -> str:
        """The text of all parts."""
        return "".join(part.get("text", "") for part in self.content)


class TurnTools:
    """What a turn can call. Its tools are known once it is entered."""

    def __init__(
        self,
        step_id: str,
        offered: Callable[[], Awaitable[dict[str, EnvironmentTool]]],
        call: Callable[[str, Mapping[str, Any]], Awaitable[ToolResult]],
    ) -> None:
        self._step_id = step_id
        self._offered = offered
        self._call = call
        self._tools: dict[str, EnvironmentTool] = {}

    async def __aenter__(self) -> TurnTools:
        self._tools = await self._offered()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        pass

    def list(self) -> list[EnvironmentTool]:
        """Every tool."""
        return [*self._tools.values()]

    async def call(self, name: str, arguments: Mapping[str, Any] | None = None) -> ToolResult:
        """Call a tool where the agent works. What goes wrong in it is the model's to read.

        All tools of one message are run with the first of them, one after the other.

        Raises:
            TurnError: there is no such tool, the last message made no such call, or the turn is
                over.
        """
        if name not in self._tools:
            raise TurnError(
                f"turn {self._step_id!r} offers no tool {name!r}; it offers "
                f"{sorted(self._tools) or 'none'}"
            )
        return await self._call(name, arguments or {})


def result_of(message: Message) -> ToolResult:
    """The answer that a message of a conversation holds."""
    content: Any = message["content"]
    parts = [{"type": "text", "text": content}] if isinstance(content, str) else content
    return ToolResult(cast("list[dict[str, Any]]", parts), message.get("is_error") is True)
