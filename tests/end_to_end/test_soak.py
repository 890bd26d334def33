"""A short soak: episodes of all kinds while workers, server, trainer and index are killed.

``make soak`` plays the long one.
"""

import os
import sys
from pathlib import Path

import pytest

from tests.soak.play import Size, soaked


@pytest.mark.timeout(720)
async def test_a_short_soak_leaves_everything_ended_agreed_and_clean(tmp_path: Path) -> None:
    seed = int(os.environ.get("SEED") or 1)

    verdict = await soaked(tmp_path, seed=seed, size=Size(60, pause_s=(0.4, 1.6), killing_s=20))

    sys.stdout.write(f"{verdict.report}\n")
    assert verdict.faults == []
