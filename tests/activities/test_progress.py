"""How often a segment under way is heard of."""

import pytest

from activities._progress import interval_among
from workflows._calls import HEARTBEAT_TIMEOUT


@pytest.mark.parametrize(
    ("segments", "interval_s"), [(1, 1.0), (52, 1.0), (260, 5.0), (500, 9.6), (100_000, 9.6)]
)
def test_the_more_segments_a_host_runs_the_less_often_each_is_heard_of(
    segments: int, interval_s: float
) -> None:
    assert interval_among(segments) == interval_s


@pytest.mark.parametrize("segments", [1, 500, 100_000])
def test_two_heartbeats_fit_into_the_timeout(segments: int) -> None:
    """Two: one may be late, and the server's timer fires half as often as after one."""
    assert 2 * interval_among(segments) < HEARTBEAT_TIMEOUT.total_seconds()
