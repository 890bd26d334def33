"""How values read in text. Text from episodes is data: nothing in it moves the cursor."""

from __future__ import annotations

from datetime import datetime

from rich.text import Text

from agent_env._readable import NONE, duration, mean_and_std, number
from agent_env.cli._session import TimeFormat
from agent_env.runs import RunRecord
from agent_env.scores import GroupFigures
from agent_env.status import RunStatus, StepStatus

__all__ = [
    "MARKS",
    "NONE",
    "counts",
    "duration",
    "error",
    "first_line",
    "mark",
    "mean_and_std",
    "moment",
    "number",
    "printable",
    "progress",
    "status",
    "step_status",
    "took",
]

MARKS = {
    RunStatus.QUEUED: ("◌", "bright_black"),
    RunStatus.RUNNING: ("●", "blue"),
    RunStatus.COMPLETED: ("✓", "green"),
    RunStatus.FAILED: ("✕", "red"),
    RunStatus.CANCELED: ("⊘", "yellow"),
}
"""Each status's mark and color."""


def printable(text: str) -> str:
    """The text with everything that a terminal would act on shown as an escape."""
    return "".join(
        char
        if char.isprintable() or char == "\n"
        else char.encode("unicode_escape", "surrogatepass").decode("ascii")
        for char in text
    )


def first_line(text: str) -> str:
    """The first line that says something, printable."""
    return printable(next((line for line in text.split("\n") if line.strip()), ""))


def status(run: RunRecord) -> Text:
    """A run's status: mark, word, and whether it is being canceled."""
    char, color = MARKS[run.status]
    if run.is_canceling:
        return Text(f"{char} {run.status}, canceling", style=MARKS[RunStatus.CANCELED][1])
    return Text(f"{char} {run.status}", style=color)


def step_status(value: StepStatus) -> Text:
    """A step's status: mark and word."""
    if value is StepStatus.SKIPPED:
        return Text(f"◌ {value}", style="bright_black")
    char, color = MARKS[RunStatus(value.value)]
    return Text(f"{char} {value}", style=color)


def mark(run_status: RunStatus) -> Text:
    """A member in a strip."""
    char, color = MARKS[run_status]
    return Text(char, style=color)


def error(run: RunRecord) -> Text | None:
    """The root cause of a run that did not complete, in one line."""
    if run.error_type is None or run.status is RunStatus.COMPLETED:
        return None
    said = first_line(run.error or "")
    words = f"{run.error_type}: {said}" if said else run.error_type
    return Text(printable(words), style=MARKS[run.status][1])


def progress(run: RunRecord) -> str:
    """How far a run is: steps done of all, and the one that it is at."""
    at = f" {printable(run.current_step)}" if run.current_step else ""
    return f"{run.steps_done}/{run.steps_total}{at}"


def took(run: RunRecord, now: datetime) -> float | None:
    """Seconds from a run's begin to its end, or to now. Never negative: clocks differ."""
    if run.started_at is None:
        return None
    return max(0.0, ((run.finished_at or now) - run.started_at).total_seconds())


def moment(at: datetime | None, now: datetime, form: TimeFormat) -> str:
    """A point in time; a dash for none."""
    if at is None:
        return NONE
    if form is TimeFormat.ISO:
        return at.isoformat().replace("+00:00", "Z")
    if form is TimeFormat.RAW:
        return f"{at.timestamp():.6f}"
    past = max(0.0, (now - at).total_seconds())
    for unit, length in (("d", 86_400), ("h", 3600), ("m", 60)):
        if past >= length:
            return f"{past // length:.0f} {unit} ago"
    return f"{past:.0f} s ago"


def counts(figures: GroupFigures) -> Text:
    """How many members have each status; those that nobody has are left out."""
    values = (
        figures.completed,
        figures.failed,
        figures.canceled,
        figures.running,
        figures.queued,
    )
    order = (
        RunStatus.COMPLETED,
        RunStatus.FAILED,
        RunStatus.CANCELED,
        RunStatus.RUNNING,
        RunStatus.QUEUED,
    )
    parts = [
        Text(f"{MARKS[found][0]} {value}", style=MARKS[found][1])
        for found, value in zip(order, values, strict=True)
        if value
    ]
    return Text("  ").join(parts)
