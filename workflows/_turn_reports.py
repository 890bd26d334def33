"""How the step of a turn ended."""

from temporalio import workflow

from agent_env.results import StepReport
from agent_env.status import StepStatus
from agent_env.task import StepSpec
from agent_env.turns import MAX_RESPONSE_CHARS, EndTurn, OpenTurn


def ended(step: StepSpec, state: OpenTurn, order: EndTurn) -> StepReport:
    """The player handed it back."""
    output = {
        "response": order.response[:MAX_RESPONSE_CHARS],
        "messages": state.messages,
        "model_calls": state.model_calls,
    }
    report = _report(step, state, StepStatus.COMPLETED)
    return report.model_copy(update={"output": output})


def timed_out(step: StepSpec, state: OpenTurn) -> StepReport:
    """Nobody ended it in time."""
    limit_s = (state.deadline_at - state.opened_at).total_seconds()
    error = (
        f"nobody ended the turn of agent {state.agent!r} within {limit_s:g} s; allow more with "
        "turn_timeout"
    )
    report = _report(step, state, StepStatus.FAILED)
    return report.model_copy(update={"error_type": "TurnTimedOut", "error": error})


def _report(step: StepSpec, state: OpenTurn, status: StepStatus) -> StepReport:
    return StepReport(
        step_id=step.id,
        type=step.type,
        epoch=state.turn.epoch,
        status=status,
        started_at=state.opened_at,
        finished_at=workflow.now(),
    )
