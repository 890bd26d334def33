"""Keeps logs off stdout: what Temporal's core writes itself would end up between results."""

from __future__ import annotations

import logging
import sys
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from temporalio.runtime import LoggingConfig


def to_stderr(*, debug: bool = False) -> None:
    """For a server: warnings of this process and of Temporal's core, a line each."""
    from temporalio.runtime import LogForwardingConfig, LoggingConfig, TelemetryFilter

    level = logging.INFO if debug else logging.WARNING
    logging.basicConfig(
        stream=sys.stderr, level=level, format="%(asctime)s %(levelname)s %(name)s: %(message)s"
    )
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
