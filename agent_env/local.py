"""Everything on this machine: starts what is missing, uses what runs already."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncGenerator
from contextlib import AsyncExitStack, asynccontextmanager
from dataclasses import dataclass

from temporalio.client import Client

from agent_env._connect import connect, connect_to, external_address
from agent_env._locks import FileLock
from agent_env.config import Settings, load_settings
from agent_env.embedded import embedded_server
from agent_env.errors import ConflictError
from agent_env.trainer import Trainer
from agent_env.worker import Services, open_services, serving

_POLL_S = 0.1
"""How soon a worker's place that became free is taken."""


@dataclass(frozen=True)
class LocalStack:
    """What runs while ``local_stack`` is entered."""

    trainer: Trainer
    ui_url: str | None
    """The Temporal UI; None when Temporal is somewhere else."""
    is_worker: bool
    """Whether this process was the worker of its state folder from the start."""


@asynccontextmanager
async def local_trainer(settings: Settings | None = None) -> AsyncGenerator[Trainer]:
    """A trainer for a bare machine: starts Temporal and a worker where none runs.

    Errors are those of ``local_stack``.
    """
    async with local_stack(settings or load_settings().settings) as stack:
        yield stack.trainer


@asynccontextmanager
async def local_stack(settings: Settings) -> AsyncGenerator[LocalStack]:
    """Temporal (embedded, unless its own settings name one), the run index and a worker.

    One process serves a state folder at a time: when another does, this one waits to take over, so
    that its episodes go on when the other leaves.

    Raises:
        UnavailableError: Temporal can't be started or reached.
        IndexUnavailableError: the run index's database does not answer.
        ConflictError: another installed package provides ``workflows`` or ``activities``.
    """
    async with AsyncExitStack() as stack:
        client, ui_url = await _temporal(settings, stack)
        services = await stack.enter_async_context(open_services(settings))
        lock = worker_lock(settings)
        is_worker = lock.try_acquire()
        if is_worker:
            stack.callback(lock.release)
            await stack.enter_async_context(serving(client, services))
        else:
            successor = asyncio.create_task(_take_over(lock, client, services))
            stack.push_async_callback(_stopped, successor)
        trainer = Trainer(client, services.index, services.store)
        with trainer.entered():
            yield LocalStack(trainer, ui_url, is_worker)


@asynccontextmanager
async def worker_alone(settings: Settings) -> AsyncGenerator[Services]:
    """A worker and nothing else, for a cluster: Temporal and the run index must be there.

    Raises:
        ConflictError: another process serves this state folder.
        UnavailableError: Temporal does not answer.
        IndexUnavailableError: the run index's database does not answer.
    """
    async with AsyncExitStack() as stack:
        client = await connect(settings.state_dir)
        services = await stack.enter_async_context(open_services(settings))
        lock = worker_lock(settings)
        if not lock.try_acquire():
            raise ConflictError(
                f"another worker serves the state folder {settings.state_dir}; stop it, or give "
                "this one a folder of its own with EPISODES_STATE_DIR"
            )
        stack.callback(lock.release)
        await stack.enter_async_context(serving(client, services))
        yield services


def worker_lock(settings: Settings) -> FileLock:
    """Held by the process that serves a state folder."""
    return FileLock(settings.state_dir / "worker.lock")


async def _take_over(lock: FileLock, client: Client, services: Services) -> None:
    """Become the worker once the one before has left or died."""
    while not lock.try_acquire():
        await asyncio.sleep(_POLL_S)
    try:
        async with serving(client, services):
            await asyncio.Event().wait()
    finally:
        lock.release()


async def _stopped(task: asyncio.Task[None]) -> None:
    task.cancel()
    await asyncio.wait([task])


async def _temporal(settings: Settings, stack: AsyncExitStack) -> tuple[Client, str | None]:
    if external_address() is not None:
        return await connect(settings.state_dir), None
    server = await stack.enter_async_context(embedded_server(settings.state_dir))
    return await connect_to(server.address), server.ui_url
