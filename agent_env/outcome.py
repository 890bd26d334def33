"""How an episode ended: the one place that decides it. Pure."""

from collections.abc import Collection, Mapping, Sequence

from agent_env._model import WireModel
from agent_env.errors import bounded
from agent_env.results import StepReport
from agent_env.status import RunStatus, StepStatus
from agent_env.task import Task

CANCELED_IN_TEMPORAL = "canceled in Temporal"
"""Reason of a cancel that came without one, as the Temporal UI sends it."""


class Fault(WireModel):
    """Something other than a step that ended the episode: a deadline, a lost host, a bug."""

    type: str
    message: str


class Outcome(WireModel):
    """How an episode ended. Decided once, recorded, and never changed by what comes later."""

    status: RunStatus
    error_type: str | None = None
    error: str | None = None
    """For CANCELED the reason that was given."""
    reward: float | None = None
    scores: Mapping[str, float | None] = {}


def outcome(
    task: Task,
    reports: Sequence[StepReport],
    *,
    fault: Fault | None = None,
    cancellation: str | None = None,
) -> Outcome:
    """Decide how an episode ended.

    Args:
        task: What was to be done; names the reward.
        reports: Of every step that ran, in order; retried ones count for nothing.
        fault: What else ended it, if anything did.
        cancellation: The reason of a cancel that took effect before the outcome was known, possibly
            empty; None when there was none.
    """
    counted = [report for report in reports if not report.retried]
    scores = _scores(counted, task.reward)
    status, error_type, error = _status(task, counted, fault, cancellation)
    return Outcome(
        status=status,
        error_type=error_type,
        error=None if error is None else bounded(error),
        reward=reward_of(task.reward, scores),
        scores=scores,
    )


def success(
    steps: Collection[str], reports: Sequence[StepReport], *, reward: str | None
) -> Outcome | None:
    """The same outcome, if it needs no more than this to be known: every step succeeded.

    Args:
        steps: Ids of all steps of the task.
        reports: Of every step that ran, in order; retried ones count for nothing.
        reward: The step whose score is the reward, if the task names one.

    Returns:
        None when anything else happened: ``outcome`` then says what that makes of the episode.
    """
    counted = [report for report in reports if not report.retried]
    succeeded = {r.step_id for r in counted if r.status is StepStatus.COMPLETED}
    if len(succeeded) != len(counted) or succeeded != set(steps):
        return None
    scores = _scores(counted, reward)
    return Outcome(status=RunStatus.COMPLETED, reward=reward_of(reward, scores), scores=scores)


def _scores(counted: Sequence[StepReport], reward: str | None) -> dict[str, float | None]:
    return {
        report.step_id: report.score
        for report in counted
        if report.status is StepStatus.COMPLETED
        and (report.score is not None or report.step_id == reward)
    }


def reward_of(step_id: str | None, scores: Mapping[str, float | None]) -> float | None:
    """The score of the step that is named, else the only score; None is unscored, never 0."""
    if step_id is not None:
        return scores.get(step_id)
    found = [score for score in scores.values() if score is not None]
    return found[0] if len(found) == 1 else None


def _status(
    task: Task, counted: Sequence[StepReport], fault: Fault | None, cancellation: str | None
) -> tuple[RunStatus, str | None, str | None]:
    if cancellation is not None:
        return RunStatus.CANCELED, "Canceled", cancellation.strip() or CANCELED_IN_TEMPORAL
    if fault is not None:
        return RunStatus.FAILED, fault.type, fault.message
    failed = [report for report in counted if report.status is StepStatus.FAILED]
    if failed:
        return RunStatus.FAILED, failed[0].error_type, _listed(failed)
    done = {report.step_id for report in counted if report.status is StepStatus.COMPLETED}
    if missing := [step.id for step in task.steps if step.id not in done]:
        # No known way leads here; if one does, the episode must not read as a success.
        ids = ", ".join(repr(step_id) for step_id in missing)
        return RunStatus.FAILED, "StepInterrupted", f"did not run to the end: {ids}"
    return RunStatus.COMPLETED, None, None


def _listed(failed: Sequence[StepReport]) -> str:
    """The first failure, then the others by name."""
    text = f"step {failed[0].step_id!r}: {failed[0].error or failed[0].error_type}"
    if len(failed) > 1:
        others = ", ".join(f"{report.step_id!r} ({report.error_type})" for report in failed[1:])
        text = f"{bounded(text, 7_000)}\nalso failed: {others}"
    return text
