"""The time that is written into rows: the Temporal server's, as far as this host can know it.

Rows hold times of several hosts, and one of them may have a wrong clock. The server says when an
activity started; that is compared with the clock of this host.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from datetime import datetime, timedelta
from typing import Any

from temporalio import activity
from temporalio.worker import (
    ActivityInboundInterceptor,
    ExecuteActivityInput,
    Interceptor,
)
from typing_extensions import override

_TOLERATED = timedelta(seconds=2)
"""Clocks that are kept are closer than this, and then this host's own is the finer one."""
_KEPT = 32
"""How many comparisons count: the latest, so that a clock that is set right is believed again."""


class ServerClock(Interceptor):
    """Tells the time; to be given to the workers whose activities start on it.

    Args:
        own: The clock of this host.
    """

    def __init__(self, own: Callable[[], datetime]) -> None:
        self._own = own
        self._behind = deque[timedelta](maxlen=_KEPT)

    def now(self) -> datetime:
        """The server's time; this host's as long as nothing says that it is wrong."""
        # An activity begins some time after the server says so: the largest is the truest.
        behind = max(self._behind, default=timedelta())
        return self._own() + (behind if abs(behind) > _TOLERATED else timedelta())

    def compare(self, server: datetime) -> None:
        """Note the server's time of this moment, or of shortly before."""
        self._behind.append(server - self._own())

    @override
    def intercept_activity(self, next: ActivityInboundInterceptor) -> ActivityInboundInterceptor:
        return _Comparing(next, self)


class _Comparing(ActivityInboundInterceptor):
    def __init__(self, next: ActivityInboundInterceptor, clock: ServerClock) -> None:
        super().__init__(next)
        self._clock = clock

    @override
    async def execute_activity(self, input: ExecuteActivityInput) -> Any:
        info = activity.info()
        if not info.is_local:  # those are timed by this host
            self._clock.compare(info.started_time)
        return await super().execute_activity(input)
