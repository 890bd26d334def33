"""Domain errors to Temporal's, in the one place that makes ``ApplicationError``."""

from collections.abc import Generator
from contextlib import contextmanager

from temporalio.exceptions import ApplicationError

from agent_env.errors import AgentEnvError, error_text, error_type


@contextmanager
def translating() -> Generator[None]:
    """Turn what escapes into an ApplicationError that says whether retrying can help.

    An error that is not ours is a bug or a full disk: it is retried, since a fixed worker or a
    cleaned disk may well get past it.
    """
    try:
        yield
    except AgentEnvError as error:
        raise ApplicationError(
            error_text(error), type=error_type(error), non_retryable=not error.retryable
        ) from None
    except Exception as error:
        raise ApplicationError(error_text(error), type=error_type(error)) from None
