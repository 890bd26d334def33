"""Domain errors become Temporal's; what is tried again is a line in the log, no stack trace."""

import logging

import pytest
from temporalio.exceptions import ApplicationError, ApplicationErrorCategory
from temporalio.testing import ActivityEnvironment

from activities._translate import translating
from agent_env.errors import ConflictError, ElsewhereError, IndexUnavailableError


def fail(error: Exception) -> None:
    with translating():
        raise error


@pytest.mark.parametrize(
    ("error", "is_tried_again", "category"),
    [
        (IndexUnavailableError("gone"), True, ApplicationErrorCategory.BENIGN),
        (ElsewhereError("not here"), False, ApplicationErrorCategory.BENIGN),
        (ConflictError("taken"), False, ApplicationErrorCategory.UNSPECIFIED),
        (ZeroDivisionError("bug"), True, ApplicationErrorCategory.UNSPECIFIED),
    ],
)
def test_an_error_says_whether_it_is_tried_again_and_whether_the_sdk_logs_its_trace(
    error: Exception, is_tried_again: bool, category: ApplicationErrorCategory
) -> None:
    with pytest.raises(ApplicationError) as found:
        fail(error)

    assert found.value.non_retryable is not is_tried_again
    assert found.value.category is category


def test_what_is_tried_again_says_what_waits_and_for_what(
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.WARNING)

    with pytest.raises(ApplicationError):
        ActivityEnvironment().run(fail, IndexUnavailableError("the run index is gone"))

    assert caplog.messages == ["unknown waits and is tried again: the run index is gone"]
