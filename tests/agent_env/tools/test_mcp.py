"""Tools of MCP servers: real ones, in a real sandbox and at an address, that misbehave."""

import asyncio
import contextlib
import json
import socket
from collections.abc import AsyncGenerator, Mapping
from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest
import uvicorn
from mcp.server.mcpserver import MCPServer
from pydantic import JsonValue

from agent_env.errors import StepFailedError
from agent_env.sandboxes import Sandbox, SandboxSpec
from agent_env.sandboxes.local import LocalProvider
from agent_env.steps.prompt_agent import McpServer
from agent_env.tools.base import Tool, ToolAnswer, ToolError
from agent_env.tools.mcp import Connections, TurnId

SERVER = Path(__file__).with_name("stdio_server.py")
TURN = TurnId("run-1", 1, "ask")
SOON = timedelta(seconds=20)


@pytest.fixture
async def connections() -> AsyncGenerator[Connections]:
    connections = Connections()
    yield connections
    await connections.close()


@pytest.fixture
async def sandbox(tmp_path: Path) -> AsyncGenerator[Sandbox]:
    provider = LocalProvider(tmp_path / "state")
    ref = await provider.create(SandboxSpec(type="local", name="box"), owner="run-1", key="k")
    sandbox = await provider.attach(ref)
    await sandbox.write_file("server.py", SERVER.read_bytes())
    yield sandbox
    await provider.destroy(ref)


def small(**env: str) -> Mapping[str, McpServer]:
    return {"small": McpServer(command=("python3", "server.py"), env=env)}


async def tools_of(
    connections: Connections,
    servers: Mapping[str, McpServer],
    sandbox: Sandbox | None = None,
    *,
    turn: TurnId = TURN,
    max_bytes: int = 10_000,
) -> dict[str, Tool]:
    found = await connections.tools(turn, servers, sandbox, max_bytes=max_bytes)
    return {tool.spec.name: tool for tool in found}


async def call(tool: Tool, timeout: timedelta = SOON, **arguments: JsonValue) -> ToolAnswer:
    async with asyncio.timeout(60):
        return await tool.call(arguments, timeout=timeout)


async def test_a_program_in_the_sandbox_offers_tools_and_keeps_what_it_knows(
    connections: Connections, sandbox: Sandbox
) -> None:
    tools = await tools_of(connections, small(WHO="me"), sandbox)

    assert [await call(tools["count"]) for _ in range(2)] == [("1", False), ("2", False)]
    again = await tools_of(connections, small(), sandbox)
    assert await call(again["count"]) == ("3", False)
    assert (await call(tools["where"])).content == "/home/agent me"
    assert await call(tools["fail"]) == ("it does not work", True)


async def test_each_turn_has_a_session_of_its_own(
    connections: Connections, sandbox: Sandbox
) -> None:
    first = await tools_of(connections, small(), sandbox)
    other = await tools_of(connections, small(), sandbox, turn=TurnId("run-1", 2, "ask"))

    assert [await call(tools["count"]) for tools in (first, other)] == [("1", False)] * 2


async def test_a_program_that_dies_is_told_of_and_started_anew(
    connections: Connections, sandbox: Sandbox
) -> None:
    tools = await tools_of(connections, small(), sandbox)
    await call(tools["count"])

    with pytest.raises(ToolError, match="'small' was lost while this tool ran"):
        await call(tools["die"])
    after = await call(tools["count"])

    assert isinstance(after.content, str)
    assert after.content.endswith("what it kept is gone.)\n1")


async def test_a_model_is_told_when_the_worker_lost_the_session(sandbox: Sandbox) -> None:
    after = Connections()
    found = await after.tools(TURN, small(), sandbox, max_bytes=1000, was_open=True)

    said = [str((await call(found[0])).content) for _ in range(2)]
    await after.close()

    assert said[0].endswith("what it kept is gone.)\n1")
    assert said[1] == "2"


async def test_a_tool_that_hangs_is_left_at_its_time(
    connections: Connections, sandbox: Sandbox
) -> None:
    tools = await tools_of(connections, small(), sandbox)

    with pytest.raises(ToolError, match=r"longer than 0\.2 s"):
        await call(tools["hang"], timedelta(seconds=0.2))


async def test_a_program_that_babbles_without_end_is_stopped(
    connections: Connections, sandbox: Sandbox
) -> None:
    tools = await tools_of(connections, small(), sandbox)

    with pytest.raises(ToolError, match=r"was lost|longer than"):
        await call(tools["babble"])


async def test_what_a_server_answers_is_cut(connections: Connections, sandbox: Sandbox) -> None:
    tools = await tools_of(connections, small(), sandbox, max_bytes=2000)

    much = (await call(tools["much"])).content
    picture = (await call(tools["picture"])).content

    assert isinstance(much, str)
    assert 2000 <= len(much) < 2100
    assert picture == [
        {"type": "text", "text": "look"},
        {"type": "image_url", "image_url": {"url": "data:image/png;base64,AAAA"}},
    ]


