"""``bash``, ``read_file`` and ``write_file`` in an agent's sandbox."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from datetime import timedelta

from pydantic import JsonValue
from typing_extensions import override

from agent_env.sandboxes import ExecResult, Sandbox
from agent_env.tools.base import Tool, ToolAnswer, ToolError, ToolSpec, cut

_PATH: dict[str, JsonValue] = {
    "type": "string",
    "description": "Path in the sandbox, absolute or relative to the home folder.",
}


def _schema(**properties: JsonValue) -> dict[str, JsonValue]:
    return {
        "type": "object",
        "properties": properties,
        "required": list(properties),
        "additionalProperties": False,
    }


class _SandboxTool(Tool):
    def __init__(self, spec: ToolSpec, sandbox: Sandbox, max_bytes: int) -> None:
        super().__init__(spec)
        self._sandbox = sandbox
        self._max_bytes = max_bytes


class Bash(_SandboxTool):
    """Runs a command line."""

    SPEC = ToolSpec(
        name="bash",
        description="Run a command line with bash, in the sandbox's home folder. Answers with what "
        "it wrote, and with its exit code if that is not 0.",
        input_schema=_schema(command={"type": "string", "description": "The command line."}),
    )

    @override
    async def call(self, arguments: Mapping[str, JsonValue], *, timeout: timedelta) -> ToolAnswer:
        done = await self._sandbox.exec(
            ["bash", "-c", _text(arguments, "command")],
            timeout=timeout,
            max_output_bytes=self._max_bytes,
        )
        return ToolAnswer(
            cut(_shown(done, timeout), self._max_bytes), done.exit_code != 0 or done.timed_out
        )


class ReadFile(_SandboxTool):
    """Reads a text file."""

    SPEC = ToolSpec(
        name="read_file",
        description="Read a text file of the sandbox.",
        input_schema=_schema(path=_PATH),
    )

    @override
    async def call(self, arguments: Mapping[str, JsonValue], *, timeout: timedelta) -> ToolAnswer:
        path = _text(arguments, "path")
        try:
            data = await self._sandbox.read_file(path, max_bytes=self._max_bytes)
        except (OSError, ValueError) as error:
            raise ToolError(_said(error, path)) from error
        return ToolAnswer(data.decode(errors="replace"))


class WriteFile(_SandboxTool):
    """Writes a text file."""

    SPEC = ToolSpec(
        name="write_file",
        description="Write a text file of the sandbox, and the folders it needs; what was there "
        "is replaced.",
        input_schema=_schema(
            path=_PATH, content={"type": "string", "description": "The file's new content."}
        ),
    )

    @override
    async def call(self, arguments: Mapping[str, JsonValue], *, timeout: timedelta) -> ToolAnswer:
        path, content = _text(arguments, "path"), _text(arguments, "content")
        data = content.encode(errors="replace")
        try:
            await self._sandbox.write_file(path, data)
        except (OSError, ValueError) as error:
            raise ToolError(_said(error, path)) from error
        return ToolAnswer(f"wrote {len(data):,} bytes to {path}")


_TOOLS: Mapping[str, Callable[[Sandbox, int], Tool]] = {
    kind.SPEC.name: lambda sandbox, most, kind=kind: kind(kind.SPEC, sandbox, most)
    for kind in (Bash, ReadFile, WriteFile)
}


def sandbox_tools(sandbox: Sandbox, names: Sequence[str], *, max_bytes: int) -> list[Tool]:
    """The tools of these names in a sandbox."""
    return [_TOOLS[name](sandbox, max_bytes) for name in names]


def _text(arguments: Mapping[str, JsonValue], name: str) -> str:
    value = arguments.get(name)
    if not isinstance(value, str):
        raise ToolError(f"the argument {name!r} must be a string")
    return value


def _shown(done: ExecResult, timeout: timedelta) -> str:
    parts = [done.stdout.removesuffix("\n"), done.stderr.removesuffix("\n")]
    if done.timed_out:
        parts.append(f"killed after {timeout.total_seconds():g} s")
    elif done.exit_code != 0:
        parts.append(f"exit code {done.exit_code}")
    return "\n".join(part for part in parts if part)


def _said(error: Exception, path: str) -> str:
    if isinstance(error, FileNotFoundError):
        return f"there is no file {path!r}"
    return error.strerror or str(error) if isinstance(error, OSError) else str(error)
