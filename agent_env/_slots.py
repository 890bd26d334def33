"""A slot for ``begin`` only while this host has room, so that queued episodes stay on the queue."""

import asyncio
import logging
import time

from temporalio.worker import (
    CustomSlotSupplier,
    FixedSizeSlotSupplier,
    SlotMarkUsedContext,
    SlotPermit,
    SlotReleaseContext,
    SlotReserveContext,
    WorkerTuner,
)

from agent_env.errors import RunIndexError
from agent_env.runs import RunIndex

_POLL_S = 0.25
"""How soon a place that became free is noticed."""
_WARN_EVERY_S = 60.0

logger = logging.getLogger(__name__)


class RoomSlots(CustomSlotSupplier):
    """Counts live runs of this host in the index: episodes take places by ``open``, too.

    A begin under way holds a permit until its row is written, so permits count as taken.
    """

    def __init__(self, index: RunIndex, *, host: str, room: int) -> None:
        self._index = index
        self._host = host
        self._room = room
        self._held = 0
        self._quiet_until = 0.0

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Wait for room."""
        while not await self._has_room():
            await asyncio.sleep(_POLL_S)
        self._held += 1
        return SlotPermit()

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """Eager tasks are not for this queue."""
        return None

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """Nothing to note: the index counts."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """The begin is over, or its poll was; the row counts from here."""
        self._held -= 1

    async def _has_room(self) -> bool:
        try:
            running = await asyncio.to_thread(self._index.count_running, self._host)
        except RunIndexError as error:
            if time.monotonic() >= self._quiet_until:
                self._quiet_until = time.monotonic() + _WARN_EVERY_S
                logger.warning("no episode can begin here: %s", error)
            return False
        return running + self._held < self._room


class EagerSlots(CustomSlotSupplier):
    """Slots for what comes with the answer to a workflow task, and none for polling.

    The worker of the workflows is given activities of its own host that way; what waits on the
    shared queue is for the worker that begins episodes.

    Args:
        most: How many activities may run so at once.
    """

    def __init__(self, most: int) -> None:
        self._left = most

    async def reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit:
        """Never."""
        await asyncio.Event().wait()
        raise AssertionError("unreachable")

    def try_reserve_slot(self, ctx: SlotReserveContext) -> SlotPermit | None:
        """A slot for an eager activity, if one is left."""
        if self._left <= 0:
            return None
        self._left -= 1
        return SlotPermit()

    def mark_slot_used(self, ctx: SlotMarkUsedContext) -> None:
        """Nothing to note."""

    def release_slot(self, ctx: SlotReleaseContext) -> None:
        """The activity is over, or none came."""
        self._left += 1


def eager_tuner(most: int) -> WorkerTuner:
    """The suppliers of the worker that runs the workflows."""
    return WorkerTuner.create_composite(
        workflow_supplier=FixedSizeSlotSupplier(100),
        activity_supplier=EagerSlots(most),
        local_activity_supplier=FixedSizeSlotSupplier(100),
        nexus_supplier=FixedSizeSlotSupplier(1),
    )


def room_tuner(slots: RoomSlots) -> WorkerTuner:
    """The supplier for activities; this worker has nothing else."""
    return WorkerTuner.create_composite(
        workflow_supplier=FixedSizeSlotSupplier(1),
        activity_supplier=slots,
        local_activity_supplier=FixedSizeSlotSupplier(1),
        nexus_supplier=FixedSizeSlotSupplier(1),
    )
