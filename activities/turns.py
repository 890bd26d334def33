"""Begins a turn on its host, and runs the tools of its player's messages."""

import asyncio

from temporalio import activity

from activities._heartbeat import heartbeating
from activities._segments import Segments, this_attempt
from activities._translate import refuse_elsewhere, translating, worker_stops
from agent_env import names
from agent_env.turn_runner import TurnRunner
from agent_env.turns import BeginTurn, PlayTurn, Recorded, TurnBegun


class TurnActivities:
    """Turns on this host. An interrupt stops what of them runs here, as it stops a segment."""

    def __init__(self, runner: TurnRunner, segments: Segments, *, host: str) -> None:
        self._runner = runner
        self._segments = segments
        self._host = host

    @activity.defn(name=names.BEGIN_TURN)
    async def begin_turn(self, order: BeginTurn) -> TurnBegun:
        """Write the prompt down, and find the tools."""
        async with heartbeating():
            with translating(), self._segments.held(this_attempt()):
                refuse_elsewhere(order.host, self._host)
                return await self._runner.begin(order)

    @activity.defn(name=names.PLAY_TURN)
    async def play_turn(self, order: PlayTurn) -> Recorded:
        """Write the message down, and run its tools."""
        with translating():
            refuse_elsewhere(order.host, self._host)
        is_rerun = order.is_rerun or activity.info().attempt > 1
        with (
            translating(),
            self._segments.running(
                order.run_id, order.epoch, (order.spec.id,), this_attempt()
            ) as interrupted,
        ):
            async with heartbeating():
                running = asyncio.create_task(self._runner.play(order, is_rerun=is_rerun))
                stop = asyncio.create_task(interrupted.wait())
                try:
                    await asyncio.wait((running, stop), return_when=asyncio.FIRST_COMPLETED)
                    if running.done():
                        return running.result()
                except asyncio.CancelledError:
                    details = activity.cancellation_details()
                    if details is None or not details.cancel_requested:
                        raise worker_stops() from None
                finally:
                    stop.cancel()
                    running.cancel()
                    await asyncio.wait([running])
                await self._segments.cancel_heard(order.run_id)
                return Recorded(messages=order.seq, is_cut=True)
