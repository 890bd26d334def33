"""A file to which each run of a step adds a line; and the steps, as functions, that add it."""

import subprocess
from pathlib import Path


def ran(ledger: str, name: str) -> None:
    """Note the run, and end."""
    # One short write in append mode is whole, whoever else writes or dies.
    with open(ledger, "a", encoding="utf-8") as file:
        file.write(f"{name}\n")


def napped(ledger: str, name: str, nap: str) -> None:
    """Note the run, then sleep in a child process."""
    ran(ledger, name)
    subprocess.run(["sleep", nap], check=True)


def napped_once(ledger: str, name: str, nap: str) -> None:
    """Note the run; the first one sleeps."""
    if times(Path(ledger), name):
        ran(ledger, name)
    else:
        napped(ledger, name, nap)


def times(ledger: Path, name: str) -> int:
    """How often a step was run."""
    if not ledger.exists():
        return 0
    return ledger.read_text(encoding="utf-8").splitlines().count(name)
