"""``episodes worker`` under conditions that a test makes: a wrong clock, destroying that waits.

Run as ``python -m tests.end_to_end.launcher [--clock-ahead-s S] [--gate FOLDER]``.
"""

import argparse
import asyncio
import importlib
import pkgutil
import sys
import time
from datetime import datetime, timedelta, tzinfo
from pathlib import Path

from typing_extensions import override

import agent_env
from agent_env.cli import run_and_exit
from agent_env.results import SandboxRef
from agent_env.sandboxes import local

HELD = "held"
"""Sandboxes whose names start so can't be destroyed before the gate opens."""
OPEN = "open"
"""The file in the gate's folder that opens it."""
CANCELED = " canceled"
"""What the name of a sandbox is followed by in the file that says that its wait was canceled."""


def shift_clock(ahead_s: float) -> None:
    """Set the clock of this process ahead, before anything of the product has read it."""
    time_now, ahead = time.time, timedelta(seconds=ahead_s)

    class Shifted(datetime):
        @override
        @classmethod
        def now(cls, tz: tzinfo | None = None) -> datetime:  # pyright: ignore[reportIncompatibleMethodOverride] (a plain datetime)
            return datetime.now(tz) + ahead

    time.time = lambda: time_now() + ahead_s
    for found in pkgutil.walk_packages(agent_env.__path__, "agent_env."):
        if not found.name.startswith(("agent_env._app", "agent_env.runs.migrations")):
            try:
                module = importlib.import_module(found.name)
            except ImportError:
                continue  # what it needs is not installed
            if vars(module).get("datetime") is datetime:
                module.datetime = Shifted  # type: ignore[attr-defined]


def hold_sandboxes(gate: Path) -> None:
    """Make the provider of this machine wait before it destroys one that is called ``held…``."""

    class GatedProvider(local.LocalProvider):
        @override
        async def destroy(self, ref: SandboxRef) -> None:
            if ref.name.startswith(HELD):
                (gate / ref.name).touch()
                try:
                    while not (gate / OPEN).exists():
                        await asyncio.sleep(0.02)
                except asyncio.CancelledError:
                    (gate / f"{ref.name}{CANCELED}").touch()
                    raise
            await super().destroy(ref)

    local.PROVIDER = GatedProvider


def main() -> None:
    parser = argparse.ArgumentParser()
    parser.add_argument("--clock-ahead-s", type=float, default=0.0)
    parser.add_argument("--gate", type=Path)
    options = parser.parse_args()
    if options.clock_ahead_s:
        shift_clock(options.clock_ahead_s)
    if options.gate is not None:
        hold_sandboxes(options.gate)
    sys.argv[1:] = ["worker"]
    run_and_exit()


if __name__ == "__main__":
    main()
