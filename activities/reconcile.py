"""Looks for rows whose workflow runs no more, and for workflows without a row."""

import asyncio
from collections.abc import Callable
from datetime import datetime, timedelta

from temporalio import activity
from temporalio.client import Client
from temporalio.service import RPCError

from activities._heartbeat import heartbeating
from activities._translate import translating
from agent_env import names
from agent_env.disagreements import Kind
from agent_env.errors import RunIndexError, UnavailableError, error_text
from agent_env.reconciler import Reconciler
from agent_env.runs import RunIndex
from agent_env.specs import Findings, Reconcile

_AT_MOST = 32
"""Disagreements of one look, about: an error text may be long, and an answer at most 2 MiB."""
_UNDER_WAY_S = 300.0
"""How long repairs may take before their runs are looked at again, in seconds."""


class ReconcileActivities:
    """Looks again and again in one activity, so that looking leaves no history.

    Args:
        client: Of the namespace.
        index: Of the rows.
        every: From the end of one look to the next.
        host_lost_after: How long a host may take to begin a repair.
        now: The clock that rows are written by.
    """

    def __init__(
        self,
        client: Client,
        index: RunIndex,
        *,
        every: timedelta,
        host_lost_after: timedelta,
        now: Callable[[], datetime],
    ) -> None:
        self._reconciler = Reconciler(client, index, now=now)
        self._every_s = every.total_seconds()
        self._host_lost_after = host_lost_after
        self._now = now

    @activity.defn(name=names.RECONCILE)
    async def reconcile(self, order: Reconcile) -> Findings:
        """Look until a host has something to repair, this worker stops, or it is time; or once."""
        said = "has not looked yet"
        async with heartbeating(lambda: said):
            if order.once:
                with translating():
                    return (await self._look(order))[0]
            stops = asyncio.create_task(activity.wait_for_worker_shutdown())
            clock = asyncio.get_running_loop().time
            until = clock() + _UNDER_WAY_S if order.under_way else float("inf")
            try:
                while not stops.done() and clock() < until:
                    try:
                        findings, said = await self._look(order)
                    except (UnavailableError, RunIndexError) as error:
                        said = f"could not look: {error_text(error)}"
                        activity.logger.warning(said)
                    else:
                        if findings.repairs or findings.groups:
                            return findings
                    await asyncio.wait([stops], timeout=self._every_s)
            finally:
                stops.cancel()
        return Findings(host_lost_after=self._host_lost_after)

    async def _look(self, order: Reconcile) -> tuple[Findings, str]:
        """What to repair, after repairing what needs no host; and the same in words."""
        try:
            look = await self._reconciler.look(ignore=order.under_way, limit=_AT_MOST)
            own = [found for found in look.found if found.kind in (Kind.UNLISTED, Kind.UNHEARD)]
            done = tuple([await self._reconciler.mend(found) for found in own])
        except RPCError as error:
            raise UnavailableError(f"Temporal answered with an error: {error.message}") from error
        for repaired in done:
            activity.logger.info(repaired.detail, extra={"run_id": repaired.target})
        findings = Findings(
            repairs=tuple(found.repair for found in look.found if found.repair is not None),
            groups=tuple(found.members for found in look.found if found.members is not None),
            done=done,
            more=not look.is_whole,
            host_lost_after=self._host_lost_after,
        )
        said = (
            f"{self._now():%Y-%m-%d %H:%M:%S} UTC: {look.live} live rows, {look.open} open "
            f"workflows, {len(look.found)} disagreements"
        )
        return findings, said
