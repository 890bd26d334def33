"""Plays a soak: episodes of all kinds, while a killer kills what they depend on."""

import asyncio
import os
import random
import secrets
import subprocess
import sys
import time
from collections.abc import AsyncGenerator, Mapping, Sequence
from contextlib import AsyncExitStack, asynccontextmanager, suppress
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path

from agent_env._connect import connect_to
from agent_env.artifacts import ArtifactStore
from agent_env.embedded import embedded_server
from agent_env.results import EpisodeResult
from agent_env.runs import RunCursor, RunFilter, RunIndex, RunRecord
from agent_env.trainer import Trainer
from tests.end_to_end.agreement import disagreements_left
from tests.end_to_end.conftest import Product, processes_with
from tests.end_to_end.who_dies import left_behind, until
from tests.soak import ledger, machines, plan, verdict
from tests.soak.canceling import cancel_in_time
from tests.soak.indexes import index_of
from tests.soak.killer import Killer
from tests.soak.kinds import Steps
from tests.soak.machines import Server
from tests.soak.plan import Order
from tests.soak.report import report

_HOST_LOST_AFTER_S = 8.0
_GRACEFUL_SHUTDOWN_S = 2.0
_SETTLES_S = 300
"""Longest it may take from the last kill until all has ended and nothing is left, in seconds."""


@dataclass(frozen=True)
class Size:
    """How much is played, and how it is troubled."""

    episodes: int
    pause_s: tuple[float, float]
    """Least and most time between two kills, in seconds."""
    killing_s: float
    """Longest time that is killed, in seconds: less if all ends before."""


@dataclass(frozen=True)
class Verdict:
    """How it went."""

    faults: Sequence[str]
    report: str
    """For a person to read."""


async def soaked(folder: Path, *, seed: int, size: Size, kind: str) -> Verdict:
    """Play it, and judge.

    Args:
        folder: An empty one, for all that it makes; logs are left there.
        seed: Decides what is played, and what is killed in which order.
        size: How much.
        kind: The database that the run index is kept in.
    """
    began_at, dice = time.monotonic(), random.Random(seed)
    orders = plan.planned(dice, size.episodes)
    steps = Steps(folder / "ledger", f"{secrets.randbelow(10**9):09d}")
    plan.write(folder / "plan.jsonl", orders, steps)
    async with AsyncExitStack() as stack:
        (folder / "one").mkdir()
        index = stack.enter_context(index_of(kind, folder / "one"))
        product = await stack.enter_async_context(_product(folder / "one", index.url))
        hosts = {
            path: machines.host(
                *(product, path),
                host_lost_after_s=_HOST_LOST_AFTER_S,
                graceful_shutdown_s=_GRACEFUL_SHUTDOWN_S,
                reconcile_every_s=1,
                janitor_every_s=2,
                max_episodes=8,
            )
            for path in (product.state_dir, folder / "two")
        }
        trainer = machines.trainer(product, folder / "plan.jsonl", folder / "told.jsonl")
        for machine in (*hosts.values(), trainer):
            await stack.enter_async_context(machine.kept())
        killer = Killer(
            dice=dice,
            hosts=[*hosts.values()],
            server=Server(product),
            trainer=trainer,
            client=product.trainer.client,
            index=product.index,
            index_database=index,
            host_lost_after_s=_HOST_LOST_AFTER_S,
        )
        try:
            canceled_at = await _played(product, orders, killer, size)
            left = await _settled(steps.marker, [*hosts])
        finally:
            _write_logs(folder, killer)
        record = verdict.Record(
            orders=orders,
            rows=await asyncio.to_thread(_rows, product.index),
            terminated=killer.terminated,
            canceled_at=canceled_at,
            told=_told(folder / "told.jsonl"),
            steps=[*ledger.read(folder / "ledger")],
            hosts=hosts,
            server_downs=killer.server.downs,
            host_lost_after_s=_HOST_LOST_AFTER_S,
            graceful_shutdown_s=_GRACEFUL_SHUTDOWN_S,
        )
        faults = [
            *left,
            *verdict.faults(record),
            *(crash for machine in (*hosts.values(), trainer) for crash in machine.crashes),
            *await _disagreements(product),
        ]
    took_s = time.monotonic() - began_at
    return Verdict(faults, report(record, killer, faults=faults, seed=seed, took_s=took_s))


