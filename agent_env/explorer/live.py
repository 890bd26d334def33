"""One poller reads the index for everyone who watches, and only while somebody does."""

from __future__ import annotations

import asyncio
import logging
import time
from collections import deque
from collections.abc import AsyncGenerator, Awaitable, Callable, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from datetime import datetime, timedelta
from typing import Any, NamedTuple

from temporalio.service import RPCError

from agent_env.errors import AgentEnvError, UnavailableError, error_text
from agent_env.explorer.temporal import Temporal
from agent_env.explorer.views import Changes, LiveCounts
from agent_env.runs.lists import LiveRow, WatchedRun
from agent_env.runs.reads import IndexReads

_log = logging.getLogger(__name__)

EVERY_S = 1.0
"""How often the index is read while somebody watches, in seconds; slower when reading is slow."""
_MOST_ROWS = 2_000
"""Live runs of each status that are compared; changes of older ones are seen at a reload."""
_MOST_NAMED = 500
_KEPT = 120
"""Changes that a listener may have missed and still be told by name."""
_OVERLAP = timedelta(seconds=10)
"""Clocks of those who list runs differ: what is new is looked for a bit further back."""
_ASK_TEMPORAL_S = 5.0
"""How often Temporal is asked whether it is there, in seconds."""
_LAST_LISTENER_S = 30.0
"""How long after the last question the poller goes on, and watches the run that was asked about."""
_MOST_WATCHED = 200
"""Runs that are watched for their pages; of more, those that were asked about last."""


class Snapshot(NamedTuple):
    """What two polls are compared by."""

    live: Mapping[str, LiveRow]
    new: Mapping[str, LiveRow]
    counts: LiveCounts
    watched: Mapping[str, WatchedRun] = {}
    """Runs that pages are about. They tell more of themselves, and also after their end."""


def differences(before: Snapshot, after: Snapshot) -> tuple[set[str], set[str]]:
    """Runs that changed, began or ended between two polls, and the groups that they are of."""
    old, now = {**before.new, **before.live}, {**after.new, **after.live}
    changed = {run_id for run_id, row in now.items() if old.get(run_id) != row}
    # One that is no longer live has ended; it may have left the list of what is new as well.
    changed |= {run_id for run_id in before.live if run_id not in after.live}
    # One that was not watched before may have changed since its page was made.
    changed |= {
        run_id for run_id, row in after.watched.items() if before.watched.get(run_id) != row
    }
    rows = {**before.watched, **after.watched, **old, **now}
    groups = {
        group
        for run_id in changed
        if run_id in rows and (group := rows[run_id].run_group_id) is not None
    }
    return changed, groups


