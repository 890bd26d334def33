"""Whether all parts are there and agree: workers, queues, hosts, index and Temporal."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from typing import NamedTuple

from temporalio.service import RPCError

from agent_env import names
from agent_env._version import __version__
from agent_env.disagreements import Kind
from agent_env.errors import AgentEnvError, UnavailableError, error_text
from agent_env.explorer.health_views import DisagreementRow, HealthView, HostLoad, Queue, WorkerSeen
from agent_env.explorer.links import Links
from agent_env.explorer.live import Poller
from agent_env.explorer.reader import Views
from agent_env.explorer.temporal import QueueState, Temporal
from agent_env.explorer.views import LiveCounts
from agent_env.reconciler import Reconciler
from agent_env.runs import RunIndex

_LOOK_EVERY_S = 30.0
"""How long what was found to disagree is shown before it is looked for again, in seconds."""
_LOOK_S = 5.0
"""How long a look may take, in seconds."""
_MOST_FOUND = 100
_MOST_HOSTS = 50
_RECENT = 500
_HOST_QUEUE = names.host_queue("")
_WHAT = {
    f"{names.TASK_QUEUE} (workflows)": "episodes and groups that wait for a worker",
    names.TASK_QUEUE: "episodes that wait for a host with room",
    names.CONTROL_QUEUE: "ends of episodes without a host, records of groups",
    names.RECONCILE_QUEUE: "looks for what disagrees",
}


class _Counts(NamedTuple):
    live: LiveCounts
    still_up: int
    running: Mapping[str, int]
    hosts: tuple[str, ...]
    """Where runs are or were lately."""


class Health:
    """Asks all parts, each with a bound.

    Args:
        index: The run index.
        temporal: The server.
        views: Whose threads do what blocks.
        poller: Whose work is told of.
        links: To Temporal's UI.
        now: The clock.
        hosts: Hosts that are known otherwise, such as this one.
    """

    def __init__(
        self,
        index: RunIndex,
        temporal: Temporal,
        *,
        views: Views,
        poller: Poller,
        links: Links,
        now: Callable[[], datetime],
        hosts: Sequence[str] = (),
    ) -> None:
        self._index = index
        self._temporal = temporal
        self._views = views
        self._poller = poller
        self._links = links
        self._now = now
        self._hosts = tuple(hosts)
        self._looking = asyncio.Lock()
        self._looked_at: datetime | None = None
        self._look_again = 0.0
        self._found: tuple[DisagreementRow, ...] | None = None

    async def view(self) -> HealthView:
        """How it is now; what could not be asked says why."""
        counts, index_trouble = await self._counts()
        hosts = counts.hosts if counts is not None else self._hosts
        queues, trouble = await self._queues(hosts)
        if index_trouble is None and trouble is None:
            await self._look()
        running: Mapping[str, int] = {} if counts is None else counts.running
        return HealthView(
            now=self._now(),
            version=__version__,
            database=self._index.reads.database,
            index_trouble=index_trouble,
            temporal=self._temporal.address,
            namespace=self._temporal.namespace,
            temporal_trouble=trouble,
            temporal_ui=self._links.temporal_ui,
            live=None if counts is None else counts.live,
            still_up=None if counts is None else counts.still_up,
            workers=_workers(queues, running),
            queues=tuple(_queue(state) for state in queues if _is_shown(state)),
            hosts=_hosts(running, queues, is_known=trouble is None),
            disagreements=self._found,
            looked_at=self._looked_at,
            pages_open=self._poller.listeners,
            poll_ms=self._poller.poll_ms,
        )

    async def _counts(self) -> tuple[_Counts | None, str | None]:
        def read() -> _Counts:
            reads = self._index.reads
            queued, running = reads.live_counts()
            on_hosts = reads.hosts()
            recent = [row.host for row in reads.new_rows(since=None, limit=_RECENT) if row.host]
            hosts = tuple(dict.fromkeys([*self._hosts, *on_hosts, *recent]))[:_MOST_HOSTS]
            live = LiveCounts(queued=queued, running=running)
            return _Counts(live, reads.count_still_up(), on_hosts, hosts)

        try:
            return await self._views.in_thread(read), None
        except AgentEnvError as error:
            return None, error_text(error)

    async def _queues(self, hosts: Sequence[str]) -> tuple[tuple[QueueState, ...], str | None]:
        try:
            return await self._temporal.queues(hosts), None
        except UnavailableError as error:
            return (), error_text(error)
        except RPCError as error:
            return (), error.message

    async def _look(self) -> None:
        """Look for what disagrees, unless somebody just did."""
        async with self._looking:
            if time.monotonic() < self._look_again:
                return
            self._look_again = time.monotonic() + _LOOK_EVERY_S
            try:
                client = await self._temporal.client()
                async with asyncio.timeout(_LOOK_S):
                    look = await Reconciler(client, self._index, now=self._now).look(
                        limit=_MOST_FOUND
                    )
            except (AgentEnvError, RPCError, TimeoutError):
                self._found = None
                return
            self._looked_at = self._now()
            self._found = tuple(
                DisagreementRow(
                    kind=found.kind.value,
                    target=found.target,
                    is_group=found.kind is Kind.STRANDED or found.members is not None,
                    detail=found.detail,
                )
                for found in look.found
            )


def _queue(state: QueueState) -> Queue:
    host = _host_of(state.name)
    return Queue(
        name=state.name,
        what=_WHAT.get(state.name, f"steps, ends and repairs on host {host}"),
        backlog=state.backlog,
        oldest_s=state.oldest_s if state.backlog else None,
        pollers=len(state.pollers),
    )


def _is_shown(state: QueueState) -> bool:
    """Whether a queue says something: that of a host that is gone and owes nothing does not."""
    return _host_of(state.name) is None or bool(state.pollers or state.backlog)


def _host_of(queue: str) -> str | None:
    return queue.removeprefix(_HOST_QUEUE) if queue.startswith(_HOST_QUEUE) else None


def _workers(queues: Sequence[QueueState], running: Mapping[str, int]) -> tuple[WorkerSeen, ...]:
    """One for each name that workers go by, with the host it polls for."""
    polled: dict[str, list[str]] = {}
    seen: dict[str, datetime | None] = {}
    host_of: dict[str, str] = {}
    for state in queues:
        host = _host_of(state.name)
        for poller in state.pollers:
            polled.setdefault(poller.identity, []).append(state.name)
            last = seen.get(poller.identity)
            times = [at for at in (last, poller.last_seen) if at is not None]
            seen[poller.identity] = max(times, default=None)
            if host is not None:
                host_of[poller.identity] = host
    return tuple(
        WorkerSeen(
            host=host_of.get(identity, identity),
            identity=identity,
            last_seen=seen[identity],
            queues=tuple(names),
            running=running.get(host_of.get(identity, ""), 0),
        )
        for identity, names in sorted(polled.items())
    )


def _hosts(
    running: Mapping[str, int], queues: Sequence[QueueState], *, is_known: bool
) -> tuple[HostLoad, ...]:
    polled = {_host_of(state.name) for state in queues if state.pollers}
    return tuple(
        HostLoad(host=host, running=count, is_seen=host in polled if is_known else None)
        for host, count in sorted(running.items())
    )
