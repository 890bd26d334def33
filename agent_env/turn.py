"""A turn, as the trainer that plays it holds it."""

from __future__ import annotations

import asyncio
import json
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any, NamedTuple

from pydantic import BaseModel, JsonValue
from temporalio.client import WorkflowHandle

from agent_env import names
from agent_env._messages import Call, Said, said, text_of
from agent_env._updates import OverError, asked
from agent_env.errors import TurnError, TurnOverError, bounded
from agent_env.runs import RunIndex
from agent_env.runs.conversations import Message, as_text
from agent_env.steps._output import encodable
from agent_env.tools.base import ToolSpec
from agent_env.turn_tools import EnvironmentTool, ToolResult, TurnTools, result_of
from agent_env.turns import (
    MAX_RESPONSE_CHARS,
    TOOL_TIMEOUT_S,
    CallRef,
    EndTurn,
    OpenTurn,
    Record,
    Recorded,
    RecordTurn,
)


class _Waiting(NamedTuple):
    """A call of the last message that the trainer has not made yet."""

    call: Call
    result: ToolResult | None
    """None while the message is held back."""


class Turn:
    """An agent's turn: its model reads ``messages``, acts through ``tools()``, and replies.

    Each of the model's calls is recorded with ``record_model_call()``; ``end()`` hands the turn
    back. Canceling a caller of any of them cancels nothing in the episode; calling it again goes on
    where that was.
    """

    def __init__(
        self,
        state: OpenTurn,
        messages: Sequence[Message],
        *,
        run_id: str,
        handle: WorkflowHandle[Any, Any],
        index: RunIndex,
    ) -> None:
        self.agent = state.agent
        """Whose turn it is."""
        self.step_id = state.turn.step_id
        self.messages: list[Message] = [_plain(message) for message in messages]
        """The conversation so far, as OpenAI chat messages, the prompts first."""
        self._state = state
        self._run_id = run_id
        self._handle = handle
        self._conversations = index.conversations
        self._seq = state.messages
        self._model_calls = state.model_calls
        self._held: Said | None = None
        self._waiting: list[_Waiting] = []
        self._lock = asyncio.Lock()
        self.is_open = True
        """Whether it has neither been ended nor been found to be over."""

    @property
    def prompt(self) -> str:
        """What the agent is asked to do."""
        return next(text_of(each) for each in self.messages if each["role"] == "user")

    @property
    def system_prompt(self) -> str | None:
        """What comes before the prompt."""
        first = self.messages[0]
        return text_of(first) if first["role"] == "system" else None

    def tools(self, *, timeout: float = TOOL_TIMEOUT_S) -> TurnTools:
        """What the turn can call; use it with ``async with``.

        Args:
            timeout: Longest one call may run, in seconds.
        """
        return TurnTools(self.step_id, self._offered, partial(self._call, timeout_s=timeout))

    async def record_model_call(
        self,
        message: str | Mapping[str, Any],
        *,
        model: str | None = None,
        usage: Mapping[str, Any] | None = None,
    ) -> None:
        """Record a model call that has returned.

        It is held back until the first of its tools is called, the next one is recorded or the turn
        ends, and then travels with that. From then on each call to a tool must be one that the
        message made, and all must be made before the next message or the end. Calls of tools that
        the turn does not offer are the trainer's own affair.

        Args:
            message: An OpenAI chat message, an Anthropic message, or text.
            model: Which model said it.
            usage: Tokens, as the model's server counts them.

        Raises:
            TurnError: the turn is over, the message can't be read, or calls of the last one have
                not been made.
        """
        read = said(message, model=model, usage=usage)
        async with self._lock:
            self._refuse_over()
            self._refuse_waiting("record the next message")
            await self._flush(TOOL_TIMEOUT_S)
            self._held = read
            self._waiting = [
                _Waiting(call, None) for call in read.calls if call.name in self._state.tools
            ]

    async def end(self, response: str | None = None) -> None:
        """Hand the turn back; the episode goes on. Does nothing once the turn is over.

        Args:
            response: The reply. None is an empty one.

        Raises:
            TurnError: calls of the last message have not been made. The turn stays open.
        """
        async with self._lock:
            if not self.is_open:
                return
            self._refuse_waiting("end the turn")
            reply = response or ""
            last = self._held.message if self._held is not None else self.messages[-1]
            is_new = bool(reply) and (last["role"] != "assistant" or text_of(last) != reply)
            if is_new and self._held is not None:
                await self._flush(TOOL_TIMEOUT_S)
            held = self._held or (said(reply, model=None, usage=None) if is_new else None)
            record = None if held is None else await self._kept(held, is_new_reply=is_new)
            order = EndTurn(
                turn=self._state.turn,
                seq=self._seq,
                record=record,
                response=bounded(encodable(reply), MAX_RESPONSE_CHARS),
            )
            try:
                await self._asked(names.END_TURN, order, "end", type(None))
            except TurnOverError:
                return
            self.is_open = False
            if held is not None:
                self.messages.append(held.message)

    async def _offered(self) -> dict[str, EnvironmentTool]:
        self._refuse_over()
        digest = self._state.tools_digest
        kept = digest and await asyncio.to_thread(self._conversations.kept, self._run_id, digest)
        specs = [ToolSpec.model_validate(each) for each in json.loads(kept or "[]")]
        return {
            spec.name: EnvironmentTool(spec.name, spec.description, dict(spec.input_schema))
            for spec in specs
        }

    async def _call(self, name: str, arguments: Mapping[str, Any], timeout_s: float) -> ToolResult:
        async with self._lock:
            self._refuse_over()
            wanted: Any = json.loads(json.dumps(dict(arguments)))
            if self._model_calls == 0 and self._held is None:
                return await self._call_freely(name, wanted, timeout_s)
            number = next(
                (
                    number
                    for number, (call, _) in enumerate(self._waiting)
                    if call.name == name and (call.arguments == wanted or call.arguments is None)
                ),
                None,
            )
            if number is None:
                made = [f"{call.name}({json.dumps(call.arguments)})" for call, _ in self._waiting]
                raise TurnError(
                    f"the last recorded message does not call {name} with these arguments; it "
                    f"still has to call: {bounded(', '.join(made), 500) or 'nothing'}"
                )
            if self._waiting[number].result is None:
                await self._flush(timeout_s)
            result = self._waiting.pop(number).result
            assert result is not None
            return result

    async def _call_freely(self, name: str, arguments: JsonValue, timeout_s: float) -> ToolResult:
        """Call a tool that no message of a model called."""
        call = {"name": name, "arguments": json.dumps(arguments)}
        own = said(
            {
                "role": "assistant",
                "content": None,
                "tool_calls": [{"id": f"call-{self._seq}", "type": "function", "function": call}],
            },
            model=None,
            usage=None,
        )
        (result,) = await self._recorded(own, timeout_s, by_model=False)
        return result

    async def _flush(self, timeout_s: float) -> None:
        """Send the message that is held back, and have all its tools run."""
        if self._held is None:
            return
        results = await self._recorded(self._held, timeout_s, by_model=True)
        self._waiting = [
            _Waiting(call, result) for (call, _), result in zip(self._waiting, results, strict=True)
        ]
        self._held = None
        self._model_calls += 1

    async def _recorded(
        self, message: Said, timeout_s: float, *, by_model: bool
    ) -> list[ToolResult]:
        record = await self._kept(message, by_model=by_model)
        order = RecordTurn(
            turn=self._state.turn, seq=self._seq, record=record, tool_timeout_s=timeout_s
        )
        answer = await self._asked(names.RECORD_TURN, order, record.digest, Recorded)
        there = await asyncio.to_thread(
            self._conversations.of_turn, self._run_id, self._state.turn, first=self._seq + 1
        )
        answers = there[: answer.messages - self._seq - 1]
        results = [result_of(each) for each in answers]
        self._seq = answer.messages
        self.messages += [message.message, *map(_plain, answers)]
        return results

    async def _kept(
        self, message: Said, *, by_model: bool = True, is_new_reply: bool = False
    ) -> Record:
        """Put a message into the index, where the episode finds it."""
        digest = await asyncio.to_thread(
            self._conversations.keep, self._run_id, as_text(message.message)
        )
        offered = [call for call in message.calls if call.name in self._state.tools]
        return Record(
            digest=digest,
            calls=tuple(CallRef(id=call.id, name=call.name) for call in offered),
            by_model=by_model and not is_new_reply,
            usage=message.usage,
        )

    async def _asked(self, update: str, order: BaseModel, what: str, answer: type[Any]) -> Any:
        key = self._state.turn
        id = f"{key.epoch}/{key.step_id}/{self._seq}/{what}"
        try:
            return await asked(self._handle, update, order, id=id, answer=answer)
        except (OverError, TurnOverError):
            self.is_open = False
            raise self._over() from None

    def _refuse_over(self) -> None:
        if not self.is_open:
            raise self._over()

    def _over(self) -> TurnOverError:
        return TurnOverError(f"the turn {self.step_id!r} of agent {self.agent!r} is over")

    def _refuse_waiting(self, what: str) -> None:
        if self._waiting:
            missing = ", ".join(call.name for call, _ in self._waiting)
            raise TurnError(
                f"the last message calls {missing}, which has not been called yet; call it, then "
                f"{what}"
            )


def _plain(message: Message) -> Message:
    """A message without what only the index is told."""
    return {key: value for key, value in message.items() if key != "is_error"}
