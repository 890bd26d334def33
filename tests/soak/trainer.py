"""A training loop in a process of its own: starts all of a plan, some at a time, and awaits it.

One that was killed is followed by another, which starts the plan from its beginning: what the first
had started it finds by its id. python trainer.py PLAN RESULTS
"""

import asyncio
import sys
from collections.abc import Awaitable, Callable, Sequence
from contextlib import suppress
from pathlib import Path
from typing import TypeVar

from temporalio.service import RPCError

from agent_env import Trainer
from agent_env.errors import ConflictError, IndexUnavailableError, UnavailableError
from agent_env.results import EpisodeResult
from tests.soak.plan import Line

_IN_FLIGHT = 24
"""Most orders that are under way at once: more episodes than the hosts have room for."""
_AWAY = (IndexUnavailableError, UnavailableError, RPCError)

T = TypeVar("T")


async def main(lines: Sequence[Line], results: Path) -> None:
    room = asyncio.Semaphore(_IN_FLIGHT)
    async with Trainer.connect() as trainer:

        async def played(line: Line) -> None:
            try:
                for result in await _played(trainer, line):
                    with results.open("a", encoding="utf-8") as file:
                        file.write(f"{result.model_dump_json()}\n")
            finally:
                room.release()

        async with asyncio.TaskGroup() as playing:
            for line in lines:
                await room.acquire()
                playing.create_task(played(line))


async def _played(trainer: Trainer, line: Line) -> Sequence[EpisodeResult]:
    await _patiently(lambda: _started(trainer, line))
    if line.max_parallel is None:
        return [await _patiently(trainer.attach(line.id).result)]
    return (await _patiently(trainer.attach_group(line.id).result)).members


async def _started(trainer: Trainer, line: Line) -> None:
    with suppress(ConflictError):  # by a trainer that was killed, or whose answer was lost
        if line.max_parallel is None:
            await trainer.start(line.spec(), run_id=line.id)
        else:
            await trainer.start_group(
                line.spec(), seeds=line.seeds, max_parallel=line.max_parallel, run_group_id=line.id
            )


async def _patiently(ask: Callable[[], Awaitable[T]]) -> T:
    """Ask until it is answered."""
    while True:
        try:
            return await ask()
        except _AWAY:
            await asyncio.sleep(0.5)


if __name__ == "__main__":
    orders = Path(sys.argv[1]).read_text(encoding="utf-8").splitlines()
    try:
        asyncio.run(main([*map(Line.model_validate_json, orders)], Path(sys.argv[2])))
    except _AWAY:  # as it connects
        sys.exit(UnavailableError.exit_code)
