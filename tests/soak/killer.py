"""Kills, at random moments and by a seed, whatever an episode depends on."""

import asyncio
import random
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field

from temporalio.client import Client
from temporalio.service import RPCError

from agent_env.errors import RunIndexError
from agent_env.runs import RunFilter, RunIndex
from agent_env.status import LIVE
from tests.soak.indexes import Index
from tests.soak.machines import Machine, Server

REASON = "soak: terminated"
_INDEX_AWAY_S = (0.5, 4.0)
_DECK = {
    "kill a worker": 5,
    "ask a worker to stop": 3,
    "kill the server": 3,
    "kill the trainer": 2,
    "take the index away": 2,
    "terminate an episode": 3,
    "terminate a group": 1,
    "lose a host": 1,
    "kill all": 1,
}
"""What it does, and how often before it starts over, in an order of its own."""


@dataclass
class Killer:
    """One at work.

    Args:
        dice: Decides what is done and when, so that a seed tells it again.
        index_database: Where the index is.
        host_lost_after_s: How long a host is away to be lost, in seconds.
    """

    dice: random.Random
    hosts: Sequence[Machine]
    server: Server
    trainer: Machine
    client: Client
    index: RunIndex
    index_database: Index
    host_lost_after_s: float
    done: Counter[str] = field(default_factory=Counter[str])
    """What it has done, and how often."""
    terminated: set[str] = field(default_factory=set[str])
    """Episodes and groups, by id."""
    diary: list[str] = field(default_factory=list[str])

    async def work(self, enough: asyncio.Event, *, pause_s: tuple[float, float]) -> None:
        """Strike again and again, with pauses of this range, until it is enough."""
        deeds: dict[str, Callable[[], Awaitable[object]]] = {
            "kill a worker": self._kill_worker,
            "ask a worker to stop": lambda: self._a_host().stop(),
            "kill the server": self.server.kill,
            "kill the trainer": self._kill_trainer,
            "take the index away": self._take_index_away,
            "terminate an episode": self._terminate_episode,
            "terminate a group": self._terminate_group,
            "lose a host": self._lose_host,
            "kill all": self._kill_all,
        }
        # What takes a while goes on beside the next deed: troubles come together.
        async with asyncio.TaskGroup() as under_way:
            deck: list[str] = []
            while not await _happens(enough, within_s=self.dice.uniform(*pause_s)):
                if not deck:
                    deck = [what for what, times in _DECK.items() for _ in range(times)]
                    self.dice.shuffle(deck)
                what = deck.pop()
                self.done[what] += 1
                self._note(what)
                under_way.create_task(_done(deeds[what]))

    def _a_host(self) -> Machine:
        return self.dice.choice(self.hosts)

    async def _kill_worker(self) -> None:
        self._a_host().kill()

    async def _kill_trainer(self) -> None:
        self.trainer.kill()

    async def _lose_host(self) -> None:
        await self._a_host().kill_for(self.host_lost_after_s + 3)

    async def _kill_all(self) -> None:
        server = asyncio.create_task(self.server.kill())
        for machine in (*self.hosts, self.trainer):
            machine.kill()
        await server

    async def _take_index_away(self) -> None:
        await self.index_database.away(self.dice, self.dice.uniform(*_INDEX_AWAY_S))

    async def _terminate_episode(self) -> None:
        live = await asyncio.to_thread(self._live)
        if live:
            await self._terminate(self.dice.choice(live)[0])

    async def _terminate_group(self) -> None:
        live = await asyncio.to_thread(self._live)
        if groups := sorted({group for _, group in live if group is not None}):
            await self._terminate(self.dice.choice(groups))

    def _live(self) -> list[tuple[str, str | None]]:
        """Ids of live runs and of their groups."""
        try:
            runs = self.index.page(RunFilter(status=LIVE), limit=500).runs
        except RunIndexError:
            return []  # it is away
        return sorted((run.run_id, run.run_group_id) for run in runs if run.workflow_run_id)

    async def _terminate(self, workflow_id: str) -> None:
        self._note(f"terminates {workflow_id}")
        self.terminated.add(workflow_id)
        # It may have ended just now; or it was terminated before, and its row has yet to end.
        with suppress(RPCError):
            await self.client.get_workflow_handle(workflow_id).terminate(reason=REASON)

    def _note(self, what: str) -> None:
        self.diary.append(f"{time.time():.3f} {what}")


async def _done(deed: Callable[[], Awaitable[object]]) -> None:
    await deed()


async def _happens(event: asyncio.Event, *, within_s: float) -> bool:
    with suppress(TimeoutError):
        async with asyncio.timeout(within_s):
            await event.wait()
    return event.is_set()
