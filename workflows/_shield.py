"""Awaiting something to its end, whatever cancels arrive meanwhile."""

import asyncio
from collections.abc import Awaitable
from typing import TypeVar

_T = TypeVar("_T")


async def shielded(awaitable: Awaitable[_T]) -> _T:
    """Await to the end; a cancel that arrives is kept in ``workflow.cancellation_reason()``."""
    inner = asyncio.ensure_future(awaitable)
    while not inner.done():
        try:
            await asyncio.shield(inner)
        except asyncio.CancelledError:
            # Either the workflow was asked to cancel, or it is evicted and `inner` ends with it.
            continue
    return inner.result()
