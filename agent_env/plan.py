"""The DAG: what can run next, cut into segments, waits and turns, and what a retry drops. Pure.

A *segment* is a set of steps that need nothing from the workflow between them; it runs in one
activity. Steps that the workflow plays itself, a timer or a turn, cut the DAG.
"""

from collections.abc import Collection, Sequence
from typing import NamedTuple

from agent_env._model import WireModel
from agent_env.results import SandboxRef, StepReport
from agent_env.status import StepStatus
from agent_env.task import StepSpec, Task, descendants, edges
from agent_env.turns import STEP_TYPE

PLAYED_BY_WORKFLOW = frozenset({"wait", STEP_TYPE})
"""Step types that no segment runs: the workflow itself plays them."""


class PlannedStep(WireModel):
    """A step of a segment, with its edges inside the segment."""

    spec: StepSpec
    after: tuple[str, ...] = ()
    """Steps of this segment that must end before it starts."""
    stops: tuple[str, ...] = ()
    """Steps of this segment that are stopped, or not started, when it fails."""


class Segment(WireModel):
    """Steps for one activity, in the task's order."""

    steps: tuple[PlannedStep, ...]

    @property
    def ids(self) -> tuple[str, ...]:
        """Their ids, in order."""
        return tuple(planned.spec.id for planned in self.steps)


class Plan(NamedTuple):
    """What can start now."""

    segment: Segment | None
    waits: tuple[StepSpec, ...]
    turns: tuple[StepSpec, ...] = ()

    @property
    def is_empty(self) -> bool:
        """Whether nothing can start now."""
        return self.segment is None and not self.waits and not self.turns


class Retry(NamedTuple):
    """A failed step that is to be tried again, and what that drops."""

    failed: StepReport
    span: frozenset[str]
    """The step it resumes from and all that depends on that one."""


def plan(task: Task, reports: Sequence[StepReport], in_flight: Collection[str] = ()) -> Plan:
    """What can start, given how the steps so far ended.

    Args:
        task: What is to be done.
        reports: Of the steps that have ended, retried ones included.
        in_flight: Ids of steps that were started and have not ended.
    """
    done = {report.step_id for report in reports if not report.retried}
    after = edges(task)
    chosen: dict[str, StepSpec] = {}
    played: list[StepSpec] = []
    for step in task.steps:
        if step.id in done or step.id in in_flight:
            continue
        if step.type in PLAYED_BY_WORKFLOW:
            if done.issuperset(after[step.id]):
                played.append(step)
        elif len(chosen) < task.segment_limit and all(
            name in done or name in chosen for name in after[step.id]
        ):
            chosen[step.id] = step
    steps = tuple(
        PlannedStep(
            spec=step,
            after=tuple(name for name in after[step.id] if name in chosen),
            stops=_stops(task, step, reports, chosen),
        )
        for step in chosen.values()
    )
    return Plan(
        Segment(steps=steps) if steps else None,
        waits=tuple(step for step in played if step.type != STEP_TYPE),
        turns=tuple(step for step in played if step.type == STEP_TYPE),
    )


def _stops(
    task: Task, step: StepSpec, reports: Sequence[StepReport], chosen: Collection[str]
) -> tuple[str, ...]:
    if may_retry(step, reports):
        stopped = _span(task, step)
    elif step.fail_task_on_error:
        stopped = frozenset(chosen)
    else:
        stopped = frozenset[str]()
    return tuple(name for name in chosen if name in stopped and name != step.id)


def may_retry(step: StepSpec, reports: Sequence[StepReport]) -> bool:
    """Whether the step's next failure is retried: it has retries left in this episode."""
    if step.retry_config is None:
        return False
    used = sum(
        1
        for report in reports
        if report.step_id == step.id and report.retried and report.status is StepStatus.FAILED
    )
    return used < step.retry_config.max_retries


def next_retry(task: Task, reports: Sequence[StepReport]) -> Retry | None:
    """The first failure that is to be retried, if any."""
    for report in reports:
        if report.status is StepStatus.FAILED and not report.retried:
            step = task.step(report.step_id)
            if may_retry(step, reports):
                return Retry(report, _span(task, step))
    return None


def is_fatal(task: Task, reports: Sequence[StepReport]) -> bool:
    """Whether a failure ends the episode now: it is not retried, and its step is not tolerated."""
    return any(
        report.status is StepStatus.FAILED
        and not report.retried
        and task.step(report.step_id).fail_task_on_error
        and not may_retry(task.step(report.step_id), reports)
        for report in reports
    )


def drop(
    reports: Sequence[StepReport], span: Collection[str]
) -> tuple[tuple[StepReport, ...], tuple[SandboxRef, ...]]:
    """Mark the reports of a span as retried, and list the sandboxes they deployed."""
    kept: list[StepReport] = []
    sandboxes: list[SandboxRef] = []
    for report in reports:
        if not report.retried and report.step_id in span:
            sandboxes += report.sandboxes
            report = report.model_copy(update={"retried": True})
        kept.append(report)
    return tuple(kept), tuple(sandboxes)


def stopped(reports: Sequence[StepReport]) -> frozenset[str]:
    """Steps that were stopped or not started, and have not been dropped: they have yet to run."""
    unfinished = (StepStatus.CANCELED, StepStatus.SKIPPED)
    return frozenset(r.step_id for r in reports if not r.retried and r.status in unfinished)


def _span(task: Task, step: StepSpec) -> frozenset[str]:
    config = step.retry_config
    resume = (config and config.retry_from_step_id) or step.id
    return descendants(task, resume) | {resume}
