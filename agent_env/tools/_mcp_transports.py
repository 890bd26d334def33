"""How an MCP server is reached: as a program in a sandbox, or at an address. All is bounded."""

from __future__ import annotations

import asyncio
import os
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from typing import Any

import anyio
import httpx2
from mcp.client.streamable_http import streamable_http_client
from mcp.shared.message import SessionMessage
from mcp_types import jsonrpc_message_adapter
from typing_extensions import override

from agent_env.sandboxes import Sandbox

MAX_ANSWER_BYTES = 8 * 1024 * 1024 - 1
"""Largest single answer of a server, in bytes."""
_MAX_WAITING = 1000
"""Most messages of a program that wait to be read."""

Streams = tuple[Any, Any]
"""What a session reads from and writes to."""


@asynccontextmanager
async def program(
    sandbox: Sandbox, argv: Sequence[str], env: Mapping[str, str]
) -> AsyncGenerator[Streams]:
    """A server that runs in a sandbox while entered, and speaks over stdin and stdout."""
    to_session, read = anyio.create_memory_object_stream[SessionMessage | Exception](_MAX_WAITING)
    write, from_session = anyio.create_memory_object_stream[SessionMessage](0)

    def on_line(line: bytes) -> None:
        if len(line) >= MAX_ANSWER_BYTES:
            raise ValueError(f"an MCP server said over {MAX_ANSWER_BYTES:,} bytes at once")
        try:
            message = SessionMessage(jsonrpc_message_adapter.validate_json(line, by_name=False))
        except ValueError:
            return  # a program that also talks to people
        to_session.send_nowait(message)

    theirs, ours = os.pipe()
    writer = await _writer(ours)
    running = asyncio.create_task(sandbox.serve(argv, stdin=theirs, on_line=on_line, env=env))

    async def forward() -> None:
        with suppress(OSError):
            async for message in from_session:
                text = message.message.model_dump_json(by_alias=True, exclude_unset=True)
                writer.write(text.encode() + b"\n")
                await writer.drain()

    def over(_: asyncio.Task[Any]) -> None:
        # The session learns from it that nobody will answer.
        to_session.close()

    running.add_done_callback(over)
    forwarding = asyncio.create_task(forward())
    try:
        yield read, write
    finally:
        for task in (forwarding, running):
            task.cancel()
        await asyncio.wait([forwarding, running])
        for task in (forwarding, running):
            if not task.cancelled():
                task.exception()  # its end was the news
        writer.close()
        for stream in (to_session, read, write, from_session):
            stream.close()


@asynccontextmanager
async def address(
    url: str, headers: Mapping[str, str], *, on_lost: Callable[[], None]
) -> AsyncGenerator[Streams]:
    """A server at an address that speaks streamable HTTP.

    Args:
        url: The address.
        headers: Sent with each request.
        on_lost: Called when the server does not know the session any more, by its status: what it
            says of that differs.
    """
    timeout = httpx2.Timeout(30, read=None)  # a call has its own
    transport = _Bounded(httpx2.AsyncHTTPTransport(), on_lost)
    client = httpx2.AsyncClient(headers=dict(headers), timeout=timeout, transport=transport)
    async with client, streamable_http_client(url, http_client=client) as streams:
        yield streams


class _Bounded(httpx2.AsyncBaseTransport):
    """Breaks an answer off that has no end. A stream of events has a bound for each event."""

    def __init__(self, inner: httpx2.AsyncBaseTransport, on_lost: Callable[[], None]) -> None:
        self._inner = inner
        self._on_lost = on_lost

    @override
    async def handle_async_request(self, request: httpx2.Request) -> httpx2.Response:
        response = await self._inner.handle_async_request(request)
        if response.status_code == 404 and "mcp-session-id" in request.headers:
            self._on_lost()
        if response.headers.get("content-type", "").startswith("text/event-stream"):
            return response
        return httpx2.Response(
            response.status_code,
            headers=response.headers,
            stream=_BoundedStream(response.stream),
            extensions=response.extensions,
        )

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


class _BoundedStream(httpx2.AsyncByteStream):
    def __init__(self, inner: Any) -> None:
        self._inner = inner

    @override
    async def __aiter__(self) -> AsyncIterator[bytes]:
        seen = 0
        async for part in self._inner:
            seen += len(part)
            if seen > MAX_ANSWER_BYTES:
                raise httpx2.StreamError(f"the answer has over {MAX_ANSWER_BYTES:,} bytes")
            yield part

    @override
    async def aclose(self) -> None:
        await self._inner.aclose()


async def _writer(fd: int) -> asyncio.StreamWriter:
    loop = asyncio.get_running_loop()
    transport, protocol = await loop.connect_write_pipe(
        lambda: asyncio.StreamReaderProtocol(asyncio.StreamReader()), os.fdopen(fd, "wb")
    )
    return asyncio.StreamWriter(transport, protocol, None, loop)
