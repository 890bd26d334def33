"""A short soak: episodes of all kinds while workers, server, trainer and index are killed.

``make soak`` plays the long one.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.soak.play import Size, soaked


@pytest.mark.timeout(720)
@pytest.mark.parametrize(
    ("kind", "episodes", "killing_s"), [("sqlite", 60, 20), ("postgresql", 30, 12)]
)
async def test_a_short_soak_leaves_everything_ended_agreed_and_clean(
    kind: str, episodes: int, killing_s: float, tmp_path: Path
) -> None:
    seed = int(os.environ.get("SEED") or 1)

    size = Size(episodes, pause_s=(0.4, 1.6), killing_s=killing_s)
    verdict = await soaked(tmp_path, seed=seed, size=size, kind=kind)

    sys.stdout.write(f"{verdict.report}\n")
    assert verdict.faults == []