@pytest.mark.parametrize(
    ("server", "why"),
    [
        (McpServer(command=("no-such-program",)), "ended before|closed|Connection"),
        (McpServer(url="http://127.0.0.1:9/mcp"), "can't be used"),
    ],
)
async def test_a_server_that_is_not_there_fails_the_step(
    connections: Connections, sandbox: Sandbox, server: McpServer, why: str
) -> None:
    with pytest.raises(StepFailedError, match=why):
        await tools_of(connections, {"it": server}, sandbox)


async def test_nothing_of_a_session_is_left_when_it_is_closed(
    connections: Connections, sandbox: Sandbox
) -> None:
    await tools_of(connections, small(), sandbox)

    await connections.close("run-1")

    seen = await sandbox.exec(["sh", "-c", "cat /proc/[0-9]*/cmdline | tr '\\0' ' '"])
    assert "server.py" not in seen.stdout


# -- at an address


class Served:
    """A server of the official package, that can be restarted at its address."""

    def __init__(self, app: Any) -> None:
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port = int(free.getsockname()[1])
        self.url = f"http://127.0.0.1:{self.port}/mcp"
        self._app = app

    @contextlib.asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        server = uvicorn.Server(
            uvicorn.Config(self._app(), port=self.port, log_level="error", lifespan="auto")
        )
        task = asyncio.create_task(server._serve())  # pyright: ignore[reportPrivateUsage]
        while not server.started:
            await asyncio.sleep(0.01)
        try:
            yield
        finally:
            server.should_exit = server.force_exit = True
            await task


def official(*, json_response: bool) -> Any:
    server = MCPServer("official")
    counted: list[int] = []

    @server.tool()
    def count(by: int) -> str:  # pyright: ignore[reportUnusedFunction]
        """Count up."""
        counted.append(by)
        return str(sum(counted))

    @server.tool()
    def fail() -> str:  # pyright: ignore[reportUnusedFunction]
        """Fail."""
        raise ValueError("it does not work")

    return server.streamable_http_app(json_response=json_response)


@pytest.mark.parametrize("json_response", [True, False])
async def test_a_server_at_an_address_offers_tools(
    connections: Connections, json_response: bool
) -> None:
    served = Served(lambda: official(json_response=json_response))
    async with served.running():
        tools = await tools_of(connections, {"it": McpServer(url=served.url)})

        assert tools["count"].spec.description == "Count up."
        assert "by" in json.dumps(dict(tools["count"].spec.input_schema))
        assert await call(tools["count"], by=2) == ("2", False)
        assert await call(tools["count"], by=3) == ("5", False)
        failed = await call(tools["fail"])
        assert failed.is_error
        assert "fail" in str(failed.content)
        await connections.close()


async def test_a_server_that_forgot_the_session_is_connected_to_anew(
    connections: Connections,
) -> None:
    served = Served(lambda: official(json_response=True))
    async with served.running():
        tools = await tools_of(connections, {"it": McpServer(url=served.url)})
        assert await call(tools["count"], by=2) == ("2", False)
    async with served.running():
        after = await call(tools["count"], by=1)
        await connections.close()

    assert isinstance(after.content, str)
    assert after.content.endswith("what it kept is gone.)\n1")


async def test_an_answer_without_an_end_is_broken_off(connections: Connections) -> None:
    inner: Any = None

    async def endless(scope: Any, receive: Any, send: Any) -> None:
        if scope["type"] != "http" or scope["method"] != "POST":
            return await inner(scope, receive, send)
        body = b""
        while True:
            part = await receive()
            body += part.get("body", b"")
            if not part.get("more_body"):
                break
        if b"tools/call" not in body:
            sent = False

            async def again() -> Any:
                nonlocal sent
                if sent:
                    return await receive()
                sent = True
                return {"type": "http.request", "body": body, "more_body": False}

            return await inner(scope, again, send)
        headers = [(b"content-type", b"application/json")]
        await send({"type": "http.response.start", "status": 200, "headers": headers})
        with contextlib.suppress(Exception):
            for _ in range(1000):
                part = {"type": "http.response.body", "body": b" " * 65536, "more_body": True}
                await send(part)
                await asyncio.sleep(0)

    def app() -> Any:
        nonlocal inner
        inner = official(json_response=True)
        return endless

    served = Served(app)
    async with served.running():
        tools = await tools_of(connections, {"it": McpServer(url=served.url)})

        with pytest.raises(ToolError, match="over 8,388,607 bytes"):
            await call(tools["count"], by=1)
        await connections.close()
