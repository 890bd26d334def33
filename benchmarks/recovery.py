"""How soon episodes go on after somebody died, and how soon canceled ones are gone.

    python -m benchmarks.recovery [--rounds 10] [--many 500] [--only restart,cancel] [--write]

One real embedded server, real worker processes, real sandboxes. The last line of output is JSON;
``--write`` puts the figures into the table of docs/performance.md.
"""

import argparse
import asyncio
import json
import math
import random
import statistics
import sys
import tempfile
import time
from collections.abc import AsyncGenerator, Awaitable, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import NamedTuple

from agent_env import EpisodeSpec, Trainer
from agent_env._connect import connect_to
from agent_env.artifacts import ArtifactStore
from agent_env.config import Settings
from agent_env.embedded import embedded_server, find_running
from agent_env.episode import Episode
from agent_env.runs import RunIndex
from agent_env.task import Task
from benchmarks.processes import WorkerProcess, any_alive, commands, cpu_s, running, until
from benchmarks.report import write_table

ROOT = Path(__file__).parents[1]
FEW = 10
HOST_LOST_AFTER_S = 5.0
HEARTBEAT_TIMEOUT_S = 20
LOST_ROUNDS = 3
"""Each takes half a minute, nearly all of it timeouts."""
CPU_OVER_S = 30.0
ROOM = 2_000

Samples = dict[str, list[float]]
"""What was measured, each time, by what it is. In seconds, or in cores."""


class Stand(NamedTuple):
    """Where it is measured."""

    folder: Path
    address: str
    trainer: Trainer

    def worker(self, name: str = "state", **settings: float) -> WorkerProcess:
        """A worker on a host of this name; one that had the name before is carried on."""
        state_dir = self.folder / name
        state_dir.mkdir(exist_ok=True)
        settings = {"max_episodes": ROOM, "graceful_shutdown_s": 0, **settings}
        return WorkerProcess(state_dir, self.folder, self.address, **settings)

    def server_pid(self) -> int:
        """Of the Temporal server."""
        found = find_running(self.folder)
        assert found is not None
        return found.pid


@asynccontextmanager
async def stand(folder: Path) -> AsyncGenerator[Stand]:
    """A server and a trainer."""
    async with embedded_server(folder) as server:
        index = await asyncio.to_thread(RunIndex.open, Settings(state_dir=folder).database_url)
        try:
            client = await connect_to(server.address)
            trainer = Trainer(client, index, ArtifactStore(folder / "artifacts"))
            yield Stand(folder, server.address, trainer)
        finally:
            index.close()


def nap() -> str:
    """A command that outlives the measurement, and that nobody else has."""
    return f"sleep 3600.{random.randrange(10**6, 10**7)}"


def napping(command: str) -> EpisodeSpec:
    """A task that only sleeps, in a sandbox. ``<seed>`` in the command tells members apart."""
    box = {"id": "box", "type": "deploy_sandbox", "sandbox_name": "box", "sandbox_type": "local"}
    step = {"id": "nap", "type": "run_code", "sandbox_name": "box", "command": command}
    return EpisodeSpec.from_task(Task.of({"id": "nap", "steps": [box, step]}))


async def ended(episode: Episode) -> None:
    """Cancel it and wait for its end."""
    await episode.cancel("measured")
    await episode.result()


async def restart(at: Stand, rounds: int, _many: int) -> Samples:
    """A worker is killed in a step, and another one started on its folder at once."""
    found: Samples = {"restart": [], "restart: process": [], "restart: step": []}
    worker = at.worker()
    await worker.serves()
    for _ in range(rounds):
        command = nap()
        episode = await at.trainer.start(napping(command))
        await until(lambda command=command: bool(running(command)))
        await asyncio.sleep(random.uniform(1, 2))  # at any moment between two heartbeats
        before = set(running(command))

        killed = time.perf_counter()
        worker.kill()
        worker = at.worker()
        serving = await worker.serves()
        await until(lambda command=command, before=before: bool({*running(command)} - before))
        again = time.perf_counter()

        found["restart"].append(again - killed)
        found["restart: process"].append(serving - killed)
        found["restart: step"].append(max(0.0, again - serving))
        await ended(episode)
    worker.end()
    return found


