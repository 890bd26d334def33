"""Keeps logs off stdout: what Temporal's core writes itself would end up between results."""

from __future__ import annotations

import logging
import sys
import threading
import time
from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from temporalio.runtime import LoggingConfig


_REPEAT_EVERY_S = 60.0
_MOST_LINES = 1_000
"""How many different lines are remembered."""


class Repeats(logging.Filter):
    """Passes a line that says the same as an earlier one once a minute, with how many there were.

    Episodes that wait for one database by the hundred would fill the log otherwise. The same is
    what the same place in the code says of the same things; stack traces always pass.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._lock = threading.Lock()
        self._said: dict[tuple[str, int, str], _Said] = {}

    def filter(self, record: logging.LogRecord) -> bool:
        """Whether the line is to be written. One that stands for others is changed to say so."""
        if record.exc_info:
            return True
        said = str(record.args) if record.args else str(record.msg)
        key = (record.pathname, record.lineno, said)
        now = self._clock()
        with self._lock:
            last = self._said.pop(key, None)
            if last is not None and now < last.at + _REPEAT_EVERY_S:
                self._said[key] = last._replace(left_out=last.left_out + 1)
                return False
            self._said[key] = _Said(now, 0)
            if len(self._said) > _MOST_LINES:
                del self._said[next(iter(self._said))]
        if last is not None and last.left_out:
            record.msg = f"{record.getMessage()} (and {last.left_out} more like it)"
            record.args = ()
        return True


class _Said(NamedTuple):
    at: float
    left_out: int


def to_stderr(*, debug: bool = False) -> None:
    """For a server: warnings of this process and of Temporal's core, a line each."""
    from temporalio.runtime import LogForwardingConfig, LoggingConfig, TelemetryFilter

    level = logging.INFO if debug else logging.WARNING
    logging.basicConfig(
        stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
    for handler in logging.getLogger().handlers:
        handler.addFilter(Repeats())
    forwarding = LogForwardingConfig(logging.getLogger("temporalio.core"))
    _use(LoggingConfig(TelemetryFilter(core_level="WARN", other_level="ERROR"), forwarding))


def off(*, debug: bool = False) -> None:
    """For a command with an end: what matters is in its result. With ``debug``, to stderr."""
    if debug:
        to_stderr(debug=True)
        return
    # Without any handler, Python would write warnings to stderr.
    logging.basicConfig(handlers=[logging.NullHandler()])
    _use(None)


def _use(config: LoggingConfig | None) -> None:
    from temporalio.runtime import Runtime, TelemetryConfig

    runtime = Runtime(telemetry=TelemetryConfig(logging=config))
    Runtime.set_default(runtime, error_if_already_set=False)
