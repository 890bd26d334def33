"""A turn's side on the host: writes the conversation down and runs the tools. No Temporal."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from datetime import timedelta
from typing import Any, cast

from pydantic import JsonValue

from agent_env._model import validated
from agent_env.errors import (
    AgentEnvError,
    InvalidSpecError,
    SandboxLostError,
    StepFailedError,
    TurnError,
    error_text,
    error_type,
)
from agent_env.results import SandboxRef, StepReport
from agent_env.runs import RunIndex
from agent_env.runs.conversations import Message
from agent_env.sandboxes import Providers, Sandbox
from agent_env.seeds import seeded
from agent_env.steps._attempt import failure
from agent_env.steps.prompt_agent import SANDBOX_TOOLS, PromptAgentParams
from agent_env.tools import Tool, ToolAnswer, sandbox_tools
from agent_env.tools.base import ToolError
from agent_env.tools.mcp import Connections, TurnId
from agent_env.turns import BeginTurn, PlayTurn, Recorded, TurnBegun, TurnKey, TurnPlace

_MARGIN_S = 30.0
"""How much longer than its timeout a tool may take to say that it was killed."""
_CUT_OFF = (
    "the worker died while this tool ran; it may have done part of its work, and is not run again"
)


class TurnRunner:
    """Turns on one host. Everything may be run again after it was cut off anywhere.

    Args:
        index: Where conversations are.
        providers: The sandbox providers.
    """

    def __init__(self, index: RunIndex, providers: Providers) -> None:
        self._conversations = index.conversations
        self._providers = providers
        self._connections = Connections()

    async def close(self, run_id: str | None = None) -> None:
        """Let go of what the turns of a run hold on this host; None means of all runs."""
        await self._connections.close(run_id)

    async def begin(self, order: BeginTurn) -> TurnBegun:
        """Write the prompt down, and say which tools there are.

        Raises:
            SandboxUnavailableError, IndexUnavailableError: not now. Safe to retry.
        """
        try:
            params = _params(order)
            tools = await self._tools(order, params)
        except AgentEnvError as error:
            if error.retryable:
                raise
            return TurnBegun(failure=_failed(order, error))
        said: list[Message] = [{"role": "user", "content": params.prompt}]
        if params.system_prompt is not None:
            said.insert(0, {"role": "system", "content": params.system_prompt})
        await self._write(order, dict(enumerate(said)))
        digest = await asyncio.to_thread(
            self._conversations.keep,
            order.run_id,
            json.dumps([tool.spec.model_dump(mode="json") for tool in tools]),
        )
        return TurnBegun(
            agent=params.agent_name,
            messages=len(said),
            tools=tuple(tool.spec.name for tool in tools),
            tools_digest=digest,
        )

    async def play(self, order: PlayTurn, *, is_rerun: bool) -> Recorded:
        """Write a message down, and run its tools one after the other.

        What an attempt that was cut off has finished stays as it is.

        Args:
            order: The message and its calls.
            is_rerun: Whether an attempt before this one was cut off.

        Raises:
            TurnError: there is no such message.
            SandboxUnavailableError, IndexUnavailableError: not now. Safe to retry.
        """
        message, answered = await self._taken_up(order)
        failed = [
            ref.id
            for ref, answer in zip(order.record.calls, answered, strict=False)
            if answer.get("is_error")
        ]
        tools: dict[str, Tool] | None = None
        for number, ref in enumerate(order.record.calls):
            if number < len(answered):
                continue
            if is_rerun and number == len(answered) and not order.spec.rerun:
                answer = ToolAnswer(_CUT_OFF, is_error=True)
            else:
                if tools is None:
                    found = await self._tools(order, _params(order))
                    tools = {tool.spec.name: tool for tool in found}
                answer = await self._called(order, tools.get(ref.name), _arguments(message, ref.id))
            said: Message = {
                "role": "tool",
                "tool_call_id": ref.id,
                "name": ref.name,
                "content": answer.content,
            }
            if answer.is_error:
                said["is_error"] = True
                failed.append(ref.id)
            await self._write(order, {order.seq + 1 + number: said})
        return Recorded(messages=order.seq + 1 + len(order.record.calls), failed=tuple(failed))

    async def _called(
        self, order: PlayTurn, tool: Tool | None, arguments: Mapping[str, JsonValue] | None
    ) -> ToolAnswer:
        """A tool's answer, whatever it does; only what can be tried again is raised."""
        if tool is None:
            return ToolAnswer("there is no such tool any more", is_error=True)
        if arguments is None:
            return ToolAnswer("the arguments are not a JSON object", is_error=True)
        try:
            async with asyncio.timeout(order.tool_timeout_s + _MARGIN_S):
                return await tool.call(arguments, timeout=timedelta(seconds=order.tool_timeout_s))
        except TimeoutError:
            return ToolAnswer(f"took longer than {order.tool_timeout_s:g} s", is_error=True)
        except (ToolError, SandboxLostError) as error:
            return ToolAnswer(error_text(error), is_error=True)
        except AgentEnvError as error:
            if error.retryable:
                raise
            return ToolAnswer(error_text(error), is_error=True)
        except Exception as error:  # a tool may be foreign code
            return ToolAnswer(f"{error_type(error)}: {error_text(error)}", is_error=True)

    async def _taken_up(self, order: PlayTurn) -> tuple[Message, Sequence[Message]]:
        """The message, now part of the conversation, and the answers that follow it already."""
        digest = order.record.digest
        text = await asyncio.to_thread(self._conversations.kept, order.run_id, digest)
        if text is not None:
            message = _message(text)
            await self._write(order, {order.seq: message}, taken_up=digest)
            return message, ()
        there = await asyncio.to_thread(
            self._conversations.of_turn, order.run_id, _key(order), first=order.seq
        )
        if not there:
            raise TurnError("the message of this record is not in the run index; record it again")
        return there[0], there[1:]

    async def _write(
        self, order: TurnPlace, said: Mapping[int, Message], *, taken_up: str | None = None
    ) -> None:
        usage = order.usage if isinstance(order, PlayTurn) else None
        await asyncio.to_thread(
            self._conversations.write,
            order.run_id,
            _key(order),
            said,
            taken_up=taken_up,
            usage=usage,
        )

    async def _tools(self, order: TurnPlace, params: PromptAgentParams) -> list[Tool]:
        sandbox = await self._sandbox(order, params)
        names = params.tools if params.tools is not None else SANDBOX_TOOLS
        found: list[Tool] = []
        if sandbox is not None:
            found += sandbox_tools(sandbox, names, max_bytes=params.max_output_bytes)
        found += await self._connections.tools(
            TurnId(order.run_id, order.epoch, order.spec.id),
            params.mcp_servers,
            sandbox,
            max_bytes=params.max_output_bytes,
            was_open=isinstance(order, PlayTurn),
        )
        offered = [tool.spec.name for tool in found]
        if twice := sorted(name for name in {*offered} if offered.count(name) > 1):
            raise StepFailedError(
                f"two tools are called {twice[0]!r}; name fewer in tools, or use one server less"
            )
        return found

    async def _sandbox(self, order: TurnPlace, params: PromptAgentParams) -> Sandbox | None:
        """The sandbox that the agent works in; None if it has none."""
        refs = {ref.name: ref for report in order.reports for ref in report.sandboxes}
        ref: SandboxRef | None = None
        if params.sandbox_name is not None:
            ref = refs.get(params.sandbox_name)
            if ref is None:
                raise StepFailedError(
                    f"there is no sandbox {params.sandbox_name!r}; deployed before this step: "
                    f"{sorted(refs) or 'none'}"
                )
        elif len(refs) == 1:
            (ref,) = refs.values()
        elif refs and params.tools != ():
            raise StepFailedError(f"no sandbox_name is given; there are {sorted(refs)}")
        if ref is None:
            return None
        return await self._providers.open(ref.type).attach(ref)


def _params(order: TurnPlace) -> PromptAgentParams:
    return validated(PromptAgentParams, seeded(order.spec, order.seed).params)


def _key(order: TurnPlace) -> TurnKey:
    return TurnKey(step_id=order.spec.id, epoch=order.epoch)


def _failed(order: TurnPlace, error: AgentEnvError) -> StepReport:
    return StepReport.model_validate(
        {
            "step_id": order.spec.id,
            "type": order.spec.type,
            "epoch": order.epoch,
            **failure(error),
        }
    )


def _message(text: str) -> Message:
    try:
        found: object = json.loads(text)
    except ValueError:
        found = None
    if not isinstance(found, dict):
        raise InvalidSpecError.of("message", "is no JSON object")
    return cast(Message, found)


def _arguments(message: Message, call_id: str) -> Mapping[str, JsonValue] | None:
    """The arguments of a call of an OpenAI message; None if they can't be read."""
    calls: Any = message.get("tool_calls") or []
    for call in calls:
        if call.get("id") != call_id:
            continue
        try:
            found: object = json.loads(call["function"].get("arguments") or "{}")
        except (ValueError, KeyError, TypeError, AttributeError):
            return None
        return cast("dict[str, JsonValue]", found) if isinstance(found, dict) else None
    return None
