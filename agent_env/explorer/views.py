"""What each page shows: frozen, plain data. A page and its JSON twin are made of the same."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from typing import Annotated

from pydantic import Field, JsonValue

from agent_env._model import WireModel
from agent_env.results import StepReport
from agent_env.runs import GroupRecord, RunRecord
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus


class Cause(WireModel):
    """Why a run or a step did not complete, short enough for a row."""

    type: str
    said: str
    """Its first line that says something, at most 300 characters."""


class RunRow(WireModel):
    """A run in a list."""

    run_id: str
    task_id: str
    task_version: str
    run_group_id: str | None
    member_index: int | None
    status: RunStatus
    is_canceling: bool
    """A cancel was asked for and the run has not ended."""
    steps_done: int
    steps_total: int
    current_step: str | None
    reward: float | None
    cause: Cause | None
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    took_s: float | None
    """Seconds from begin to end; of a running one, until now. None before it begins."""
    host: str | None
    epoch: int
    model: str | None
    seed: Mapping[str, str]
    tags: Mapping[str, str]
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None
    cancel_requested_reason: str | None
    still_up: int
    """How many sandboxes could not be destroyed yet."""


class LiveCounts(WireModel):
    """How many runs are under way. A count stops at 10,000."""

    queued: int
    running: int


class RunsView(WireModel):
    """One page of runs."""

    now: datetime
    runs: tuple[RunRow, ...]
    next: str | None
    """``after`` of the next page; None on the last."""
    first: str | None
    """The newest run that this page looked at: what newer ones are counted from. None: no runs."""
    searched_back_to: datetime | None = None
    """Set when only runs since then were looked at: a text search is bounded. ``next`` goes on."""
    is_cut: bool = False
    """The order is over the newest 10,000 runs that match, and there are more."""
    live: LiveCounts
    tasks: tuple[str, ...]
    """Ids to choose from, the latest first; at most 100."""
    is_empty: bool
    """There is no run at all yet."""


class NewerView(WireModel):
    """How many runs that match are newer than those on a page."""

    count: int
    is_more: bool
    """There are more than were counted."""


class Mark(WireModel):
    """A member in a strip."""

    run_id: str
    member_index: int | None
    status: RunStatus
    reward: float | None
    is_canceling: bool


class GroupRow(WireModel):
    """A group in a list."""

    run_group_id: str
    task_id: str
    created_at: datetime
    size: int | None
    """Members asked for; None for a group that only single episodes name."""
    figures: GroupFigures
    marks: tuple[Mark, ...]
    """The first 100 members, in order."""
    marks_left_out: int


class GroupsView(WireModel):
    """One page of groups."""

    now: datetime
    groups: tuple[GroupRow, ...]
    next: str | None
    first: str | None
    tasks: tuple[str, ...]
    is_empty: bool
    """There is no group at all yet."""


class StepView(WireModel):
    """One attempt of one step."""

    report: StepReport
    attempt: int
    """From 1."""
    attempts: int
    """Of this step, so far; 0 when it was skipped."""
    took_s: float | None
    cause: Cause | None


class PendingWork(WireModel):
    """What Temporal is doing, or trying to do, for a run now."""

    name: str
    """Without the prefix: ``run_steps``, ``finish``."""
    attempt: int
    state: str
    """``scheduled``, ``started``, ``cancel requested`` or ``paused``."""
    last_failure: str | None
    next_attempt_at: datetime | None


class Canceling(WireModel):
    """A cancel that was asked for and is not over."""

    requested_at: datetime
    by: str | None
    reason: str | None
    seconds: float
    """Since it was asked for."""
    budget_s: float
    """How long teardown may take before anything else is offered."""
    is_past_budget: bool


class May(WireModel):
    """Whether a button works."""

    allowed: bool
    why_not: str | None = None
    """A sentence for a person."""


class RunView(WireModel):
    """Everything about one run but its conversation."""

    now: datetime
    run: RunRecord
    row: RunRow
    steps: tuple[StepView, ...]
    """In order of epoch and start; those never started last."""
    starts_at: datetime | None
    """Left end of the time axis of the steps."""
    ends_at: datetime | None
    """Right end; now, while it runs."""
    messages: int
    """How many messages its conversation has; a count stops at 100,000."""
    previous_member: str | None = None
    next_member: str | None = None
    pending: tuple[PendingWork, ...] = ()
    """Only of a live run, and only if Temporal answers."""
    temporal_url: str | None
    """The workflow in Temporal's own UI."""
    temporal_trouble: str | None
    """Why Temporal could not be asked."""
    commands: tuple[str, ...]
    """Command lines about this run, to be pasted into a shell."""
    canceling: Canceling | None
    cancel: May
    run_again: May
    terminate: May


class MessageView(WireModel):
    """One message of a conversation."""

    key: str
    """Place in the run: an anchor, and where a page starts."""
    epoch: int
    step_id: str
    seq: int
    message: JsonValue
    """An OpenAI chat message, as it was recorded; texts over 100,000 characters are cut."""
    is_cut: bool = False


class MessagesView(WireModel):
    """A part of a conversation."""

    run_id: str
    messages: tuple[MessageView, ...]
    next: str | None
    searched: int | None = None
    """How many messages were looked through for a text, when not all were."""


class MemberRow(WireModel):
    """A run in its group."""

    row: RunRow
    advantage: float | None


class Reached(WireModel):
    """How many members got to a step, and how it went there. One attempt a member: the latest."""

    step_id: str
    type: str
    reached: int
    running: int
    completed: int
    failed: int
    canceled: int


class Bin(WireModel):
    """One bar of a histogram."""

    low: float
    high: float
    """Exclusive, but for the last."""
    count: int


class GroupView(WireModel):
    """Everything about one group."""

    now: datetime
    group: GroupRecord
    pass_at: Mapping[int, float | None]
    """For 1, 2, 4, … up to the number of scored members."""
    histogram: tuple[Bin, ...]
    marks: tuple[Mark, ...]
    """Every member, in order, up to 2,000."""
    members: tuple[MemberRow, ...]
    """In order, up to 200: the rest is in the list of runs."""
    members_left_out: int
    steps: tuple[Reached, ...]
    """In the order in which they were first reached."""
    temporal_url: str | None
    commands: tuple[str, ...]
    cancel: May


class Difference(WireModel):
    """One thing in which compared runs differ, or agree."""

    name: str
    values: tuple[str | None, ...]
    """One for each run, as text; None where it has none."""
    differs: bool


class CompareView(WireModel):
    """Two to eight runs side by side. What differs comes first."""

    runs: tuple[RunRow, ...]
    facts: tuple[Difference, ...]
    steps: tuple[Difference, ...]
    """By step: how it ended, how long it took, its score."""


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


class Changes(WireModel):
    """What has changed since another moment."""

    seq: int
    """Of the latest change: what a later question starts from."""
    runs: tuple[str, ...] = ()
    """Runs that changed or are new, by id."""
    groups: tuple[str, ...] = ()
    """Groups that these are of."""
    all: bool = False
    """Too much, or too long ago, to be named: fetch again what is shown."""
    live: LiveCounts | None = None
    index: str | None = None
    """Why the index can't be read now; None while it can."""
    temporal: str | None = None
    """Why Temporal can't be reached now; None while it can."""


class Changed(WireModel):
    """What a change did to one thing."""

    target: str
    changed: bool
    detail: str
    """A sentence for a person."""
    run_id: str | None = None
    """Of the new run, when one was started."""
