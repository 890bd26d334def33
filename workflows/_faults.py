"""Reads what escaped an activity back into a fault, by its root cause."""

from temporalio.exceptions import (
    ActivityError,
    ApplicationError,
    ChildWorkflowError,
    TimeoutError,
    TimeoutType,
)

from agent_env.errors import bounded
from agent_env.outcome import Fault


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


def is_host_lost(error: BaseException) -> bool:
    """Whether an activity failed because nobody polled its host's queue."""
    found = root(error)
    return isinstance(found, TimeoutError) and found.type is TimeoutType.SCHEDULE_TO_START
