"""The run index: every episode's row, its steps, and the groups they belong to."""

from agent_env.runs.index import RunIndex
from agent_env.runs.records import (
    CancelAnswer,
    Ended,
    Finished,
    GroupPage,
    GroupRecord,
    NewRun,
    RunCursor,
    RunFilter,
    RunPage,
    RunPlace,
    RunRecord,
    StillUp,
    Succeeded,
    new_run,
)

__all__ = [
    "CancelAnswer",
    "Ended",
    "Finished",
    "GroupPage",
    "GroupRecord",
    "NewRun",
    "RunCursor",
    "RunFilter",
    "RunIndex",
    "RunPage",
    "RunPlace",
    "RunRecord",
    "StillUp",
    "Succeeded",
    "new_run",
]
