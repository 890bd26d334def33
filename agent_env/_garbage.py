"""What of a run's sandboxes and folders is garbage, decided from what index and Temporal say."""

from datetime import timedelta
from enum import Enum, auto

from agent_env.runs import RunPlace

UNLISTED_GRACE = timedelta(minutes=1)
"""How old something must be before a missing row can count against it."""
FORGOTTEN_AFTER = timedelta(days=1)
"""How old something of this host must be that neither the index nor Temporal has heard of: another
index or a script may have made it in the same state folder, and may still want it."""


class Workflow(Enum):
    """What Temporal knows of a run's workflow."""

    OPEN = auto()
    CLOSED = auto()
    UNKNOWN = auto()


class Verdict(Enum):
    """What becomes of what a run owns."""

    KEEP = auto()
    ENDED = auto()
    """Garbage: the run has ended."""
    MOVED = auto()
    """Garbage on this host: the run goes on with what it has on another."""
    UNLISTED = auto()
    """The index does not know the run; see ``is_forgotten``."""


def verdict(run: RunPlace | None, *, host: str, is_local: bool) -> Verdict:
    """What the index says about what a run owns.

    Args:
        run: Its row; None if there is none.
        host: This host.
        is_local: Whether what it owns lives on this host and nowhere else.
    """
    if run is None:
        return Verdict.UNLISTED
    if run.status.is_finished:
        return Verdict.ENDED
    # In a later epoch, and on a host by name: a row that was lost and restored may have none.
    is_elsewhere = run.host is not None and run.host != host and run.epoch > 1
    return Verdict.MOVED if is_local and is_elsewhere else Verdict.KEEP


def is_forgotten(workflow: Workflow, age: timedelta, *, is_local: bool) -> bool:
    """Whether something of a run without a row is garbage.

    What does not live on this host may belong to another installation: it is garbage only if
    Temporal knows the workflow, as one that is closed.
    """
    if workflow is Workflow.CLOSED:
        return age >= UNLISTED_GRACE
    return workflow is Workflow.UNKNOWN and is_local and age >= FORGOTTEN_AFTER
