"""Durable episodes: the names that a trainer imports.

They load on first use: the command line and the server's supervisor start without Temporal's and
SQLAlchemy's half second.
"""

from importlib import import_module
from typing import TYPE_CHECKING

from agent_env._version import __version__

if TYPE_CHECKING:
    from agent_env.episode import Episode, EpisodeSpec
    from agent_env.errors import (
        AgentEnvError,
        ConflictError,
        IndexUnavailableError,
        InvalidSpecError,
        RunNotFoundError,
        TurnError,
        UnavailableError,
        UserError,
    )
    from agent_env.group import RolloutGroup
    from agent_env.local import local_trainer
    from agent_env.results import EpisodeResult, GroupResult
    from agent_env.scores import GroupFigures
    from agent_env.status import RunStatus
    from agent_env.task import StepSpec, Task
    from agent_env.task_files import load_task, load_tasks
    from agent_env.trainer import Trainer
    from agent_env.turn import Turn
    from agent_env.turn_tools import EnvironmentTool, ToolResult, TurnTools

_HOMES = {
    "AgentEnvError": "errors",
    "ConflictError": "errors",
    "EnvironmentTool": "turn_tools",
    "Episode": "episode",
    "EpisodeResult": "results",
    "EpisodeSpec": "episode",
    "GroupFigures": "scores",
    "GroupResult": "results",
    "IndexUnavailableError": "errors",
    "InvalidSpecError": "errors",
    "RolloutGroup": "group",
    "RunNotFoundError": "errors",
    "RunStatus": "status",
    "StepSpec": "task",
    "Task": "task",
    "ToolResult": "turn_tools",
    "Trainer": "trainer",
    "Turn": "turn",
    "TurnError": "errors",
    "TurnTools": "turn_tools",
    "UnavailableError": "errors",
    "UserError": "errors",
    "load_task": "task_files",
    "load_tasks": "task_files",
    "local_trainer": "local",
}


def __getattr__(name: str) -> object:
    if name not in _HOMES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return getattr(import_module(f"{__name__}.{_HOMES[name]}"), name)


__all__ = [
    "AgentEnvError",
    "ConflictError",
    "EnvironmentTool",
    "Episode",
    "EpisodeResult",
    "EpisodeSpec",
    "GroupFigures",
    "GroupResult",
    "IndexUnavailableError",
    "InvalidSpecError",
    "RolloutGroup",
    "RunNotFoundError",
    "RunStatus",
    "StepSpec",
    "Task",
    "ToolResult",
    "Trainer",
    "Turn",
    "TurnError",
    "TurnTools",
    "UnavailableError",
    "UserError",
    "__version__",
    "load_task",
    "load_tasks",
    "local_trainer",
]
