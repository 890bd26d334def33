"""What the page of one run shows, and its conversation. Frozen, plain data."""

from __future__ import annotations

from datetime import datetime

from pydantic import JsonValue

from agent_env._model import WireModel
from agent_env.explorer.views import Cause, May, RunRow
from agent_env.results import StepReport
from agent_env.runs import RunRecord


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
