"""What is asked of lists and conversations, and what they answer with."""

from __future__ import annotations

import base64
from collections.abc import Mapping
from datetime import UTC, datetime
from enum import StrEnum
from typing import Any, NamedTuple

from pydantic import AwareDatetime

from agent_env._model import EdgeModel, WireModel
from agent_env.errors import InvalidSpecError, bounded
from agent_env.runs.records import GroupRecord, RunRecord
from agent_env.status import RunStatus


class RunFilter(EdgeModel):
    """Conditions on runs; all that are set must hold."""

    status: tuple[RunStatus, ...] = ()
    task_id: str | None = None
    run_group_id: str | None = None
    created_after: AwareDatetime | None = None
    """Inclusive, so that intervals meet without a gap."""
    created_before: AwareDatetime | None = None
    """Exclusive."""
    reward_min: float | None = None
    """Inclusive, like ``reward_max``. Unscored runs match neither."""
    reward_max: float | None = None
    error_contains: str | None = None
    """Any part of the error's text; upper and lower case of ASCII are the same."""
    text: str | None = None
    """Any part of the error, of an id, or of a tag's value; ASCII's cases are the same."""
    tag: Mapping[str, str] = {}
    """Each of these tags has this value."""


class RunSort(StrEnum):
    """The order of a list of runs. Runs without what they are ordered by come last."""

    NEWEST = "-created"
    OLDEST = "created"
    LAST_STARTED = "-started"
    FIRST_STARTED = "started"
    LAST_FINISHED = "-finished"
    FIRST_FINISHED = "finished"
    LONGEST = "-took"
    SHORTEST = "took"
    BEST = "-reward"
    WORST = "reward"


class RunCursor(EdgeModel):
    """The last row of a page; the next page starts after it."""

    created_at: AwareDatetime
    run_id: str

    def text(self) -> str:
        """As one word for a URL or a command line."""
        plain = f"{self.created_at.astimezone(UTC).isoformat()} {self.run_id}"
        return base64.urlsafe_b64encode(plain.encode("utf-8", "surrogatepass")).decode().rstrip("=")

    @classmethod
    def of(cls, text: str) -> RunCursor:
        """Read it back.

        Raises:
            InvalidSpecError: it is not a cursor.
        """
        try:
            padded = text.encode() + b"=" * (-len(text) % 4)
            plain = base64.b64decode(padded, altchars=b"-_", validate=True)
            created_at, _, run_id = plain.decode("utf-8", "surrogatepass").partition(" ")
            return cls(created_at=datetime.fromisoformat(created_at), run_id=run_id)
        except ValueError:  # of any of the four
            raise InvalidSpecError.of(
                "cursor",
                f"{bounded(text, 100)!r} is not a cursor; use the one that came with a page",
            ) from None


class RunPage(WireModel):
    """Rows, newest first."""

    runs: tuple[RunRecord, ...]
    next: RunCursor | None
    """None on the last page."""


class RunList(RunPage):
    """A page of a search, in its order; errors are cut after 1,000 characters."""

    searched_back_to: datetime | None = None
    """Only runs from here on were looked at; ``next`` looks further."""
    is_cut: bool = False
    """The order is over the newest runs only, and there are more."""


class GroupFilter(EdgeModel):
    """Conditions on groups; all that are set must hold."""

    task_id: str | None = None
    created_after: AwareDatetime | None = None
    """Inclusive."""
    created_before: AwareDatetime | None = None
    """Exclusive."""
    text: str | None = None
    """Any part of the id; ASCII's cases are the same."""


class GroupPage(WireModel):
    """Groups, newest first."""

    groups: tuple[GroupRecord, ...]
    next: RunCursor | None


class GroupMark(NamedTuple):
    """A member as it is drawn in a strip."""

    run_id: str
    member_index: int | None
    status: RunStatus
    reward: float | None
    is_canceling: bool


class LiveRow(NamedTuple):
    """What of a run changes while it is live: two reads of it are compared."""

    run_id: str
    run_group_id: str | None
    created_at: datetime
    status: str
    steps_done: int
    current_step: str | None
    host: str | None
    epoch: int
    cancel_requested_at: datetime | None
    reward: float | None
    prompt_tokens: int | None
    completion_tokens: int | None


class WatchedRun(NamedTuple):
    """What of a run changes that no list tells of: two reads of it are compared."""

    run_group_id: str | None
    status: str
    error: str | None
    still_up: Any
    messages: int
    """Length of its conversation; a count stops at 100,000."""


class StepTally(NamedTuple):
    """How many members of a group are at, or have ended, a step. Retried attempts don't count."""

    step_id: str
    type: str
    running: int
    completed: int
    failed: int
    canceled: int


class TaskSpan(NamedTuple):
    """The runs of one version of a task in one stretch of time."""

    task_id: str
    task_version: str
    place: int
    """Which stretch, from 0."""
    n: int
    queued: int
    running: int
    completed: int
    failed: int
    canceled: int
    n_scored: int
    reward_sum: float | None
    last_at: datetime


class MessagePlace(NamedTuple):
    """Where a message is in its run."""

    epoch: int
    step_id: str
    seq: int

    def text(self) -> str:
        """As one word for a URL."""
        return f"{self.epoch}.{self.seq}.{self.step_id}"


class MessageRecord(NamedTuple):
    """One message of a conversation, as it was recorded."""

    place: MessagePlace
    message: Any


class MessagePage(NamedTuple):
    """A part of a conversation."""

    messages: tuple[MessageRecord, ...]
    next: MessagePlace | None
    searched: int
    """Messages that were looked through."""
