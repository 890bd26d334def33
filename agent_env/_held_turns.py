"""The turns that one trainer plays of one episode."""

from __future__ import annotations

import asyncio
import secrets
from typing import Any

from temporalio.client import WorkflowHandle
from temporalio.service import RPCError

from agent_env import names
from agent_env._updates import OverError, asked
from agent_env.errors import TurnError
from agent_env.runs import RunIndex
from agent_env.turn import Turn
from agent_env.turns import NextTurn, OpenTurn, OpenTurns, TurnKey, TurnOffer

ASK_AGAIN_S = 0.2
"""Until an episode that goes on in a new execution is asked again, in seconds."""


class HeldTurns:
    """Asks for turns, one caller after the other, and keeps those that are open."""

    def __init__(self, run_id: str, handle: WorkflowHandle[Any, Any], index: RunIndex) -> None:
        self._run_id = run_id
        self._handle = handle
        self._index = index
        self._held: dict[TurnKey, Turn] = {}
        self._asking = asyncio.Lock()
        self._asker = secrets.token_hex(8)
        self._asked = 0

    async def next(self) -> Turn | None:
        """The next turn that is not held, once there is one; None when none will come."""
        async with self._asking:  # else two callers would be given one turn
            while True:
                self._held = {key: turn for key, turn in self._held.items() if turn.is_open}
                offer = await self._offer()
                if offer.turn is not None and offer.turn.turn not in self._held:
                    turn = self._held[offer.turn.turn] = await self._taken(offer.turn)
                    return turn
                if offer.is_over:
                    return None
                await asyncio.sleep(ASK_AGAIN_S)

    async def refuse_open(self) -> None:
        """Refuse to wait for an end that waits for this trainer.

        Raises:
            TurnError: a turn that is held is open.
        """
        held = {key: turn for key, turn in self._held.items() if turn.is_open}
        if not held:
            return
        row = await asyncio.to_thread(self._index.get, self._run_id)
        if row.status.is_finished or row.cancel_requested_at is not None:
            return
        try:
            still = await self._handle.query(names.OPEN_TURNS, result_type=OpenTurns)
        except RPCError:
            return  # it has closed, or no worker is up: then there is all the time to wait
        for key, turn in held.items():
            if turn.is_open and key in still.turns:
                raise TurnError(
                    f"the turn {turn.step_id!r} of agent {turn.agent!r} is not ended, so the "
                    "episode can't end; end() it, or abandon() the episode"
                )

    async def _offer(self) -> TurnOffer:
        order = NextTurn(holding=tuple(self._held))
        # The same until it is answered: a caller that was canceled and asks again waits for the
        # same answer.
        id = f"next/{self._asker}/{self._asked}"
        try:
            offer = await asked(self._handle, names.NEXT_TURN, order, id=id, answer=TurnOffer)
        except OverError:
            return TurnOffer(is_over=True)
        self._asked += 1
        return offer

    async def _taken(self, state: OpenTurn) -> Turn:
        said = await asyncio.to_thread(self._index.conversations.of_turn, self._run_id, state.turn)
        return Turn(
            state,
            said[: state.messages],
            run_id=self._run_id,
            handle=self._handle,
            index=self._index,
        )
