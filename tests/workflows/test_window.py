"""workflows/_window.py: how many members a group opens where only the hosts' room bounds them."""

from datetime import timedelta

import pytest

from workflows._window import Window


def test_a_group_that_fits_is_opened_whole_and_looks_for_nothing() -> None:
    assert (Window(8, 50).size, Window(8, 50).is_open) == (8, True)
    assert (Window(8, None).size, Window(8, None).is_open) == (8, True)


def test_it_begins_with_the_room_of_one_host() -> None:
    window = Window(100, 4)

    assert (window.size, window.is_open) == (4, False)


def test_it_grows_while_everything_that_was_started_has_begun() -> None:
    window = Window(100, 4)

    for _ in range(50):
        window.looked(opened=window.size, waiting=0, has_ended=True)

    assert window.size == 100


@pytest.mark.parametrize(("opened", "waiting", "size"), [(8, 4, 5), (40, 8, 35), (5, 5, 1)])
def test_it_shrinks_to_what_has_begun_and_little_more(opened: int, waiting: int, size: int) -> None:
    window = Window(100, opened)

    window.looked(opened=opened, waiting=waiting, has_ended=True)

    assert window.size == size


def test_what_is_not_full_says_nothing_about_the_room() -> None:
    window = Window(100, 8)

    window.looked(opened=6, waiting=0, has_ended=True)

    assert window.size == 8


def test_long_episodes_are_all_started_after_half_a_minute() -> None:
    window, waited = Window(100, 4), timedelta(0)

    while not window.is_open:
        waited += window.pause
        window.looked(opened=4, waiting=1, has_ended=False)

    assert waited == timedelta(seconds=31)
