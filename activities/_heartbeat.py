"""Keeps an activity alive in Temporal's eyes while it works."""

import asyncio
from collections.abc import AsyncGenerator
from contextlib import asynccontextmanager

from temporalio import activity

_INTERVAL_S = 5.0


@asynccontextmanager
async def heartbeating() -> AsyncGenerator[None]:
    """Heartbeat every few seconds, so that a dead worker is noticed."""

    async def beat() -> None:
        while True:
            await asyncio.sleep(_INTERVAL_S)
            activity.heartbeat()

    beating = asyncio.create_task(beat())
    try:
        yield
    finally:
        beating.cancel()
