"""Balances the pole: push to the side that it falls to."""

import random
from collections.abc import Callable, Sequence
from typing import Any

LEFT, RIGHT = 0, 1
_SLIPS = 0.4
"""How often the tired one pushes to any side."""


def steady(observation: Sequence[float]) -> int:
    """Good for all 500 steps, whatever the seed."""
    position, velocity, angle, spin = observation
    return RIGHT if 2 * angle + 0.6 * spin + 0.05 * position + 0.1 * velocity > 0 else LEFT


def make_tired(_: Any, seed: int | None) -> Callable[[Sequence[float]], int]:
    """Steady, but for a slip now and then: how long it lasts depends on the seed."""
    chance = random.Random(seed)

    def act(observation: Sequence[float]) -> int:
        if chance.random() < _SLIPS:
            return chance.choice((LEFT, RIGHT))
        return steady(observation)

    return act
