"""Rows of the index as pages show them. Pure."""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timedelta

from agent_env.errors import bounded
from agent_env.explorer.group_views import Bin, Difference, Reached
from agent_env.explorer.health_views import TaskPoint, TaskRow
from agent_env.explorer.run_views import Canceling, StepView
from agent_env.explorer.views import Cause, Mark, RunRow
from agent_env.results import StepReport
from agent_env.runs import RunRecord
from agent_env.runs.lists import GroupMark, StepTally, TaskSpan
from agent_env.status import RunStatus, StepStatus

_CAUSE_CHARS = 300
_VERSIONS = 10
_BINS = 20


def cause(error_type: str | None, error: str | None) -> Cause | None:
    """Why something did not complete; None if nothing is recorded."""
    if error_type is None and not error:
        return None
    said = next((line.strip() for line in (error or "").split("\n") if line.strip()), "")
    return Cause(type=error_type or "", said=bounded(said, _CAUSE_CHARS))


def run_row(run: RunRecord, now: datetime) -> RunRow:
    """A run in a list."""
    end = run.finished_at or now
    took = None if run.started_at is None else max(0.0, (end - run.started_at).total_seconds())
    return RunRow(
        run_id=run.run_id,
        task_id=run.task_id,
        task_version=run.task_version,
        run_group_id=run.run_group_id,
        member_index=run.member_index,
        status=run.status,
        is_canceling=run.is_canceling,
        steps_done=run.steps_done,
        steps_total=run.steps_total,
        current_step=run.current_step,
        reward=run.reward,
        cause=None if run.status is RunStatus.COMPLETED else cause(run.error_type, run.error),
        created_at=run.created_at,
        started_at=run.started_at,
        finished_at=run.finished_at,
        took_s=took,
        host=run.host,
        epoch=run.epoch,
        model=run.model,
        seed=run.seed,
        tags=run.tags,
        cancel_requested_at=run.cancel_requested_at,
        cancel_requested_by=run.cancel_requested_by,
        cancel_requested_reason=run.cancel_requested_reason,
        still_up=len(run.still_up),
    )


def step_views(reports: Sequence[StepReport], now: datetime) -> tuple[StepView, ...]:
    """Each attempt of each step, numbered."""
    attempts = {report.step_id: 0 for report in reports}
    for report in reports:
        attempts[report.step_id] += report.status is not StepStatus.SKIPPED
    seen: dict[str, int] = {}
    views: list[StepView] = []
    for report in reports:
        seen[report.step_id] = seen.get(report.step_id, 0) + 1
        end = report.finished_at
        if end is None and report.status is StepStatus.RUNNING:
            end = now
        took = None
        if report.started_at is not None and end is not None:
            took = max(0.0, (end - report.started_at).total_seconds())
        views.append(
            StepView(
                report=report,
                attempt=seen[report.step_id],
                attempts=attempts[report.step_id],
                took_s=took,
                cause=cause(report.error_type, report.error),
            )
        )
    return tuple(views)


def axis(
    run: RunRecord, reports: Iterable[StepReport], now: datetime
) -> tuple[datetime | None, datetime | None]:
    """Ends of the time axis on which all of a run's steps are."""
    times = [run.started_at, run.finished_at]
    for report in reports:
        times += [report.started_at, report.finished_at]
    known = [time for time in times if time is not None]
    if not known:
        return None, None
    return min(known), max(known) if run.status.is_finished else max(*known, now)


def canceling(run: RunRecord, now: datetime, budget: timedelta) -> Canceling | None:
    """A cancel that is not over; None if there is none."""
    if run.cancel_requested_at is None or run.status.is_finished:
        return None
    passed = max(0.0, (now - run.cancel_requested_at).total_seconds())
    return Canceling(
        requested_at=run.cancel_requested_at,
        by=run.cancel_requested_by,
        reason=run.cancel_requested_reason,
        seconds=passed,
        budget_s=budget.total_seconds(),
        is_past_budget=passed > budget.total_seconds(),
    )


def mark(found: GroupMark) -> Mark:
    """A member in a strip."""
    return Mark(**found._asdict())


def reached(tally: StepTally) -> Reached:
    """How far a group's members got."""
    counts = tally.running + tally.completed + tally.failed + tally.canceled
    return Reached(**tally._asdict(), reached=counts)


def histogram(rewards: Sequence[float]) -> tuple[Bin, ...]:
    """Rewards in bars of equal width; one bar when all are equal."""
    if not rewards:
        return ()
    low, high = min(rewards), max(rewards)
    count = min(_BINS, max(1, math.ceil(2 * len(rewards) ** 0.5)))
    width = high / count - low / count  # not their difference: it may be past any float
    if width <= 0 or low + width == low:
        return (Bin(low=low, high=high, count=len(rewards)),)
    counts = [0] * count
    for reward in rewards:
        counts[min(count - 1, int(reward / width - low / width))] += 1
    return tuple(
        Bin(
            low=low + place * width,
            high=high if place == count - 1 else low + (place + 1) * width,
            count=found,
        )
        for place, found in enumerate(counts)
    )


