"""The steps of a run on one time axis: a line a step, its attempts one under the other. Pure."""

from __future__ import annotations

from datetime import datetime
from typing import NamedTuple

from agent_env._readable import duration
from agent_env.explorer.charts import Span
from agent_env.explorer.run_views import RunView, StepView
from agent_env.status import RunStatus, StepStatus


class Line(NamedTuple):
    """A step with everything that was tried."""

    step_id: str
    type: str
    attempts: tuple[StepView, ...]
    """Those that were started."""
    spans: tuple[Span, ...]
    """Where each of them is on the axis."""
    is_skipped: bool
    """Never started, and never will be. A line without attempts that is not skipped runs now."""

    @property
    def last(self) -> StepView | None:
        """What counts."""
        return self.attempts[-1] if self.attempts else None


def length_s(view: RunView) -> float:
    """Seconds from the left end of the axis to the right one; a little when nothing took time."""
    if view.starts_at is None or view.ends_at is None:
        return 0.001
    return max(0.001, (view.ends_at - view.starts_at).total_seconds())


def lines(view: RunView) -> tuple[Line, ...]:
    """A line a step, in the order in which they were first started."""
    by_step: dict[str, list[StepView]] = {}
    for step in view.steps:
        by_step.setdefault(step.report.step_id, []).append(step)
    found: list[Line] = []
    for step_id, steps in by_step.items():
        attempts = tuple(step for step in steps if step.report.status is not StepStatus.SKIPPED)
        found.append(
            Line(
                step_id,
                steps[0].report.type,
                attempts,
                tuple(_span(step, view) for step in attempts),
                is_skipped=not attempts,
            )
        )
    return (*found, *_current(view))


def _current(view: RunView) -> tuple[Line, ...]:
    """The step that a run is at, of which no report was written yet."""
    step_id = view.row.current_step
    if step_id is None or view.run.status is not RunStatus.RUNNING:
        return ()
    if any(step.report.step_id == step_id for step in view.steps):
        return ()
    return (Line(step_id, "", (), (), is_skipped=False),)


def _span(step: StepView, view: RunView) -> Span:
    report = step.report
    start = _offset(report.started_at, view)
    is_open = report.finished_at is None
    end = length_s(view) if is_open else _offset(report.finished_at, view)
    attempt = f", attempt {step.attempt} of {step.attempts}" if step.attempts > 1 else ""
    label = f"{report.step_id}{attempt}: {report.status.value}, {duration(step.took_s)}"
    return Span(start, max(start, end), report.status.value, label, is_open)


def _offset(at: datetime | None, view: RunView) -> float:
    if at is None or view.starts_at is None:
        return 0.0
    return max(0.0, (at - view.starts_at).total_seconds())
