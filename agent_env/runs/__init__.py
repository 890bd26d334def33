"""The run index: every episode's row, its steps, and the groups they belong to."""

from agent_env.runs.index import RunIndex
from agent_env.runs.lists import GroupPage, RunCursor, RunFilter, RunPage
from agent_env.runs.records import (
    CancelAnswer,
    Ended,
    Finished,
    GroupRecord,
    NewRun,
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