async def lost_host(at: Stand, rounds: int, _many: int) -> Samples:
    """A worker is killed in a step for good, while another host has room."""
    found: Samples = {"lost host": []}
    worker = at.worker("host-0", host_lost_after_s=HOST_LOST_AFTER_S)
    await worker.serves()
    for number in range(1, min(rounds, LOST_ROUNDS) + 1):
        command = nap()
        episode = await at.trainer.start(napping(command))
        await until(lambda command=command: bool(running(command)))
        other = at.worker(f"host-{number}", host_lost_after_s=HOST_LOST_AFTER_S)
        await other.serves()
        before = set(running(command))

        killed = time.perf_counter()
        worker.kill()
        await until(lambda command=command, before=before: bool({*running(command)} - before))
        found["lost host"].append(time.perf_counter() - killed)

        await ended(episode)
        worker = other
    worker.end()
    return found


async def cancel(at: Stand, rounds: int, many: int) -> Samples:
    """One of so many running episodes is canceled; then all of them at once."""
    worker = at.worker()
    await worker.serves()
    found: Samples = {"heartbeats: idle": [await server_cores(at)]}
    for count in (FEW, many):
        found |= await _cancel_among(at, count, rounds)
    worker.end()
    return found


async def _cancel_among(at: Stand, count: int, rounds: int) -> Samples:
    found: Samples = {f"cancel among {count}": [], f"heartbeats: {count}": []}
    rounds = min(rounds, count - 1)
    stem = nap()
    started = time.perf_counter()
    group = await at.trainer.start_group(napping(f"{stem}<seed>"), seeds=_seeds(count))
    await until(lambda: len(_sleeping(stem)) == count, within_s=600)
    began_s = time.perf_counter() - started
    found[f"heartbeats: {count}"].append(await server_cores(at))

    members = [member.run_id for member in (await group.snapshot()).members]
    for index in random.sample(range(count), rounds):
        pids = running(f"{stem}{_seed(index)}")
        asked = time.perf_counter()
        await at.trainer.attach(members[index]).cancel("measured")
        await until(lambda pids=pids: not any_alive(pids))
        found[f"cancel among {count}"].append(time.perf_counter() - asked)

    pids = running(stem)
    asked = time.perf_counter()
    await group.cancel("measured")
    await until(lambda: not any_alive(pids), within_s=600)
    found[f"cancel all {count}"] = [time.perf_counter() - asked]
    await group.result()
    found[f"end of all {count}"] = [time.perf_counter() - asked]
    found[f"begin of all {count}"] = [began_s]
    return found


def _seed(index: int) -> str:
    return f"{index:05}"


def _seeds(count: int) -> list[dict[str, str]]:
    return [{"seed": _seed(index)} for index in range(count)]


def _sleeping(stem: str) -> list[int]:
    return [pid for pid, line in commands().items() if line.startswith(stem)]


async def server_cores(at: Stand) -> float:
    """Cores that the server uses, over the time of several heartbeats of each step."""
    pid = at.server_pid()
    used, started = cpu_s(pid), time.perf_counter()
    await asyncio.sleep(CPU_OVER_S)
    return (cpu_s(pid) - used) / (time.perf_counter() - started)


async def terminate(at: Stand, rounds: int, _many: int) -> Samples:
    """Workflows are terminated at any moment between two passes of the reconciler."""
    worker = at.worker()
    await worker.serves()
    every_s = Settings(state_dir=at.folder).reconcile_every_s

    async def one(command: str) -> float:
        episode = await at.trainer.start(napping(command))
        await until(lambda: bool(running(command)))
        await asyncio.sleep(random.uniform(0, every_s))
        handle = at.trainer.client.get_workflow_handle(episode.run_id)
        asked = time.perf_counter()
        await handle.terminate("measured")
        while not (await episode.record()).status.is_finished:
            await asyncio.sleep(0.05)
        return time.perf_counter() - asked

    found: Samples = {"terminate": await asyncio.gather(*(one(nap()) for _ in range(rounds)))}
    worker.end()
    return found


