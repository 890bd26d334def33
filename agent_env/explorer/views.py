"""What lists and changes show: frozen, plain data, of which a page and its JSON twin are made."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from agent_env._model import WireModel
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


class May(WireModel):
    """Whether a button works."""

    allowed: bool
    why_not: str | None = None
    """A sentence for a person."""


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