def task_rows(
    spans: Iterable[TaskSpan], *, since: datetime, stretch: timedelta
) -> tuple[TaskRow, ...]:
    """Tasks, summed up over their versions; the most lately played first."""
    by_task: dict[str, list[TaskSpan]] = {}
    for span in spans:
        by_task.setdefault(span.task_id, []).append(span)
    rows = [_task_row(task, found, since, stretch) for task, found in by_task.items()]
    return tuple(sorted(rows, key=lambda row: (row.last_at, row.task_id), reverse=True))


def _task_row(
    task_id: str, spans: Sequence[TaskSpan], since: datetime, stretch: timedelta
) -> TaskRow:
    latest = sorted(spans, key=lambda span: span.last_at, reverse=True)
    versions = tuple(dict.fromkeys(span.task_version for span in latest))
    places: dict[int, list[TaskSpan]] = {}
    for span in spans:
        places.setdefault(span.place, []).append(span)
    return TaskRow(
        task_id=task_id,
        versions=versions[:_VERSIONS],
        n=sum(span.n for span in spans),
        queued=sum(span.queued for span in spans),
        running=sum(span.running for span in spans),
        completed=sum(span.completed for span in spans),
        failed=sum(span.failed for span in spans),
        canceled=sum(span.canceled for span in spans),
        n_scored=sum(span.n_scored for span in spans),
        mean=_mean(spans),
        last_at=latest[0].last_at,
        points=tuple(
            TaskPoint(
                starts_at=since + place * stretch,
                n=sum(span.n for span in found),
                n_scored=sum(span.n_scored for span in found),
                mean=_mean(found),
            )
            for place, found in sorted(places.items())
        ),
    )


def _mean(spans: Sequence[TaskSpan]) -> float | None:
    scored = sum(span.n_scored for span in spans)
    found = sum(span.reward_sum for span in spans if span.reward_sum is not None)
    return found / scored if scored and math.isfinite(found) else None


def facts_compared(runs: Sequence[RunRecord], now: datetime) -> tuple[Difference, ...]:
    """What is recorded of each run, differences first."""
    rows = [run_row(run, now) for run in runs]
    facts: dict[str, list[str | None]] = {
        "status": [run.status.value for run in runs],
        "reward": [_number(run.reward) for run in runs],
        "cause": [_words(run) for run in rows],
        "steps": [f"{run.steps_done} of {run.steps_total}" for run in runs],
        "took": [None if row.took_s is None else f"{row.took_s:.2f} s" for row in rows],
        "task": [f"{run.task_id} v{run.task_version}" for run in runs],
        "host": [run.host for run in runs],
        "epoch": [str(run.epoch) for run in runs],
        "model": [run.model for run in runs],
    }
    facts |= _each("score", [run.scores for run in runs])
    facts |= _each("seed", [run.seed for run in runs])
    facts |= _each("tag", [run.tags for run in runs])
    return _differences_first(facts)


def steps_compared(steps: Sequence[Sequence[StepReport]]) -> tuple[Difference, ...]:
    """How each step ended in each run, its latest attempt, differences first."""
    names = dict.fromkeys(report.step_id for reports in steps for report in reports)
    latest = [{report.step_id: report for report in reports} for reports in steps]
    facts: dict[str, list[str | None]] = {}
    for name in names:
        facts[name] = [_ended(reports.get(name)) for reports in latest]
    return _differences_first(facts)


def _ended(report: StepReport | None) -> str | None:
    if report is None:
        return None
    why = cause(report.error_type, report.error)
    parts = [report.status.value]
    if report.score is not None:
        parts.append(f"score {_number(report.score)}")
    if why is not None:
        parts.append(f"{why.type}: {why.said}".rstrip(": "))
    return ", ".join(parts)


def _each(
    kind: str, values: Sequence[Mapping[str, str] | Mapping[str, float | None]]
) -> dict[str, list[str | None]]:
    names = dict.fromkeys(name for found in values for name in found)
    return {f"{kind} {name}": [_shown(found.get(name)) for found in values] for name in names}


def _shown(value: str | float | None) -> str | None:
    return value if isinstance(value, str) else _number(value)


def _words(row: RunRow) -> str | None:
    return None if row.cause is None else f"{row.cause.type}: {row.cause.said}".rstrip(": ")


def _number(value: float | None) -> str | None:
    return None if value is None else f"{value:.6g}"


def _differences_first(facts: Mapping[str, Sequence[str | None]]) -> tuple[Difference, ...]:
    found = [
        Difference(name=name, values=tuple(values), differs=len(set(values)) > 1)
        for name, values in facts.items()
        if any(value is not None for value in values)
    ]
    return tuple(sorted(found, key=lambda fact: not fact.differs))
