"""What the page of one group shows, and a comparison of members. Frozen, plain data."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime

from agent_env._model import WireModel
from agent_env.explorer.views import Mark, May, RunRow
from agent_env.runs import GroupRecord


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