class Poller:
    """Reads what is live, compares, and tells listeners.

    Args:
        reads: Of the index.
        in_thread: Runs what blocks.
        temporal: Asked now and then whether it answers.
        every_s: How often to read.
    """

    def __init__(
        self,
        reads: IndexReads,
        *,
        in_thread: Callable[..., Awaitable[Any]],
        temporal: Temporal,
        every_s: float = EVERY_S,
    ) -> None:
        self._reads = reads
        self._in_thread = in_thread
        self._temporal = temporal
        self._asked_at = 0.0
        self._every_s = every_s
        self._snapshot: Snapshot | None = None
        self._newest: datetime | None = None
        self._changes: deque[Changes] = deque(maxlen=_KEPT)
        self._latest = Changes(seq=int(time.time() * 1000))  # grows over restarts, too
        self._told = asyncio.Condition()
        self._wanted = asyncio.Event()
        self._wanted_until = 0.0
        self._watched_until: dict[str, float] = {}
        self._stopped = False
        self.listeners = 0
        """Streams that are open now."""
        self.polls = 0
        """How often the index was read."""
        self.poll_ms: float | None = None
        """How long the last poll took."""

    @asynccontextmanager
    async def running(self) -> AsyncGenerator[None]:
        """Poll while entered, if somebody watches."""
        task = asyncio.create_task(self._run())
        try:
            yield
        finally:
            task.cancel()
            with suppress(asyncio.CancelledError):
                await task

    @property
    def seq(self) -> int:
        """Of the latest change: what a page that is made now need not hear of."""
        return self._latest.seq

    def since(self, seq: int | None, *, run_id: str | None = None) -> Changes:
        """What has changed after this; all of it, when that is too long ago.

        Args:
            seq: Of another answer, or of a page.
            run_id: The run that the page is about. It is watched for as long as it is asked about.
        """
        self._want(run_id)
        latest = self._latest
        if seq is None or seq == latest.seq:
            return latest.model_copy(update={"runs": (), "groups": (), "all": False})
        missed = [change for change in self._changes if change.seq > seq]
        is_known = bool(self._changes) and self._changes[0].seq - 1 <= seq <= latest.seq
        runs = tuple(dict.fromkeys(run for change in missed for run in change.runs))
        if not is_known or any(change.all for change in missed) or len(runs) > _MOST_NAMED:
            return latest.model_copy(update={"runs": (), "groups": (), "all": True})
        groups = tuple(dict.fromkeys(group for change in missed for group in change.groups))
        return latest.model_copy(update={"runs": runs, "groups": groups})

    async def stream(
        self, seq: int | None, *, run_id: str | None = None, beat_s: float = 15.0
    ) -> AsyncGenerator[Changes | None]:
        """Changes as they come, beginning with how it is now; None now and then, as a beat."""
        self.listeners += 1
        try:
            change = self.since(seq, run_id=run_id)
            while not self._stopped:
                yield change
                seq = change.seq
                while self._latest.seq == seq and not self._stopped:
                    try:
                        async with asyncio.timeout(beat_s):
                            async with self._told:
                                await self._told.wait_for(
                                    lambda seen=seq: self._stopped or self._latest.seq != seen
                                )
                    except TimeoutError:
                        self._want(run_id)
                        yield None
                change = self.since(seq, run_id=run_id)
        finally:
            self.listeners -= 1

    async def stop(self) -> None:
        """End every stream, so that the server can end."""
        async with self._told:
            self._stopped = True
            self._told.notify_all()

    def _want(self, run_id: str | None) -> None:
        self._wanted_until = time.monotonic() + _LAST_LISTENER_S
        self._wanted.set()
        if run_id is None:
            return
        self._watched_until.pop(run_id, None)  # so that those asked about last stand last
        self._watched_until[run_id] = self._wanted_until
        if len(self._watched_until) > _MOST_WATCHED:
            del self._watched_until[next(iter(self._watched_until))]

    def _still_watched(self) -> tuple[str, ...]:
        now = time.monotonic()
        self._watched_until = {
            run_id: until for run_id, until in self._watched_until.items() if until > now
        }
        return tuple(self._watched_until)

    async def _run(self) -> None:
        while True:
            if not self.listeners and time.monotonic() > self._wanted_until:
                self._wanted.clear()
                self._snapshot = None
                await self._wanted.wait()
            began = time.monotonic()
            await self._poll()
            took = time.monotonic() - began
            self.poll_ms = took * 1000
            await asyncio.sleep(max(self._every_s, 5 * took))

    async def _poll(self) -> None:
        self.polls += 1
        temporal = await self._temporal_trouble()
        try:
            after = await self._in_thread(self._read, self._still_watched())
        except Exception as error:
            # Whatever it is, pages must hear of it, and of its end.
            if not isinstance(error, AgentEnvError):
                _log.exception("the explorer could not read what changed")
            await self._tell(
                runs=(), groups=(), all=False, index=error_text(error), temporal=temporal
            )
            return
        before, self._snapshot = self._snapshot, after
        if before is None:
            # Nobody watched, or the index was away: what happened meanwhile has no names.
            await self._tell((), (), all=True, live=after.counts, temporal=temporal)
            return
        runs, groups = differences(before, after)
        if len(runs) > _MOST_NAMED:
            await self._tell((), (), all=True, live=after.counts, temporal=temporal)
        else:
            await self._tell(
                sorted(runs), sorted(groups), all=False, live=after.counts, temporal=temporal
            )

    async def _temporal_trouble(self) -> str | None:
        if time.monotonic() >= self._asked_at + _ASK_TEMPORAL_S:
            self._asked_at = time.monotonic()
            with suppress(UnavailableError, RPCError):
                await self._temporal.asked(lambda client: client.service_client.check_health())
        return self._temporal.trouble

    def _read(self, watched: Sequence[str]) -> Snapshot:
        since = None if self._newest is None else self._newest - _OVERLAP
        live = {row.run_id: row for row in self._reads.live_rows(limit=_MOST_ROWS)}
        new = self._reads.new_rows(since=since, limit=_MOST_ROWS if since else 1)
        if new:
            self._newest = max(new[0].created_at, self._newest or new[0].created_at)
        queued, running = self._reads.live_counts()
        counts = LiveCounts(queued=queued, running=running)
        return Snapshot(
            live, {row.run_id: row for row in new}, counts, self._reads.watched(watched)
        )

    async def _tell(
        self,
        runs: Sequence[str],
        groups: Sequence[str],
        *,
        all: bool,
        live: LiveCounts | None = None,
        index: str | None = None,
        temporal: str | None = None,
    ) -> None:
        if index is not None:
            self._snapshot = None
        last = self._latest
        same = (live, index, temporal) == (last.live, last.index, last.temporal)
        if not runs and not all and same:
            return
        change = Changes(
            seq=last.seq + 1,
            runs=tuple(runs),
            groups=tuple(groups),
            all=all,
            live=live,
            index=index,
            temporal=temporal,
        )
        self._changes.append(change)
        async with self._told:
            self._latest = change
            self._told.notify_all()
