"""The run index: every episode's row, its steps, and the groups they belong to."""

from agent_env.runs.index import RunIndex
from agent_env.runs.records import (
    CancelAnswer,
    Finished,
    GroupPage,
    GroupRecord,
    NewRun,
    RunCursor,
    RunFilter,
    RunPage,
    RunRecord,
)

__all__ = [
    "CancelAnswer",
    "Finished",
    "GroupPage",
    "GroupRecord",
    "NewRun",
    "RunCursor",
    "RunFilter",
    "RunIndex",
    "RunPage",
    "RunRecord",
]
