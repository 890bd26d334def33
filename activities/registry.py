"""Builds the activities of a worker, by the task queue that serves them."""

from collections.abc import Callable
from datetime import datetime
from typing import Any, NamedTuple

from activities._segments import Segments
from activities.finish import FinishActivities
from activities.groups import GroupActivities
from activities.records import RecordActivities
from activities.steps import StepActivities
from agent_env.runs import RunIndex
from agent_env.sandboxes import Providers
from agent_env.specs import Policy
from agent_env.steps.runner import SegmentRunner

Activities = list[Callable[..., Any]]


class ActivityTable(NamedTuple):
    """Which activities a worker serves where."""

    local: Activities
    """Beside the workflows, as local activities."""
    begin: Activities
    """On the shared queue, each attempt only when there is room."""
    host: Activities
    """On the host's own queue."""
    control: Activities
    """On the queue that any worker serves at any time."""
    segments: Segments


def build_activities(
    *,
    index: RunIndex,
    providers: Providers,
    runner: SegmentRunner,
    segments: Segments,
    host: str,
    max_episodes: int,
    policy: Policy,
    now: Callable[[], datetime],
) -> ActivityTable:
    """Every activity, with its collaborators."""
    records = RecordActivities(index, host=host, max_episodes=max_episodes, policy=policy, now=now)
    groups = GroupActivities(index, now=now)
    steps = StepActivities(runner, segments, index)
    finish = FinishActivities(index, providers, segments, runner, now=now)
    return ActivityTable(
        local=[records.open, groups.open],
        begin=[records.begin],
        host=[steps.run_steps, steps.interrupt, finish.finish],
        control=[finish.finish, groups.cancel, groups.members],
        segments=segments,
    )
