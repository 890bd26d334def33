"""Keeps an activity alive in Temporal's eyes while it works."""

import asyncio
from collections.abc import AsyncGenerator, Callable
from contextlib import asynccontextmanager

from temporalio import activity

_INTERVAL_S = 5.0


@asynccontextmanager
async def heartbeating(says: Callable[[], str] | None = None) -> AsyncGenerator[None]:
    """Heartbeat every few seconds, so that a dead worker is noticed.

    Args:
        says: What the Temporal UI shows with each.
    """

    async def beat() -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            activity.heartbeat(*([says()] if says is not None else []))

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