@asynccontextmanager
async def _product(state_dir: Path, database: str) -> AsyncGenerator[Product]:
    async with embedded_server(state_dir) as server:
        client = await connect_to(server.address)
        index = await asyncio.to_thread(RunIndex.open, database)
        try:
            store = ArtifactStore(state_dir / "artifacts")
            yield Product(state_dir, server, Trainer(client, index, store), database)
        finally:
            index.close()


async def _played(
    product: Product, orders: Sequence[Order], killer: Killer, size: Size
) -> Mapping[str, float]:
    """Play all; when which order was canceled."""
    enough = asyncio.Event()
    canceled_at: dict[str, float] = {}
    canceling = asyncio.create_task(cancel_in_time(product.trainer, orders, canceled_at))
    killing = asyncio.create_task(killer.work(enough, pause_s=size.pause_s))
    playing = asyncio.create_task(killer.trainer.finished())
    tasks = [playing, killing, canceling]
    try:
        # Only the first may end by itself: another one that does tells why.
        await asyncio.wait(tasks, timeout=size.killing_s, return_when=asyncio.FIRST_COMPLETED)
        enough.set()
        await killing
        async with asyncio.timeout(_SETTLES_S):
            await asyncio.wait([playing, canceling], return_when=asyncio.FIRST_COMPLETED)
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.wait(tasks)
    return canceled_at


async def _settled(marker: str, state_dirs: Sequence[Path]) -> list[str]:
    """Wait until nothing is left of any episode; what is left then."""

    async def is_clean() -> bool:
        return not _left(marker, state_dirs)

    with suppress(TimeoutError):
        await until(is_clean, within=timedelta(seconds=_SETTLES_S))
    return _left(marker, state_dirs)


def _left(marker: str, state_dirs: Sequence[Path]) -> list[str]:
    return [
        *(f"process {pid} is left" for pid in processes_with(marker)),
        *(f"{path} is left" for path in left_behind(*state_dirs)),
    ]


async def _disagreements(product: Product) -> list[str]:
    """What index and Temporal say differently, by the tests' own check and by the command."""
    found = await disagreements_left(product.trainer.client, product.index)
    check = await asyncio.to_thread(
        subprocess.run,
        [sys.executable, "-m", "agent_env.cli", "reconcile", "--check"],
        env={
            **os.environ,
            "EPISODES_STATE_DIR": str(product.state_dir),
            "EPISODES_DATABASE": product.database,
            "TEMPORAL_ADDRESS": product.server.address,
        },
        capture_output=True,
        text=True,
        check=False,
    )
    if check.returncode:
        found.append(
            f"reconcile --check exits with {check.returncode}: {check.stdout}{check.stderr}"
        )
    return found


def _rows(index: RunIndex) -> dict[str, RunRecord]:
    found: dict[str, RunRecord] = {}
    after: RunCursor | None = None
    while True:
        page = index.page(RunFilter(), after=after, limit=500)
        found |= {row.run_id: row for row in page.runs}
        if page.next is None:
            return found
        after = page.next


def _told(path: Path) -> list[EpisodeResult]:
    lines = path.read_text(encoding="utf-8").splitlines()
    return [EpisodeResult.model_validate_json(line) for line in lines]


def _write_logs(folder: Path, killer: Killer) -> None:
    for machine in (*killer.hosts, killer.trainer):
        (folder / f"{machine.name}.log").write_text("".join(machine.said), encoding="utf-8")
    machines = (*killer.hosts, killer.trainer, killer.server)
    diary = sorted([*killer.diary, *(line for machine in machines for line in machine.diary)])
    (folder / "diary").write_text("\n".join(diary), encoding="utf-8")
