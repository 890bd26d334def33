from itertools import product

import pytest

from agent_env.status import FINISHED, LIVE, RunStatus, may_be_overruled, may_move


def test_every_status_is_either_live_or_finished() -> None:
    assert {*LIVE, *FINISHED} == set(RunStatus)
    assert not {*LIVE} & {*FINISHED}
    assert [status for status in RunStatus if status.is_finished] == list(FINISHED)


@pytest.mark.parametrize(("now", "to"), list(product(RunStatus, RunStatus)))
def test_a_live_run_moves_to_any_other_status_and_a_finished_one_never(
    now: RunStatus, to: RunStatus
) -> None:
    assert may_move(now, to) is (now in LIVE and now is not to)


@pytest.mark.parametrize(("now", "to"), list(product(RunStatus, RunStatus)))
def test_only_an_end_is_overruled_and_only_by_one_that_comes_from_outside(
    now: RunStatus, to: RunStatus
) -> None:
    ends = {RunStatus.CANCELED, RunStatus.FAILED}
    assert may_be_overruled(now, to) is (now in FINISHED and to in ends and now is not to)


def test_statuses_are_spelled_as_on_the_wire() -> None:
    assert [str(status) for status in RunStatus] == [
        "QUEUED",
        "RUNNING",
        "COMPLETED",
        "FAILED",
        "CANCELED",
    ]
