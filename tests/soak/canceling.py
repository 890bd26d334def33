"""Cancels what a plan says, when it says."""

import asyncio
import time
from collections.abc import Sequence
from datetime import UTC, datetime

from temporalio.service import RPCError

from agent_env.errors import AgentEnvError
from agent_env.trainer import Trainer
from tests.soak.plan import CANCELED_BY, Order

_POLL_S = 0.3


async def cancel_in_time(
    trainer: Trainer, orders: Sequence[Order], canceled_at: dict[str, float]
) -> None:
    """Cancel each order when its time has come, until this is canceled.

    Args:
        trainer: Asks.
        orders: Those without a time are left alone.
        canceled_at: Gets the time, in seconds since 1970, at which each was answered.
    """
    waiting = [order for order in orders if order.cancel_after_s is not None]
    while True:
        for order in waiting:
            try:
                if await _is_canceled(trainer, order):
                    canceled_at[order.id] = time.time()
            except (AgentEnvError, RPCError):
                continue  # not listed yet, or something is away: it is asked again
        waiting = [order for order in waiting if order.id not in canceled_at]
        await asyncio.sleep(_POLL_S)


async def _is_canceled(trainer: Trainer, order: Order) -> bool:
    """Cancel it if it is time to."""
    assert order.cancel_after_s is not None
    episode = trainer.attach(order.run_ids[0])
    age = datetime.now(UTC) - (await episode.record()).created_at
    if age.total_seconds() < order.cancel_after_s:
        return False
    if order.is_group:
        await trainer.attach_group(order.id).cancel(order.reason, by=CANCELED_BY)
    else:
        await episode.cancel(order.reason, by=CANCELED_BY)
    return True
