"""The worker: serves episodes on this host until it is asked to stop."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator
from concurrent.futures import ThreadPoolExecutor
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING

from temporalio.client import Client
from temporalio.exceptions import ApplicationError
from temporalio.service import RPCError
from temporalio.worker import Worker

from agent_env import names
from agent_env._connect import open_index, settled
from agent_env._layout import conflicts, use_worker_code
from agent_env._slots import RoomSlots, room_tuner
from agent_env.artifacts import ArtifactStore
from agent_env.config import Settings, host_id
from agent_env.errors import ConflictError
from agent_env.runs import RunIndex
from agent_env.sandboxes import Providers
from agent_env.specs import Policy
from agent_env.steps import Steps
from agent_env.steps.runner import SegmentRunner

if TYPE_CHECKING:
    from activities._segments import Segments

logger = logging.getLogger(__name__)


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
    """
    if found := conflicts():
        raise ConflictError("; ".join(found))
    use_worker_code()
    from activities._segments import Segments

    settings = services.settings
    segments = Segments(settings.state_dir / "attempts")
    await _fail_abandoned(client, segments)
    async with AsyncExitStack() as stack:
        threads = stack.enter_context(ThreadPoolExecutor(128, thread_name_prefix="activities"))
        for worker in _workers(client, services, segments, threads):
            await stack.enter_async_context(worker)
        yield
    await settled()


def _workers(
    client: Client, services: Services, segments: Segments, threads: ThreadPoolExecutor
) -> list[Worker]:
    """Four pollers, in the order they start: the queue of new workflows comes last."""
    from activities.registry import build_activities
    from workflows.registry import WORKFLOWS

    settings, host = services.settings, services.host
    runner = SegmentRunner(
        steps=services.steps,
        providers=services.providers,
        store=services.store,
        work_root=settings.state_dir / "work",
        cancel_grace=timedelta(seconds=settings.cancel_grace_s),
        now=utc_now,
    )
    table = build_activities(
        index=services.index,
        providers=services.providers,
        runner=runner,
        segments=segments,
        host=host,
        max_episodes=settings.max_episodes,
        policy=Policy(host_lost_after=timedelta(seconds=settings.host_lost_after_s)),
        now=utc_now,
    )
    graceful = timedelta(seconds=settings.graceful_shutdown_s)
    slots = RoomSlots(services.index, host=host, room=settings.max_episodes)
    return [
        Worker(
            client,
            task_queue=names.host_queue(host),
            activities=table.host,
            # Room is counted in the index; this must never be what an episode waits for.
            max_concurrent_activities=10 * settings.max_episodes + 100,
            max_heartbeat_throttle_interval=timedelta(seconds=1),
            graceful_shutdown_timeout=graceful,
        ),
        Worker(
            client,
            task_queue=names.CONTROL_QUEUE,
            activities=table.control,
            activity_executor=threads,
            graceful_shutdown_timeout=graceful,
        ),
        Worker(
            client,
            task_queue=names.TASK_QUEUE,
            activities=table.begin,
            activity_executor=threads,
            tuner=room_tuner(slots),
            graceful_shutdown_timeout=graceful,
        ),
        Worker(
            client,
            task_queue=names.TASK_QUEUE,
            workflows=WORKFLOWS,
            activities=table.local,
            activity_executor=threads,
            no_remote_activities=True,
            max_cached_workflows=2000,
            # The first task after a dead worker would wait 10 s for it otherwise.
            sticky_queue_schedule_to_start_timeout=timedelta(seconds=1),
            graceful_shutdown_timeout=graceful,
        ),
    ]


async def _fail_abandoned(client: Client, segments: Segments) -> None:
    """Fail what a dead predecessor on this host held, so that it is retried at once."""
    for attempt in segments.abandoned():
        handle = client.get_async_activity_handle(
            workflow_id=attempt.workflow_id,
            run_id=attempt.workflow_run_id,
            activity_id=attempt.activity_id,
        )
        try:
            await handle.fail(ApplicationError("its worker died", type="WorkerDied"))
        except RPCError as error:
            logger.debug("attempt of %s is over already: %s", attempt.workflow_id, error)


async def run_worker(client: Client, services: Services, *, stop: asyncio.Event) -> None:
    """Serve episodes until ``stop`` is set."""
    async with serving(client, services):
        await stop.wait()
