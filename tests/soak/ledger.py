"""A ledger of what steps really did: each run of a step notes when it began and how it ended.

Imported by the tests, and loaded by its path in the process of each step.
"""

import json
import os
import secrets
import subprocess
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

BEGAN, ENDED, FAILED = "began", "ended", "failed"


def plays(ledger: str, run: str, step: str, nap: str, fails: str, score: str) -> float | None:
    """A step: note that it begins, sleep in a child process, note how it ends.

    Args:
        ledger: The file.
        run: The id of the run.
        step: The id of the step.
        nap: Seconds to sleep; empty for none.
        fails: ``never``, ``once`` in a run, or ``always``.
        score: What it scores, in thousands; empty for nothing.
    """
    token = secrets.token_hex(8)
    _note(ledger, token, run, step, BEGAN)
    if nap:
        subprocess.run(["sleep", nap], check=True)
    if fails == "always" or (fails == "once" and not _has_failed(Path(ledger), run, step)):
        _note(ledger, token, run, step, FAILED)
        raise ValueError("as it must")
    _note(ledger, token, run, step, ENDED)
    return float(score) / 1000 if score else None


@dataclass
class StepRun:
    """One run of a step. Times are seconds since 1970."""

    run_id: str
    step_id: str
    host: Path
    """The state folder of the host that ran it."""
    epoch: int
    began_at: float
    over_at: float | None = None
    """None if it was cut off."""


def read(ledger: Path) -> Iterator[StepRun]:
    """Every run of every step, in the order in which they began."""
    found: dict[str, StepRun] = {}
    for line in ledger.read_text(encoding="utf-8").splitlines():
        token, run, step, event, at, folder = json.loads(line)
        if event == BEGAN:
            # The folder of an attempt is STATE/work/RUN/STEP-EPOCH.
            where = Path(folder)
            epoch = int(where.name.rpartition("-")[2])
            found[token] = StepRun(run, step, where.parents[2], epoch, at)
        else:
            found[token].over_at = at
    yield from sorted(found.values(), key=lambda each: each.began_at)


def _note(ledger: str, token: str, run: str, step: str, event: str) -> None:
    line = json.dumps([token, run, step, event, time.time(), os.getcwd()])
    # One short write in append mode is whole, whoever else writes or dies.
    with open(ledger, "a", encoding="utf-8") as file:
        file.write(f"{line}\n")


def _has_failed(ledger: Path, run: str, step: str) -> bool:
    lines = map(json.loads, ledger.read_text(encoding="utf-8").splitlines())
    return any(line[1:4] == [run, step, FAILED] for line in lines)
