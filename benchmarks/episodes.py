"""Episodes per second and latency of one, against a hand-written workflow on the same server.

    python -m benchmarks.episodes [--rounds 3] [--count 100] [--write]

Everything runs in one process on one machine, in alternating rounds, so that the ratios mean
something where the machine is noisy. The last line of output is JSON; ``--write`` puts the figures
into the table of docs/performance.md.
"""

import argparse
import asyncio
import json
import secrets
import statistics
import sys
import tempfile
import time
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import NamedTuple

from temporalio.client import Client
from temporalio.contrib.pydantic import pydantic_data_converter
from temporalio.testing import WorkflowEnvironment
from temporalio.worker import UnsandboxedWorkflowRunner, Worker, WorkflowRunner
from temporalio.worker.workflow_sandbox import SandboxedWorkflowRunner

from agent_env._connect import connect_to
from agent_env._layout import use_worker_code
from agent_env.config import Settings
from agent_env.embedded import embedded_server, server_program
from agent_env.episode import EpisodeSpec
from agent_env.plugin import EpisodePlugin
from agent_env.specs import EpisodeStart
from agent_env.status import RunStatus
from agent_env.task import Task
from agent_env.trainer import Trainer
from agent_env.worker import Services, open_services, serving
from benchmarks.plain import PlainActivities, PlainWorkflow
from benchmarks.report import write_table

ROOT = Path(__file__).parents[1]
IN_FLIGHT = 50
ALONE = 10
SHAPES = {
    "hello": "our episode: a sandbox, three steps",
    "bare": "our episode without a sandbox: one step",
    "plain": "hand-written workflow, the work of hello: six plain activities",
    "plain_unsandboxed": "the same, without the SDK's workflow sandbox",
}
HELLO = Task.of(
    {
        "id": "hello",
        "artifacts": {"kit": str(Path(__file__).parent / "kit")},
        "steps": [
            {
                "id": "box",
                "type": "deploy_sandbox",
                "sandbox_name": "box",
                "sandbox_mode": "vm",
                "sandbox_type": "local",
            },
            {
                "id": "kit",
                "type": "load_artifact",
                "sandbox_name": "box",
                "artifact_id": "kit",
                "destination_path": "/app/kit",
            },
            {
                "id": "right",
                "type": "verify_sandbox",
                "sandbox_name": "box",
                "base_dir": "/app/kit",
                "criteria": [
                    {"type": "probe_file_contains", "paths": ["note.txt"], "expected": "ready"},
                    {"type": "bash_cmd_succeeds", "bash_cmd": "bash test.sh"},
                ],
            },
        ],
    }
)
BARE = Task.of({"id": "bare", "steps": [{"id": "wait", "type": "wait", "seconds": 0}]})

Play = Callable[[], Awaitable[None]]


class Figures(NamedTuple):
    """What was measured: medians over the rounds."""

    shapes: dict[str, dict[str, float]]
    default_server_hello: dict[str, float]
    ratios: dict[str, float]


async def latency_s(play: Play) -> float:
    """Median seconds of one episode alone."""
    taken: list[float] = []
    for _ in range(ALONE):
        started = time.perf_counter()
        await play()
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)


async def per_second(play: Play, count: int) -> float:
    """Episodes per second with 50 in flight."""
    places = asyncio.Semaphore(IN_FLIGHT)

    async def one() -> None:
        async with places:
            await play()

    started = time.perf_counter()
    await asyncio.gather(*(one() for _ in range(count)))
    return count / (time.perf_counter() - started)


async def players(client: Client, by_hand: Client, services: Services) -> dict[str, Play]:
    """How each shape is played once, from its start to its result."""
    trainer = Trainer(client, services.index, services.store)
    hello = EpisodeSpec.from_task(HELLO)
    bare = EpisodeSpec.from_task(BARE)
    published = trainer.published(hello.task)

    async def ours(spec: EpisodeSpec) -> None:
        result = await (await trainer.start(spec)).result()
        if result.status is not RunStatus.COMPLETED:
            raise RuntimeError(f"{result.run_id} ended {result.status}: {result.error}")

    async def plain(task_queue: str) -> None:
        start = EpisodeStart(run_id=f"plain-{secrets.token_hex(8)}", task=published)
        reward = await by_hand.execute_workflow(
            PlainWorkflow.run, start, id=start.run_id, task_queue=task_queue
        )
        if reward != 1.0:
            raise RuntimeError(f"{start.run_id} scored {reward}")

    return {
        "hello": lambda: ours(hello),
        "bare": lambda: ours(bare),
        "plain": lambda: plain("plain"),
        "plain_unsandboxed": lambda: plain("plain_unsandboxed"),
    }