PARTS: dict[str, Callable[[Stand, int, int], Awaitable[Samples]]] = {
    "restart": restart,
    "lost-host": lost_host,
    "cancel": cancel,
    "terminate": terminate,
}


async def measured(parts: list[str], rounds: int, many: int) -> Samples:
    """Every part that was asked for, on one server."""
    found: Samples = {}
    with tempfile.TemporaryDirectory() as folder:
        async with stand(Path(folder)) as at:
            for part in parts:
                figures = await PARTS[part](at, rounds, many)
                print(f"{part}: {json.dumps(figures)}", file=sys.stderr)  # noqa: T201 - a script
                found |= figures
    return found


def percentile(samples: list[float], share: float) -> float:
    """The smallest sample that so large a share of them does not exceed."""
    return sorted(samples)[math.ceil(share * len(samples)) - 1]


def labels(many: int) -> dict[str, tuple[str, str]]:
    """What each figure is called, and what is wanted of it."""
    lost_s = HEARTBEAT_TIMEOUT_S + HOST_LOST_AFTER_S
    return {
        "restart": ("worker killed, to the step running again on its restarted host", "p95 < 5 s"),
        "restart: process": ("of that: until the new process serves", ""),
        "restart: step": ("of that: from there to the step", ""),
        "lost host": (
            f"worker killed for good, to the step running elsewhere; of that, {lost_s:g} s are "
            f"heartbeat timeout ({HEARTBEAT_TIMEOUT_S} s) and `host_lost_after_s` "
            f"({HOST_LOST_AFTER_S:g} s here)",
            "",
        ),
        **{
            key: value
            for n in (FEW, many)
            for key, value in {
                f"cancel among {n}": (
                    f"cancel of one of {n} running episodes, to its last process gone",
                    "p95 < 2 s",
                ),
                f"cancel all {n}": (f"cancel of a group of {n}, to the last process gone", ""),
                f"end of all {n}": (f"cancel of a group of {n}, to the last row written", ""),
            }.items()
        },
        "terminate": ("workflow terminated, to the row CANCELED", "p95 < 40 s"),
    }


def rows(found: Samples, many: int) -> list[tuple[str, ...]]:
    """The times as the table of docs/performance.md."""
    table: list[tuple[str, ...]] = [("what happened", "p50", "p95", "times", "wanted")]
    for key, (label, wanted) in labels(many).items():
        if key in found:
            samples = found[key]
            middle, high = statistics.median(samples), percentile(samples, 0.95)
            table.append((label, f"{middle:.2f} s", f"{high:.2f} s", str(len(samples)), wanted))
    for n in (FEW, many):
        if f"heartbeats: {n}" in found:
            (cores,), (idle,) = found[f"heartbeats: {n}"], found["heartbeats: idle"]
            table.append(
                (
                    f"CPU of the server while {n} steps run ({idle:.2f} cores while none does)",
                    f"{cores:.2f} cores",
                    "",
                    "1",
                    "heartbeats < 0.2 cores",
                )
            )
    return table


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=10)
    parser.add_argument("--many", type=int, default=500, help="steps that run at once")
    parser.add_argument("--only", default=",".join(PARTS), help="parts, by comma")
    parser.add_argument("--write", action="store_true", help="update docs/performance.md")
    options = parser.parse_args()
    found = asyncio.run(measured(options.only.split(","), options.rounds, options.many))
    if options.write:
        write_table(ROOT / "docs" / "performance.md", "recovery", rows(found, options.many))
    print(json.dumps(found))  # noqa: T201 - a script


if __name__ == "__main__":
    main()
