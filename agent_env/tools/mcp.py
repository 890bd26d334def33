"""Tools of MCP servers: each server is connected to once a turn, and again when that is lost."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import TYPE_CHECKING, Any, NamedTuple, cast

from pydantic import JsonValue
from typing_extensions import override

from agent_env.errors import StepFailedError, bounded, error_text, error_type, root_cause
from agent_env.sandboxes import Sandbox
from agent_env.steps.prompt_agent import McpServer
from agent_env.tools.base import Content, Tool, ToolAnswer, ToolError, ToolSpec, cut

if TYPE_CHECKING:
    from mcp import ClientSession
    from mcp_types import CallToolResult

CONNECT_S = 60.0
"""Longest a server may take to start and to list its tools, in seconds."""
_CLOSE_S = 10.0
_MAX_TOOLS = 500
_MAX_IMAGE_BYTES = 512 * 1024
"""Largest image that is kept, in bytes as base64."""
_LOST = "the MCP server {!r} was lost while this tool ran, which may have done part of its work: {}"
_ANEW = "(The MCP server had been lost and was connected to anew: what it kept is gone.)"


class TurnId(NamedTuple):
    """Whose connection it is."""

    run_id: str
    epoch: int
    step_id: str


class Connections:
    """The connections of the turns on this host."""

    def __init__(self) -> None:
        self._open: dict[tuple[TurnId, str], _Connection] = {}

    async def tools(
        self,
        turn: TurnId,
        servers: Mapping[str, McpServer],
        sandbox: Sandbox | None,
        *,
        max_bytes: int,
        was_open: bool = False,
    ) -> list[Tool]:
        """The tools of all servers.

        Args:
            turn: Whose they are.
            servers: Of the turn, by name.
            sandbox: Where the agent works.
            max_bytes: What is kept of an answer.
            was_open: Whether they were connected to before: a model is told that what a server
                kept is gone, when there is no such connection any more.

        Raises:
            StepFailedError: a server can't be connected to, or does not say which tools it has.
        """
        found: list[Tool] = []
        for name, server in servers.items():
            key = (turn, name)
            if key not in self._open:
                self._open[key] = _Connection(name, server, sandbox, was_open=was_open)
            connection = self._open[key]
            try:
                specs = await connection.specs()
            except (ToolError, TimeoutError) as error:
                await self._closed(key)
                raise StepFailedError(
                    f"the MCP server {name!r} can't be used: {error_text(error)}"
                ) from error
            found += [_McpTool(spec, connection, max_bytes) for spec in specs]
        return found

    async def close(self, run_id: str | None = None) -> None:
        """End the connections of a run; None means all."""
        keys = [key for key in self._open if run_id in (None, key[0].run_id)]
        await asyncio.gather(*map(self._closed, keys))

    async def _closed(self, key: tuple[TurnId, str]) -> None:
        connection = self._open.pop(key, None)
        if connection is not None:
            await connection.close()


class _Connection:
    """One server. Its session lives in a task of its own, from connecting to closing."""

    def __init__(
        self, name: str, server: McpServer, sandbox: Sandbox | None, *, was_open: bool
    ) -> None:
        self._name = name
        self._server = server
        self._sandbox = sandbox
        self._task: asyncio.Task[None] | None = None
        self._session: ClientSession | None = None
        self._specs: list[ToolSpec] = []
        self._closing = asyncio.Event()
        self._lock = asyncio.Lock()
        self._was_open = was_open
        self._is_anew = False
        self._is_lost = False

    async def specs(self) -> list[ToolSpec]:
        """What the server offers; connects to it if it is not."""
        await self._connected()
        return self._specs

    async def call(
        self, name: str, arguments: Mapping[str, JsonValue], timeout: timedelta
    ) -> tuple[CallToolResult, bool]:
        """Call a tool; whether that was a new session, without what the one before had kept.

        Raises:
            ToolError: what the model is to read.
        """
        from mcp.shared.exceptions import MCPError
        from mcp_types import CONNECTION_CLOSED

        for is_last in (False, True):
            session = await self._connected()
            try:
                async with asyncio.timeout(timeout.total_seconds()):
                    result = await session.call_tool(name, dict(arguments))
            except TimeoutError:
                limit_s = timeout.total_seconds()
                raise ToolError(f"took longer than {limit_s:g} s") from None
            except MCPError as error:
                if self._is_lost and not is_last:
                    # The server knows no such session, so it has done nothing of this.
                    await self.close()
                    continue
                if error.code == CONNECTION_CLOSED:
                    await self.close()
                    raise ToolError(_LOST.format(self._name, error.message)) from None
                raise ToolError(bounded(error.message)) from None
            except Exception as error:  # the package raises whatever its streams do
                await self.close()
                raise ToolError(_LOST.format(self._name, _said(error))) from None
            is_anew, self._is_anew = self._is_anew, False
            return result, is_anew
        raise AssertionError("unreachable")

    async def close(self) -> None:
        """End the session, and the program if it is one."""
        task, self._task, self._session = self._task, None, None
        if task is None:
            return
        self._closing.set()
        await asyncio.wait([task], timeout=_CLOSE_S)
        task.cancel()
        await asyncio.wait([task])
        if not task.cancelled():
            task.exception()

    async def _connected(self) -> ClientSession:
        async with self._lock:
            if self._task is not None and self._task.done():
                await self.close()
            if self._session is None or self._task is None:
                ready = asyncio.get_running_loop().create_future()
                self._closing = asyncio.Event()
                self._is_lost = False
                self._task = asyncio.create_task(self._live(ready, self._closing))
                try:
                    async with asyncio.timeout(CONNECT_S):
                        await asyncio.wait([self._task, ready], return_when=asyncio.FIRST_COMPLETED)
                except TimeoutError:
                    await self.close()
                    raise ToolError(f"it is not ready after {CONNECT_S:g} s") from None
                if not ready.done():
                    error = None if self._task.cancelled() else self._task.exception()
                    self._task = None
                    raise ToolError(_said(error) if error else "it ended before it was ready")
                self._session, self._specs = ready.result()
                self._is_anew = self._is_anew or self._was_open
                self._was_open = True
            session = self._session
            assert session is not None
            return session

    def _lost(self) -> None:
        self._is_lost = True

    async def _live(self, ready: asyncio.Future[Any], closing: asyncio.Event) -> None:
        from mcp import ClientSession

        from agent_env.tools import _mcp_transports

        server = self._server
        if server.url is not None:
            transport = _mcp_transports.address(server.url, server.headers, on_lost=self._lost)
        elif self._sandbox is not None:
            transport = _mcp_transports.program(self._sandbox, server.command or (), server.env)
        else:
            raise ToolError("it is a program, and the agent has no sandbox")
        async with transport as (read, write), ClientSession(read, write) as session:
            await session.initialize()
            ready.set_result((session, await _listed(session)))
            await closing.wait()


class _McpTool(Tool):
    def __init__(self, spec: ToolSpec, connection: _Connection, max_bytes: int) -> None:
        super().__init__(spec)
        self._connection = connection
        self._max_bytes = max_bytes

    @override
    async def call(self, arguments: Mapping[str, JsonValue], *, timeout: timedelta) -> ToolAnswer:
        result, is_anew = await self._connection.call(self.spec.name, arguments, timeout)
        content = _content(result, self._max_bytes)
        if is_anew and isinstance(content, str):
            content = f"{_ANEW}\n{content}"
        elif is_anew:
            note: list[JsonValue] = [{"type": "text", "text": _ANEW}]
            content = [*note, *content]
        return ToolAnswer(content, bool(result.is_error))


async def _listed(session: ClientSession) -> list[ToolSpec]:
    from mcp_types import PaginatedRequestParams

    found: list[ToolSpec] = []
    cursor: str | None = None
    while True:
        params = PaginatedRequestParams(cursor=cursor) if cursor else None
        page = await session.list_tools(params=params)
        found += [
            ToolSpec(name=t.name, description=t.description or "", input_schema=t.input_schema)
            for t in page.tools
        ]
        cursor = page.next_cursor
        if cursor is None or len(found) >= _MAX_TOOLS:
            return found[:_MAX_TOOLS]


def _content(result: CallToolResult, max_bytes: int) -> Content:
    """What the model reads of an answer: text where it is all text."""
    blocks = cast("Sequence[Any]", result.content)
    if not blocks and result.structured_content is not None:
        return cut(json.dumps(result.structured_content, ensure_ascii=False), max_bytes)
    if all(block.type == "text" for block in blocks):
        return cut("\n".join(block.text for block in blocks), max_bytes)
    parts: list[JsonValue] = []
    left, image_left = max_bytes, _MAX_IMAGE_BYTES
    for block in blocks:
        if block.type == "image" and len(block.data) <= image_left:
            image_left -= len(block.data)
            url = f"data:{block.mime_type};base64,{block.data}"
            parts.append({"type": "image_url", "image_url": {"url": url}})
            continue
        text = block.text if block.type == "text" else _described(block)
        if left > 0:
            parts.append({"type": "text", "text": cut(text, left)})
            left -= len(text.encode("utf-8", "replace"))
    return parts


def _described(block: Any) -> str:
    if block.type in ("image", "audio"):
        return f"({block.type} of {len(block.data):,} bytes as base64, left out)"
    return block.model_dump_json(by_alias=True, exclude_none=True)


def _said(error: BaseException) -> str:
    error = root_cause(error)
    return bounded(error_text(error) or error_type(error), 1000)
