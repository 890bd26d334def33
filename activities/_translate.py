"""Domain errors to Temporal's, in the one place that makes ``ApplicationError``."""

import logging
from collections.abc import Generator
from contextlib import contextmanager

from temporalio import activity
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory

from agent_env.errors import AgentEnvError, ElsewhereError, error_text, error_type
from agent_env.specs import StepProgress

logger = logging.getLogger(__name__)


@contextmanager
def translating() -> Generator[None]:
    """Turn what escapes into an ApplicationError that says whether retrying can help.

    An error that is not ours is a bug or a full disk: it is retried, since a fixed worker or a
    cleaned disk may well get past it.
    """
    try:
        yield
    except AgentEnvError as error:
        category = ApplicationErrorCategory.UNSPECIFIED
        if error.retryable:
            # In place of the SDK's own line, which is a stack trace at every try.
            category = ApplicationErrorCategory.BENIGN
            logger.warning("%s waits and is tried again: %s", _what(), error_text(error))
        elif isinstance(error, ElsewhereError):
            # Daily fare of two hosts: the workflow sends it on to the right one.
            category = ApplicationErrorCategory.BENIGN
        raise ApplicationError(
            error_text(error),
            type=error_type(error),
            non_retryable=not error.retryable,
            category=category,
        ) from None
    except ApplicationError:
        raise
    except Exception as error:
        raise ApplicationError(error_text(error), type=error_type(error)) from None


def refuse_elsewhere(wanted: str | None, host: str) -> None:
    """Refuse what did not come over a host's own queue and is meant for another host.

    Raises:
        ElsewhereError: it is.
    """
    if wanted not in (None, host):
        raise ElsewhereError(f"meant for host {wanted!r}, came to {host!r}")


def worker_stops(progress: StepProgress | None = None) -> ApplicationError:
    """What work ends with when its worker does: another attempt goes on after ``progress``."""
    return ApplicationError(
        "its worker stops",
        *([] if progress is None else [progress]),
        type="WorkerStops",
        category=ApplicationErrorCategory.BENIGN,
    )


def workflow_is_over() -> ApplicationError:
    """What work ends with that nobody waits for any more: its workflow was ended from outside."""
    return ApplicationError(
        "its workflow is over",
        type="WorkflowIsOver",
        non_retryable=True,
        category=ApplicationErrorCategory.BENIGN,
    )


def left_queued(why: str) -> ApplicationError:
    """What a ``begin`` ends with that took nothing: usual, so not worth a line in the log."""
    return ApplicationError(why, type="LeftQueued", category=ApplicationErrorCategory.BENIGN)


def _what() -> str:
    """What is being done, by the last word of its wire name."""
    if not activity.in_activity():
        return "work"
    return activity.info().activity_type.rpartition(".")[2]
