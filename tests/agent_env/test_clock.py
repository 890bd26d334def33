"""What a host takes for the time when its own clock is wrong."""

from datetime import UTC, datetime, timedelta

import pytest

from agent_env._clock import ServerClock

T0 = datetime(2026, 1, 31, 9, 30, tzinfo=UTC)


@pytest.mark.parametrize("off_s", [-600, -3, 3, 600])
def test_a_clock_that_is_off_is_set_right(off_s: float) -> None:
    own = T0 + timedelta(seconds=off_s)
    clock = ServerClock(lambda: own)

    clock.compare(T0)

    assert clock.now() == T0


@pytest.mark.parametrize("off_s", [-1, 0, 1])
def test_a_clock_that_is_kept_stays_as_it_is(off_s: float) -> None:
    own = T0 + timedelta(seconds=off_s)
    clock = ServerClock(lambda: own)

    clock.compare(T0)

    assert clock.now() == own


def test_nothing_is_known_before_the_first_comparison() -> None:
    assert ServerClock(lambda: T0).now() == T0


def test_activities_that_began_late_do_not_count() -> None:
    clock = ServerClock(lambda: T0)

    for late_s in (60, 0.1, 30):
        clock.compare(T0 - timedelta(seconds=late_s))

    assert clock.now() == T0


def test_a_clock_that_is_set_right_is_believed_again() -> None:
    own = T0 - timedelta(seconds=600)
    clock = ServerClock(lambda: own)
    clock.compare(T0)

    own = T0
    for _ in range(32):
        clock.compare(T0)

    assert clock.now() == T0
