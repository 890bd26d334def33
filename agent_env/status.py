"""The statuses of runs and of steps, and which moves between them are legal. Pure."""

from enum import StrEnum


class RunStatus(StrEnum):
    """Where a run is. Exactly one of the last three is where it ends."""

    QUEUED = "QUEUED"
    """Listed, but begun by no worker."""
    RUNNING = "RUNNING"
    """A worker has begun it."""
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"

    @property
    def is_finished(self) -> bool:
        """Whether a run with this status has ended."""
        return self in FINISHED


LIVE = (RunStatus.QUEUED, RunStatus.RUNNING)
FINISHED = (RunStatus.COMPLETED, RunStatus.FAILED, RunStatus.CANCELED)


def may_move(now: RunStatus, to: RunStatus) -> bool:
    """Whether a run that is ``now`` may become ``to``.

    A finished run never moves, but see ``may_be_overruled``. A running one goes back to QUEUED when
    its host is lost.
    """
    return not now.is_finished and now is not to


def may_be_overruled(now: RunStatus, to: RunStatus) -> bool:
    """Whether a run that has ended ``now`` may have to read ``to``.

    So it is when its workflow is terminated or timed out from outside between the row's end and its
    own. A terminated run is CANCELED, one that timed out FAILED.
    """
    return now.is_finished and to in (RunStatus.CANCELED, RunStatus.FAILED) and now is not to


class StepStatus(StrEnum):
    """How one step of a run stands."""

    RUNNING = "RUNNING"
    COMPLETED = "COMPLETED"
    FAILED = "FAILED"
    CANCELED = "CANCELED"
    """Stopped because the episode was canceled or another step failed."""
    SKIPPED = "SKIPPED"
    """Never started."""
