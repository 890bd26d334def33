"""What the pages of tasks and of health show. Frozen, plain data."""

from __future__ import annotations

from datetime import datetime
from typing import Annotated

from pydantic import Field

from agent_env._model import WireModel
from agent_env.explorer.views import LiveCounts


class TaskPoint(WireModel):
    """A stretch of time in a task's life."""

    starts_at: datetime
    n: int
    n_scored: int
    mean: float | None


class TaskRow(WireModel):
    """A task, summed up over the runs that were looked at."""

    task_id: str
    versions: tuple[str, ...]
    """At most ten."""
    n: int
    queued: int
    running: int
    completed: int
    failed: int
    canceled: int
    n_scored: int
    mean: float | None
    last_at: datetime
    """When its latest run was listed."""
    points: tuple[TaskPoint, ...]
    """Mean reward over time, in stretches of equal length; those without runs are left out."""


class TasksView(WireModel):
    """Every task that was played lately."""

    now: datetime
    since: datetime
    """When the first run that was looked at was listed; without runs, since when they were asked
    for."""
    looked_at: int
    is_cut: bool
    """There were more: the newest were taken."""
    stretch_s: float
    """Length of a point, in seconds."""
    tasks: tuple[TaskRow, ...]
    """The most lately played first; at most 200."""
    is_empty: bool


class WorkerSeen(WireModel):
    """A worker that polled a queue lately."""

    host: str
    """Or what it calls itself, when it polls no host's queue."""
    identity: str
    last_seen: datetime | None
    queues: tuple[str, ...]
    running: int
    """Episodes that the index says run there."""


class Queue(WireModel):
    """A task queue of Temporal's."""

    name: str
    what: str
    """What waits in it, in words."""
    backlog: int | None
    """Tasks that wait, about; None when Temporal does not say."""
    oldest_s: float | None
    """How long the oldest of them has waited, about."""
    pollers: int


class HostLoad(WireModel):
    """A host on which runs are RUNNING."""

    host: str
    running: int
    is_seen: bool | None
    """Whether a worker polls for it; None when Temporal can't be asked."""


class DisagreementRow(WireModel):
    """A run or group on which index and Temporal disagree."""

    kind: str
    target: str
    is_group: bool
    detail: str


class HealthView(WireModel):
    """Whether all parts are there and agree."""

    now: datetime
    version: str
    database: str
    """Its name, without secrets."""
    index_trouble: str | None
    temporal: str | None
    """Its address; None when none is known."""
    namespace: str | None
    temporal_trouble: str | None
    temporal_ui: str | None
    live: LiveCounts | None
    still_up: int | None
    """Runs that name something which could not be destroyed yet."""
    workers: tuple[WorkerSeen, ...]
    queues: tuple[Queue, ...]
    hosts: tuple[HostLoad, ...]
    disagreements: tuple[DisagreementRow, ...] | None
    """None when they could not be looked for."""
    looked_at: datetime | None
    """When disagreements were last looked for."""
    pages_open: int
    """Streams that are open now."""
    poll_ms: Annotated[float | None, Field(description="How long the last poll took.")]
