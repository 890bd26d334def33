"""Many processes write at once: nothing is lost, and nobody hears that the database is locked."""

import json
import subprocess
import sys
from pathlib import Path
from typing import NamedTuple

import pytest

from agent_env.runs import RunIndex

ROOT = Path(__file__).parents[3]
WRITERS = 10
DURATION_S = 5.0
"""How long they write. The case that this stands for is a minute."""


class Written(NamedTuple):
    opened: int
    ended: int
    most_running: int


def write_at_once(url: str, *, writers: int, duration_s: float, room: int) -> list[Written]:
    """Start writers together and wait for them all."""
    processes = [
        subprocess.Popen(
            [
                *(sys.executable, "-m", "tests.agent_env.runs.writer"),
                *(url, f"w{number}", str(duration_s), str(room)),
            ],
            cwd=ROOT,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
        for number in range(writers)
    ]
    written: list[Written] = []
    for process in processes:
        out, err = process.communicate(timeout=100)
        assert process.returncode == 0, err
        written.append(Written(**json.loads(out)))
    return written


@pytest.mark.parametrize("duration_s", [DURATION_S])
def test_ten_processes_that_open_an_empty_database_and_write_lose_nothing(
    url: str, duration_s: float
) -> None:
    written = write_at_once(url, writers=WRITERS, duration_s=duration_s, room=10**6)

    index = RunIndex.open(url)
    groups = {group.run_group_id: group.figures for group in index.groups().groups}
    index.close()
    assert len(groups) == WRITERS
    for number, done in enumerate(written):
        figures = groups[f"w{number}"]
        assert (figures.n, figures.completed) == (done.opened, done.ended)
        assert done.ended > 0


def test_processes_that_open_at_once_never_exceed_the_room(url: str) -> None:
    written = write_at_once(url, writers=2, duration_s=0.5, room=7)

    index = RunIndex.open(url)
    running = index.count_running("here")
    queued = sum(group.figures.queued for group in index.groups().groups)
    index.close()
    assert max(done.most_running for done in written) == running == 7
    assert queued > 0
