"""Lists an episode in the run index, and takes it for this host."""

from collections.abc import Callable
from datetime import datetime

from temporalio import activity

from activities._translate import left_queued, translating
from agent_env import names
from agent_env.runs import RunIndex, RunRecord, new_run
from agent_env.specs import BeginRun, OpenRun, Placement, Policy
from agent_env.status import RunStatus


class RecordActivities:
    """The rows of single episodes. Synchronous: run by the worker's threads."""

    def __init__(
        self,
        index: RunIndex,
        *,
        host: str,
        max_episodes: int,
        policy: Policy,
        now: Callable[[], datetime],
    ) -> None:
        self._index = index
        self._host = host
        self._room = max_episodes
        self._policy = policy
        self._now = now

    @activity.defn(name=names.OPEN)
    def open(self, order: OpenRun) -> Placement:
        """List the run, RUNNING here if there is room."""
        run = new_run(
            order.start,
            workflow_run_id=order.workflow_run_id,
            namespace=order.namespace,
            created_at=order.created_at,
        )
        with translating():
            # The server's time, and now: nobody can say yet whether this host's clock is right.
            at = order.created_at
            row = self._index.open_run(run, host=self._host, room=self._room, at=at)
            return self._placement(row).model_copy(update={"eager": row.host == self._host})

    @activity.defn(name=names.BEGIN)
    def begin(self, order: BeginRun) -> Placement:
        """Take a queued run for this host, whose slot supplier has seen room."""
        with translating():
            self._index.requeue_run(order.run_id, epoch=order.epoch)
            taken = self._index.begin_run(
                order.run_id, host=self._host, room=self._room, epoch=order.epoch, at=self._now()
            )
            if taken is None:
                raise left_queued(f"host {self._host!r} is full, or the run is being canceled")
            return self._placement(taken)

    @activity.defn(name=names.BEGIN)
    def queue(self, order: BeginRun) -> Placement:
        """Begin, handed over with a workflow task: leave it to whichever host has room."""
        raise left_queued("its next attempt comes over the queue")

    def _placement(self, run: RunRecord) -> Placement:
        return Placement(
            host=run.host if run.status is RunStatus.RUNNING else None,
            policy=self._policy,
            finished=run.status.is_finished,
        )
