"""How groups of many members go: how fast, how long their histories are, what a client waits for.

    python -m benchmarks.groups [--size 1000] [--room 50] [--max-parallel N]

One embedded server and a worker in this process; members are episodes of one step, no sandbox.
The last line of output is JSON.
"""

import argparse
import asyncio
import json
import tempfile
import time
from pathlib import Path

from temporalio.client import Client

from agent_env._connect import connect_to
from agent_env.config import Settings
from agent_env.embedded import embedded_server
from agent_env.episode import EpisodeSpec
from agent_env.task import Task
from agent_env.trainer import Trainer
from agent_env.worker import open_services, serving

BARE = Task.of({"id": "bare", "steps": [{"id": "wait", "type": "wait", "seconds": 0}]})


async def lengths(client: Client, workflow_id: str) -> list[int]:
    """Events in the history of each execution, the first first."""
    found: list[int] = []
    run_id: str | None = None
    while run_id != "":
        handle = client.get_workflow_handle(workflow_id, run_id=run_id)
        history = await handle.fetch_history()
        found.append(len(history.events))
        run_id = history.events[
            0
        ].workflow_execution_started_event_attributes.continued_execution_run_id
    return found[::-1]


async def measured(size: int, room: int, max_parallel: int | None) -> dict[str, object]:
    """Play one group to its end."""
    with tempfile.TemporaryDirectory() as folder:
        settings = Settings(state_dir=Path(folder), max_episodes=room)
        async with embedded_server(settings.state_dir) as server:
            client = await connect_to(server.address)
            async with open_services(settings) as services, serving(client, services):
                trainer = Trainer(client, services.index, services.store)
                for _ in range(3):  # whatever is slow once
                    await (await trainer.start(EpisodeSpec.from_task(BARE))).result()
                started = time.perf_counter()
                group = await trainer.start_group(
                    EpisodeSpec.from_task(BARE), size=size, max_parallel=max_parallel
                )
                listed_s = time.perf_counter() - started
                result = await group.result()
                took_s = time.perf_counter() - started
                asked = time.perf_counter()
                await group.snapshot()
                return {
                    "size": size,
                    "room": room,
                    "max_parallel": max_parallel,
                    "completed": result.figures.completed,
                    "listed_s": round(listed_s, 2),
                    "took_s": round(took_s, 1),
                    "per_s": round(size / took_s, 1),
                    "snapshot_s": round(time.perf_counter() - asked, 2),
                    "events": await lengths(client, group.run_group_id),
                }


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--size", type=int, default=1000)
    parser.add_argument("--room", type=int, default=50, help="episodes that the host takes at once")
    parser.add_argument("--max-parallel", type=int, help="of the group; none if left out")
    options = parser.parse_args()
    found = asyncio.run(measured(options.size, options.room, options.max_parallel))
    print(json.dumps(found))  # noqa: T201 - a script


if __name__ == "__main__":
    main()
