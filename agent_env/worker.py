"""The worker: serves episodes on this host until it is asked to stop."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from temporalio.client import Client
from temporalio.service import ServiceClient
from temporalio.worker import Worker

from agent_env import names
from agent_env._abandoned import fail_abandoned
from agent_env._clock import ServerClock
from agent_env._connect import open_index, settled
from agent_env._keep_reconciler import reconciler_kept
from agent_env._layout import conflicts, use_worker_code
from agent_env._slots import RoomSlots, eager_tuner, room_tuner
from agent_env.artifacts import ArtifactStore
from agent_env.config import Settings, host_id
from agent_env.errors import ConflictError, UnavailableError
from agent_env.janitor import Janitor, asking
from agent_env.runs import RunIndex
from agent_env.sandboxes import Providers
from agent_env.specs import Policy
from agent_env.steps import Steps
from agent_env.steps.runner import SegmentRunner
from agent_env.steps.work_folders import WorkFolders
from agent_env.turn_runner import TurnRunner

if TYPE_CHECKING:
    from activities._segments import Segments


@dataclass(frozen=True)
class Services:
    """What a worker works with. Tests and plugins replace parts."""

    settings: Settings
    host: str
    index: RunIndex
    providers: Providers
    store: ArtifactStore
    steps: Steps


@asynccontextmanager
async def open_services(
    settings: Settings,
    *,
    index: RunIndex | None = None,
    providers: Providers | None = None,
    steps: Steps | None = None,
) -> AsyncGenerator[Services]:
    """Make what a worker needs from its settings; close what was made here at the end.

    Raises:
        IndexUnavailableError: the run index's database does not answer.
        ConfigError: its schema is not this code's.
    """
    async with AsyncExitStack() as stack:
        if index is None:
            index = await open_index(settings)
            stack.callback(index.close)
        yield Services(
            settings=settings,
            host=settings.host or host_id(settings),
            index=index,
            providers=providers or Providers(settings.state_dir),
            store=ArtifactStore(settings.state_dir / "artifacts"),
            steps=steps or Steps(),
        )


def utc_now() -> datetime:
    """The caller's clock."""
    return datetime.now(UTC)


@asynccontextmanager
async def serving(client: Client, services: Services) -> AsyncGenerator[None]:
    """Serve episodes while entered; drain on the way out.

    Raises:
        ConflictError: another installed package provides ``workflows`` or ``activities``.
        UnavailableError: Temporal does not answer any more.
    """
    if found := conflicts():
        raise ConflictError("; ".join(found))
    use_worker_code()
    from activities._segments import Segments

    settings = services.settings
    segments = Segments(settings.state_dir / "attempts")
    await fail_abandoned(client, segments.abandoned())
    async with AsyncExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(128, thread_name_prefix="activities"))
        beginner = await _another(client)
        turn_runner = TurnRunner(services.index, services.providers)
        stack.push_async_callback(turn_runner.close)
        workers = _workers(client, beginner, services, segments, turn_runner, threads)
        await stack.enter_async_context(_polling(workers))
        await stack.enter_async_context(reconciler_kept(client))
        # Last in, so first out: it stops before the steps drain.
        await stack.enter_async_context(_janitor(client, services).running())
        yield
    await settled()


@asynccontextmanager
async def _polling(workers: Sequence[Worker]) -> AsyncGenerator[None]:
    """Run workers, which all stop at once: one that goes on takes up what another gives back."""
    async with AsyncExitStack() as stack:
        for worker in workers:
            await stack.enter_async_context(worker)
        try:
            yield
        finally:
            await asyncio.gather(*(worker.shutdown() for worker in workers))


async def _another(client: Client) -> Client:
    """A second connection: one can't have two workers with activities on one queue.

    Raises:
        UnavailableError: the server has gone since the first.
    """
    config, service = client.config(), client.service_client.config
    try:
        config["service_client"] = await ServiceClient.connect(service)
    except RuntimeError as error:
        raise UnavailableError(
            f"Temporal at {service.target_host} does not answer: {error}"
        ) from error
    return Client(**config)


def _workers(
    client: Client,
    beginner: Client,
    services: Services,
    segments: Segments,
    turn_runner: TurnRunner,
    threads: ThreadPoolExecutor,
) -> list[Worker]:
    """Five pollers, in the order they start: the queue of new workflows comes last."""
    from activities.registry import build_activities
    from workflows.registry import WORKFLOWS

    settings, host = services.settings, services.host
    clock = ServerClock(utc_now)
    runner = SegmentRunner(
        steps=services.steps,
        providers=services.providers,
        store=services.store,
        work_root=settings.state_dir / "work",
        cancel_grace=timedelta(seconds=settings.cancel_grace_s),
        now=clock.now,
    )
    table = build_activities(
        client=client,
        index=services.index,
        providers=services.providers,
        runner=runner,
        turn_runner=turn_runner,
        segments=segments,
        host=host,
        max_episodes=settings.max_episodes,
        policy=Policy(
            host_lost_after=timedelta(seconds=settings.host_lost_after_s), lands_first=True
        ),
        reconcile_every=timedelta(seconds=settings.reconcile_every_s),
        now=clock.now,
    )
    # Room is counted in the index; this must never be what an episode waits for.
    most_activities = 10 * settings.max_episodes + 100
    graceful = timedelta(seconds=settings.graceful_shutdown_s)
    slots = RoomSlots(services.index, host=host, room=settings.max_episodes)
    return [
        Worker(
            client,
            task_queue=names.host_queue(host),
            activities=table.host,
            interceptors=[clock],
            max_concurrent_activities=most_activities,
            max_heartbeat_throttle_interval=timedelta(seconds=1),
            graceful_shutdown_timeout=graceful,
        ),
        Worker(
            client,
            task_queue=names.RECONCILE_QUEUE,
            activities=table.reconcile,
            # One watches; the others are for looks by hand.
            max_concurrent_activities=8,
            max_concurrent_activity_task_polls=1,
            # Time to answer that it stops; it takes none of it.
            graceful_shutdown_timeout=graceful,
        ),
        Worker(
            client,
            task_queue=names.CONTROL_QUEUE,
            activities=table.control,
            interceptors=[clock],
            activity_executor=threads,
            graceful_shutdown_timeout=graceful,
        ),
        Worker(
            beginner,
            task_queue=names.TASK_QUEUE,
            activities=table.begin,
            interceptors=[clock],
            activity_executor=threads,
            tuner=room_tuner(slots),
            graceful_shutdown_timeout=graceful,
        ),
        Worker(
            client,
            task_queue=names.TASK_QUEUE,
            workflows=WORKFLOWS,
            activities=[*table.local, *table.eager],
            interceptors=[clock],
            activity_executor=threads,
            tuner=eager_tuner(most_activities),
            max_heartbeat_throttle_interval=timedelta(seconds=1),
            max_cached_workflows=2000,
            # The first task after a dead worker would wait 10 s for it otherwise.
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
            graceful_shutdown_timeout=graceful,
        ),
    ]


def _janitor(client: Client, services: Services) -> Janitor:
    settings = services.settings
    return Janitor(
        services.index,
        services.providers,
        others=[WorkFolders(settings.state_dir / "work")],
        host=services.host,
        ask_temporal=asking(client),
        every=timedelta(seconds=settings.janitor_every_s),
        now=utc_now,
    )


async def run_worker(client: Client, services: Services, *, stop: asyncio.Event) -> None:
    """Serve episodes until ``stop`` is set."""
    async with serving(client, services):
        await stop.wait()
