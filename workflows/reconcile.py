"""Reconciles the run index with Temporal: looks, and ends the runs whose workflow did not."""

import asyncio
from collections.abc import Awaitable
from datetime import timedelta

from temporalio import workflow
from temporalio.exceptions import FailureError

with workflow.unsafe.imports_passed_through():
    from activities.finish import FinishActivities
    from activities.groups import GroupActivities
    from activities.reconcile import ReconcileActivities
    from agent_env import names
    from agent_env.errors import bounded
    from agent_env.specs import (
        CancelMembers,
        Findings,
        Reconcile,
        Reconciled,
        Repair,
        Repaired,
    )
    from workflows import _calls
    from workflows._faults import fault_of, is_host_lost

_LOOKS = 50
"""Of one run: then it continues as new, long before its history is long."""
_AT_ONCE = 500
"""Most repairs under way before the next look."""
_TOLD = 500
"""Most repairs that a reconciliation by hand lists."""
_TOLD_CHARS = 500


@workflow.defn(name=names.RECONCILER)
class ReconcileWorkflow:
    """Watches for as long as its namespace lives; or, by hand, looks until all is repaired."""

    @workflow.init
    def __init__(self, order: Reconcile) -> None:
        self._under_way: dict[str, asyncio.Task[None]] = {}
        self._repaired: list[Repaired] = []
        self._count = 0

    @workflow.run
    async def run(self, order: Reconcile) -> Reconciled:
        """Look, repair, look again. A repair that hangs keeps nothing else waiting."""
        more = True
        for _ in range(_LOOKS):
            found = await self._look(order)
            for repair in found.repairs:
                self._start(repair.run_id, self._repair(repair, found.host_lost_after))
            for members in found.groups:
                self._start(members.run_group_id, self._end_members(members))
            more = found.more
            if order.once and not more:
                break
            await workflow.wait_condition(lambda: len(self._under_way) < _AT_ONCE)
        await workflow.wait_condition(lambda: not self._under_way)
        if not order.once:
            workflow.continue_as_new(order)
        return Reconciled(repaired=tuple(self._repaired), count=self._count, more=more)

    async def _look(self, order: Reconcile) -> Findings:
        found = await workflow.execute_activity_method(
            ReconcileActivities.reconcile,
            order.model_copy(update={"under_way": tuple(self._under_way)}),
            **_calls.on(names.RECONCILE_QUEUE, _calls.RECONCILE),
        )
        for repaired in found.done:
            self._note(repaired)
        return found

    def _start(self, target: str, repair: Awaitable[Repaired]) -> None:
        async def repaired() -> None:
            try:
                self._note(await repair)
            except FailureError as error:
                detail = f"could not be repaired: {fault_of(error).message}"
                self._note(Repaired(target=target, changed=False, detail=detail, agrees=False))
            finally:
                del self._under_way[target]

        self._under_way[target] = asyncio.create_task(repaired())

    async def _repair(self, repair: Repair, host_lost_after: timedelta) -> Repaired:
        """End a run: on the host that may have its sandboxes, else anywhere."""
        if repair.host is not None:
            try:
                return await workflow.execute_activity_method(
                    FinishActivities.repair,
                    repair,
                    **_calls.on(
                        names.host_queue(repair.host),
                        _calls.REPAIR,
                        host_lost_after=host_lost_after,
                    ),
                )
            except FailureError as error:
                if not is_host_lost(error):
                    raise
        return await workflow.execute_activity_method(
            FinishActivities.repair, repair, **_calls.on(names.CONTROL_QUEUE, _calls.REPAIR)
        )

    async def _end_members(self, members: CancelMembers) -> Repaired:
        await workflow.execute_activity_method(
            GroupActivities.cancel, members, **_calls.on(names.CONTROL_QUEUE, _calls.REPAIR_GROUP)
        )
        detail = f"members that never started are CANCELED: {members.reason}"
        return Repaired(target=members.run_group_id, changed=True, detail=detail)

    def _note(self, repaired: Repaired) -> None:
        self._count += 1
        if not repaired.agrees:
            workflow.logger.warning("%s: %s", repaired.target, repaired.detail)
        if len(self._repaired) < _TOLD:
            cut = bounded(repaired.detail, _TOLD_CHARS)
            self._repaired.append(repaired.model_copy(update={"detail": cut}))
