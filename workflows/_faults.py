"""Reads what escaped an activity back into a fault, by its root cause."""

from collections.abc import Mapping
from typing import Any

from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    CancelledError,
    ChildWorkflowError,
    TimeoutError,
    TimeoutType,
)

from agent_env.errors import bounded
from agent_env.outcome import Fault
from agent_env.specs import StepProgress
from workflows._calls import LISTED_WITHIN


def root(error: BaseException) -> BaseException:
    """The cause that says something: Temporal's wrappers are never shown to a person."""
    while isinstance(error, ActivityError | ChildWorkflowError) and error.cause is not None:
        error = error.cause
    return error


def fault_of(error: BaseException) -> Fault:
    """What to record of an error that ended an episode outside its steps."""
    found = root(error)
    if isinstance(found, ApplicationError):
        return Fault(type=found.type or "InternalError", message=bounded(found.message))
    return Fault(type="InternalError", message=bounded(f"{type(found).__name__}: {found}"))


def unlisted(error: BaseException) -> Fault:
    """Why a run or a group could not be listed."""
    if not isinstance(root(error), TimeoutError):
        return fault_of(error)
    within_s = LISTED_WITHIN.total_seconds()
    return Fault(
        type="IndexUnavailable",
        message=f"the run index took no row within {within_s:g} s; see that its database answers, "
        "and start again",
    )


def is_host_lost(error: BaseException) -> bool:
    """Whether an activity failed because nobody polled its host's queue."""
    found = root(error)
    return isinstance(found, TimeoutError) and found.type is TimeoutType.SCHEDULE_TO_START


def progress_of(error: BaseException) -> StepProgress | None:
    """How far an attempt at a segment got that ended without an answer, if it heartbeat that."""
    found = root(error)
    details: Any = ()
    if isinstance(found, TimeoutError):
        details = found.last_heartbeat_details
    elif isinstance(found, ApplicationError | CancelledError):
        details = found.details
    # Of an activity that is canceled before it starts again, the engine says that, in a string.
    is_progress = bool(details) and isinstance(details[0], Mapping)
    return StepProgress.model_validate(details[0]) if is_progress else None
