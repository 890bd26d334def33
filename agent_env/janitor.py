"""Destroys what ended or lost episodes left behind: sandboxes, and folders of their steps.

Teardown is the workflow's, and nearly always all there is to do. The janitor is for what teardown
can't reach: a sandbox whose creation was answered after teardown, one that could not be destroyed,
and all that a host kept which came back after its episodes had begun again elsewhere.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterable, Mapping
from contextlib import asynccontextmanager
from datetime import datetime, timedelta

from temporalio.client import Client, WorkflowExecutionStatus
from temporalio.service import RPCError, RPCStatusCode

from agent_env._garbage import UNLISTED_GRACE, Verdict, Workflow, is_forgotten, verdict
from agent_env._keepers import Keeper, Left, answered
from agent_env.errors import RunIndexError, UnavailableError, error_text, error_type
from agent_env.results import SandboxRef
from agent_env.runs import RunIndex
from agent_env.sandboxes import Providers, SandboxProvider

logger = logging.getLogger(__name__)

_AT_ONCE = 4
"""Most things that are being destroyed at one time."""
_STOP_S = 1.0
_PAGE = 500
"""Most runs whose ``still_up`` is looked at in one pass."""


_Owned = tuple[Keeper, str]
"""A keeper, and a run that has something there."""


class Janitor:
    """One for each worker.

    Args:
        index: The run index.
        providers: The sandbox providers.
        others: What else keeps things for runs on this host.
        host: This host.
        ask_temporal: What Temporal knows of the workflow of this id. Raises UnavailableError if
            Temporal does not answer.
        every: Time from one pass to the next.
        now: The clock that ages are measured by.
    """

    def __init__(
        self,
        index: RunIndex,
        providers: Providers,
        *,
        others: Iterable[Keeper] = (),
        host: str,
        ask_temporal: Callable[[str], Awaitable[Workflow]],
        every: timedelta,
        now: Callable[[], datetime],
    ) -> None:
        self._index = index
        self._providers = providers
        self._others = tuple(others)
        self._host = host
        self._ask_temporal = ask_temporal
        self._every = every
        self._now = now
        self._at_once = asyncio.Semaphore(_AT_ONCE)
        self._first_seen: dict[tuple[str, str], datetime] = {}
        self._named_after = ""
        self._told: set[str] = set()
        self._failing: set[str] = set()

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Sweep while entered, first at once; on the way out stop at once, in mid-pass too."""
        task = asyncio.create_task(self._run(), name="janitor")
        try:
            yield
        finally:
            task.cancel()
            await asyncio.wait([task], timeout=_STOP_S)

    async def _run(self) -> None:
        while True:
            try:
                await self.sweep()
            except RunIndexError as error:
                self._failed("index", "nothing can be known to be garbage", error)
                self._told |= self._failing
            except Exception:
                logger.exception("a pass of the janitor failed; another one follows")
            await asyncio.sleep(self._every.total_seconds())

    async def sweep(self) -> None:
        """One pass. What can't be done now is tried again in the next.

        Raises:
            IndexUnavailableError: the index does not answer; nothing has been destroyed.
        """
        self._failing = set()
        providers, broken = await asyncio.to_thread(self._providers.installed)
        for type, error in broken.items():
            self._failed(type, f"the sandbox provider {type!r} can't be used", error)
        keepers = [*providers.items(), *((other.type, other) for other in self._others)]
        owned = [
            (keeper, owner)
            for type, keeper in keepers
            for owner in await self._owners(type, keeper)
        ]
        found = await self._judged(owned)
        # Listed before the rows are read again: what a run makes after that is not in the list.
        moved = await self._still(Verdict.MOVED, await self._listed(found[Verdict.MOVED]))
        unlisted = await self._forgotten(await self._listed(found[Verdict.UNLISTED]))
        unlisted = await self._still(Verdict.UNLISTED, unlisted)
        ended = await self._listed(found[Verdict.ENDED])
        named = await self._named(providers)
        await self._destroy([*ended, *moved, *unlisted, *named])
        self._told = self._failing

    async def _owners(self, type: str, keeper: Keeper) -> set[str]:
        try:
            return await answered(keeper.owners())
        except Exception as error:  # foreign code, and one of it must not stop the others
            self._failed(type, f"the sandbox provider {type!r} can't say what it has", error)
            return set()

    async def _judged(self, owned: Iterable[_Owned]) -> Mapping[Verdict, list[_Owned]]:
        owned = list(owned)
        ids = list({owner for _, owner in owned})
        rows = await asyncio.to_thread(self._index.places, ids)
        found: dict[Verdict, list[_Owned]] = {each: [] for each in Verdict}
        for keeper, owner in owned:
            judged = verdict(rows.get(owner), host=self._host, is_local=keeper.is_local)
            found[judged].append((keeper, owner))
        return found

    async def _listed(self, owned: Iterable[_Owned]) -> list[Left]:
        left: list[Left] = []
        for keeper, owner in owned:
            try:
                refs = await answered(keeper.list_owned(owner))
            except Exception as error:
                what = f"{keeper.type!r} can't say what it has of run {owner}"
                self._failed(owner, what, error)
            else:
                left += [Left(keeper, owner, ref) for ref in refs]
        return left

    async def _still(self, expected: Verdict, left: Iterable[Left]) -> list[Left]:
        """Those of whose runs the index still says the same."""
        left = list(left)
        found = await self._judged({(each.keeper, each.owner) for each in left})
        expected_owned = set(found[expected])
        return [each for each in left if (each.keeper, each.owner) in expected_owned]

    async def _forgotten(self, left: Iterable[Left]) -> list[Left]:
        """Those that nobody knows of any more: old enough, and Temporal does not object."""
        now = self._now()
        ages: dict[tuple[str, str], datetime] = {}
        found: list[Left] = []
        asked: dict[str, Workflow] = {}
        for each in left:
            # A half-made sandbox may not know how old it is.
            since = min(self._first_seen.get(each.key, now), each.ref.created_at)
            ages[each.key] = since
            if now - since < UNLISTED_GRACE:
                continue
            try:
                if each.owner not in asked:
                    asked[each.owner] = await self._ask_temporal(each.owner)
            except UnavailableError as error:
                self._failed("Temporal", "what the index does not list stays", error)
                break
            if is_forgotten(asked[each.owner], now - since, is_local=each.keeper.is_local):
                found.append(each)
        self._first_seen = ages
        return found

    async def _named(self, providers: Mapping[str, SandboxProvider]) -> list[Left]:
        """What runs name as still up, where this host can tell; a page a pass."""
        rows = await asyncio.to_thread(self._index.still_up, after=self._named_after, limit=_PAGE)
        self._named_after = rows[-1].run_id if len(rows) == _PAGE else ""
        return [
            Left(provider, row.run_id, ref)
            for row in rows
            for ref in row.refs
            if (provider := providers.get(ref.type)) is not None
            and (row.host == self._host or not provider.is_local)
        ]

    async def _destroy(self, left: Iterable[Left]) -> None:
        """Destroy each, and take what is gone from what its run names as still up."""
        distinct = {each.key: each for each in left}.values()
        is_gone = await asyncio.gather(*(self._destroyed(each) for each in distinct))
        gone: dict[str, list[SandboxRef]] = {}
        for each, went in zip(distinct, is_gone, strict=True):
            if went:
                gone.setdefault(each.owner, []).append(each.ref)
        for run_id, refs in gone.items():
            await asyncio.to_thread(self._index.record_destroyed, run_id, refs)

    async def _destroyed(self, left: Left) -> bool:
        ref = left.ref
        async with self._at_once:
            try:
                await answered(left.keeper.destroy(ref))
            except Exception as error:
                what = f"{ref.type} {ref.name!r} ({ref.id}) of run {left.owner} is still up"
                self._failed(left.owner, what, error)
                return False
        logger.info("destroyed %s %r (%s) of run %s", ref.type, ref.name, ref.id, left.owner)
        return True

    def _failed(self, key: str, what: str, error: Exception) -> None:
        """Tell it once, however often it is tried: until a pass in which it did not fail."""
        if key not in self._told | self._failing:
            every_s = self._every.total_seconds()
            said = f"{error_type(error)}: {error_text(error)}"
            logger.warning("%s: %s; tried again every %g s", what, said, every_s)
        self._failing.add(key)


def asking(client: Client) -> Callable[[str], Awaitable[Workflow]]:
    """What ``ask_temporal`` of a janitor is in a worker."""

    async def ask(workflow_id: str) -> Workflow:
        handle = client.get_workflow_handle(workflow_id)
        try:
            found = await handle.describe(rpc_timeout=timedelta(seconds=10))
        except RPCError as error:
            if error.status is RPCStatusCode.NOT_FOUND:
                return Workflow.UNKNOWN
            raise UnavailableError(f"Temporal does not answer: {error}") from None
        is_open = found.status is WorkflowExecutionStatus.RUNNING
        return Workflow.OPEN if is_open else Workflow.CLOSED

    return ask
