"""activities/: work that is meant for another host is refused."""

import pytest
from temporalio.exceptions import ApplicationError

from activities._translate import refuse_elsewhere, translating


@pytest.mark.parametrize("wanted", [None, "here"])
def test_work_for_anybody_or_for_this_host_is_taken(wanted: str | None) -> None:
    refuse_elsewhere(wanted, "here")


def test_work_for_another_host_is_refused_and_not_tried_again() -> None:
    with pytest.raises(ApplicationError, match="meant for host 'there'") as refused, translating():
        refuse_elsewhere("there", "here")

    assert (refused.value.type, refused.value.non_retryable) == ("Elsewhere", True)
