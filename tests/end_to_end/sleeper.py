"""What a ``python`` step of the tests calls to be there for a while."""

import time


def sleeps(seconds: float) -> None:
    time.sleep(seconds)
