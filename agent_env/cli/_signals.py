"""Ctrl-C in a command with an event loop: the first asks, the second leaves at once."""

from __future__ import annotations

import asyncio
import os
import signal
import sys
from collections.abc import Callable
from types import TracebackType

from agent_env.cli._exit import INTERRUPTED, StoppedError


class Interrupts:
    """Hears signals while entered, in the task that entered.

    Until ``ready`` is called the first signal cancels that task: it is still starting things, and
    cleans them up. Afterwards it sets ``asked``.
    """

    def __init__(self, *signals: signal.Signals, leave: Callable[[], str]) -> None:
        """Listen for these.

        Args:
            signals: Which.
            leave: Called before the process leaves at once; what it answers is the last line.
        """
        self.asked = asyncio.Event()
        self._signals = signals
        self._leave = leave
        self._starting: asyncio.Task[object] | None = None

    def ready(self) -> None:
        """From now on, a signal only sets ``asked``."""
        self._starting = None

    def __enter__(self) -> Interrupts:
        self._starting = asyncio.current_task()
        loop = asyncio.get_running_loop()
        for number in self._signals:
            loop.add_signal_handler(number, self._heard)
        return self

    def __exit__(
        self,
        error_type: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        loop = asyncio.get_running_loop()
        for number in self._signals:
            loop.remove_signal_handler(number)
        if isinstance(error, asyncio.CancelledError) and self.asked.is_set():
            raise StoppedError("interrupted before anything was started") from None

    def _heard(self) -> None:
        if self.asked.is_set():
            leave_at_once(self._leave())
        self.asked.set()
        if self._starting is not None:
            self._starting.cancel()


def leave_at_once(last_line: str) -> None:
    """End this process without cleaning up: what it was doing may be what hangs."""
    sys.stderr.write(f"{last_line}\n")
    sys.stderr.flush()
    os._exit(INTERRUPTED)