def plain_worker(
    client: Client,
    services: Services,
    threads: ThreadPoolExecutor,
    task_queue: str,
    runner: WorkflowRunner,
) -> Worker:
    """A worker for the hand-written workflow."""
    plain = PlainActivities(services)
    return Worker(
        client,
        task_queue=task_queue,
        workflows=[PlainWorkflow],
        activities=[plain.record_start, plain.step, plain.teardown, plain.record_end],
        activity_executor=threads,
        workflow_runner=runner,
    )


async def measured(
    client: Client, state_dir: Path, *, shapes: list[str], rounds: int, count: int
) -> dict[str, dict[str, float]]:
    """Latency and throughput of each shape: medians of the rounds."""
    settings = Settings(state_dir=state_dir, max_episodes=1_000)
    found: dict[str, dict[str, list[float]]] = {s: {"alone_s": [], "per_s": []} for s in shapes}
    async with open_services(settings) as services, serving(client, services):
        # As one would write it by hand: the SDK's defaults, and its converter for pydantic.
        by_hand = await Client.connect(
            client.service_client.config.target_host, data_converter=pydantic_data_converter
        )
        with ThreadPoolExecutor(128) as threads:
            async with (
                plain_worker(by_hand, services, threads, "plain", SandboxedWorkflowRunner()),
                plain_worker(
                    by_hand, services, threads, "plain_unsandboxed", UnsandboxedWorkflowRunner()
                ),
            ):
                play = await players(client, by_hand, services)
                for shape in shapes:
                    await per_second(play[shape], IN_FLIGHT)  # warm up
                for number in range(rounds):
                    for shape in shapes:
                        found[shape]["alone_s"].append(await latency_s(play[shape]))
                        found[shape]["per_s"].append(await per_second(play[shape], count))
                    print(f"round {number + 1} of {rounds} done", file=sys.stderr)  # noqa: T201 - a script
    return {
        s: {k: statistics.median(v) for k, v in figures.items()} for s, figures in found.items()
    }


async def run(rounds: int, count: int) -> Figures:
    """Both servers, one after the other."""
    use_worker_code()
    with tempfile.TemporaryDirectory() as folder:
        async with embedded_server(Path(folder)) as server:
            client = await connect_to(server.address)
            tuned = await measured(
                client, Path(folder), shapes=list(SHAPES), rounds=rounds, count=count
            )
    with tempfile.TemporaryDirectory() as folder:
        async with await WorkflowEnvironment.start_local(
            plugins=[EpisodePlugin()],
            dev_server_existing_path=str(server_program()),
            dev_server_database_filename=str(Path(folder) / "temporal.db"),
            dev_server_log_level="error",
        ) as env:
            default = await measured(
                env.client, Path(folder), shapes=["hello"], rounds=rounds, count=count
            )
    return Figures(
        shapes=tuned,
        default_server_hello=default["hello"],
        ratios={
            "throughput_hello_to_plain": tuned["hello"]["per_s"] / tuned["plain"]["per_s"],
            "latency_hello_to_plain": tuned["hello"]["alone_s"] / tuned["plain"]["alone_s"],
            "throughput_hello_to_plain_unsandboxed": tuned["hello"]["per_s"]
            / tuned["plain_unsandboxed"]["per_s"],
            "latency_hello_to_plain_unsandboxed": tuned["hello"]["alone_s"]
            / tuned["plain_unsandboxed"]["alone_s"],
            "throughput_tuned_to_default": tuned["hello"]["per_s"] / default["hello"]["per_s"],
            "latency_tuned_to_default": tuned["hello"]["alone_s"] / default["hello"]["alone_s"],
        },
    )


def rows(figures: Figures) -> list[tuple[str, ...]]:
    """The figures as the table of docs/performance.md."""
    table: list[tuple[str, ...]] = [("shape", "alone", "50 in flight", "to the hand-written one")]
    shown = {**figures.shapes, "default": figures.default_server_hello}
    yardstick = figures.shapes["plain"]
    for shape, found in shown.items():
        table.append(
            (
                SHAPES.get(shape, "our hello on a server with its default settings"),
                f"{found['alone_s'] * 1000:.0f} ms",
                f"{found['per_s']:.0f}/s",
                f"{found['alone_s'] / yardstick['alone_s']:.2f} × latency, "
                f"{found['per_s'] / yardstick['per_s']:.2f} × throughput",
            )
        )
    return table


def main() -> None:
    """Measure, and print."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--count", type=int, default=100)
    parser.add_argument("--write", action="store_true", help="update docs/performance.md")
    options = parser.parse_args()
    figures = asyncio.run(run(options.rounds, options.count))
    if options.write:
        write_table(ROOT / "docs" / "performance.md", "episodes", rows(figures))
    print(json.dumps(figures._asdict()))  # noqa: T201 - a script


if __name__ == "__main__":
    main()
