"""``bash``, ``read_file`` and ``write_file``, in a real sandbox: what a model reads of them."""

from collections.abc import AsyncGenerator
from datetime import timedelta
from pathlib import Path

import pytest
from pydantic import JsonValue

from agent_env.sandboxes import Sandbox, SandboxSpec
from agent_env.sandboxes.local import LocalProvider
from agent_env.tools import Tool, ToolAnswer, sandbox_tools
from agent_env.tools.base import ToolError

NAMES = ["bash", "read_file", "write_file"]


@pytest.fixture
async def tools(tmp_path: Path) -> AsyncGenerator[dict[str, Tool]]:
    provider = LocalProvider(tmp_path)
    ref = await provider.create(SandboxSpec(type="local", name="box"), owner="run-1", key="k")
    sandbox: Sandbox = await provider.attach(ref)
    yield {tool.spec.name: tool for tool in sandbox_tools(sandbox, NAMES, max_bytes=1024)}
    await provider.destroy(ref)


async def call(tool: Tool, timeout_s: float = 30, **arguments: JsonValue) -> ToolAnswer:
    return await tool.call(arguments, timeout=timedelta(seconds=timeout_s))


async def test_a_command_answers_with_what_it_wrote(tools: dict[str, Tool]) -> None:
    assert await call(tools["bash"], command="echo a; echo b >&2") == ("a\nb", False)


async def test_a_command_that_fails_says_its_exit_code(tools: dict[str, Tool]) -> None:
    assert await call(tools["bash"], command="echo a; exit 3") == ("a\nexit code 3", True)


async def test_a_command_that_takes_too_long_is_killed(tools: dict[str, Tool]) -> None:
    answer = await call(tools["bash"], 0.3, command="echo a; sleep 60")

    assert answer == ("a\nkilled after 0.3 s", True)


async def test_long_output_keeps_its_end(tools: dict[str, Tool]) -> None:
    answer = await call(tools["bash"], command="seq 10000")

    assert isinstance(answer.content, str)
    assert answer.content.endswith("9999\n10000")
    assert "bytes cut" in answer.content
    assert len(answer.content) < 1200


async def test_a_file_that_was_written_is_read(tools: dict[str, Tool]) -> None:
    wrote = await call(tools["write_file"], path="a/b.txt", content="héllo")

    assert wrote == ("wrote 6 bytes to a/b.txt", False)
    assert await call(tools["read_file"], path="/home/agent/a/b.txt") == ("héllo", False)


@pytest.mark.parametrize(
    ("name", "arguments", "why"),
    [
        ("read_file", {"path": "none"}, "there is no file 'none'"),
        ("read_file", {"path": "/home"}, "."),
        ("read_file", {"path": "big"}, "at most 1,024 can be read"),
        ("read_file", {}, "'path' must be a string"),
        ("write_file", {"path": "a", "content": 1}, "'content' must be a string"),
        ("write_file", {"path": "/etc/passwd", "content": ""}, "."),
        ("bash", {"command": ["ls"]}, "'command' must be a string"),
    ],
)
async def test_what_a_tool_can_not_do_is_the_models_to_read(
    tools: dict[str, Tool], name: str, arguments: dict[str, JsonValue], why: str
) -> None:
    await call(tools["write_file"], path="big", content="x" * 2000)

    with pytest.raises(ToolError, match=why):
        await tools[name].call(arguments, timeout=timedelta(seconds=30))
