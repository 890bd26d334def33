"""The long soak: ``make soak``; ``SEED`` repeats one, ``EPISODES`` sets its size.

The run index is in SQLite, or in PostgreSQL with ``DATABASE=postgresql``.
"""

import os
import secrets
import sys
from pathlib import Path

import pytest

from tests.soak.play import Size, soaked


async def test_a_long_soak_leaves_everything_ended_agreed_and_clean(
    kind: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    seed = int(os.environ.get("SEED") or secrets.randbelow(10**6))
    episodes = int(os.environ.get("EPISODES") or 500)

    verdict = await soaked(
        tmp_path, seed=seed, size=Size(episodes, pause_s=(0.5, 6.0), killing_s=600), kind=kind
    )

    with capsys.disabled():
        sys.stdout.write(f"\n{verdict.report}\n")
    assert verdict.faults == []
