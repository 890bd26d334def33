"""Builds the activities of a worker, by the task queue that serves them."""

from collections.abc import Callable
from datetime import datetime, timedelta
from functools import partial
from typing import Any, NamedTuple

from temporalio.client import Client

from activities._segments import Segments
from activities._still_open import is_workflow_open
from activities._successes import Successes
from activities.finish import FinishActivities
from activities.groups import GroupActivities
from activities.reconcile import ReconcileActivities
from activities.records import RecordActivities
from activities.steps import StepActivities
from activities.turns import TurnActivities
from agent_env.runs import RunIndex
from agent_env.sandboxes import Providers
from agent_env.specs import Policy
from agent_env.steps.runner import SegmentRunner
from agent_env.turn_runner import TurnRunner

Activities = list[Callable[..., Any]]


class ActivityTable(NamedTuple):
    """Which activities a worker serves where."""

    local: Activities
    """Beside the workflows, as local activities."""
    eager: Activities
    """Beside the workflows, with the answer to a workflow task."""
    begin: Activities
    """On the shared queue, each attempt only when there is room."""
    host: Activities
    """On the host's own queue."""
    control: Activities
    """On the queue that any worker serves at any time."""
    reconcile: Activities
    """On the queue of the reconciler's looks."""
    segments: Segments


def build_activities(
    *,
    client: Client,
    index: RunIndex,
    providers: Providers,
    runner: SegmentRunner,
    turn_runner: TurnRunner,
    segments: Segments,
    host: str,
    max_episodes: int,
    policy: Policy,
    reconcile_every: timedelta,
    now: Callable[[], datetime],
) -> ActivityTable:
    """Every activity, with its collaborators."""
    records = RecordActivities(index, host=host, max_episodes=max_episodes, policy=policy, now=now)
    groups = GroupActivities(client, index, room=max_episodes, now=now)
    is_open = partial(is_workflow_open, client)
    successes = Successes(index, providers, runner, is_open=is_open, host=host, now=now)
    steps = StepActivities(runner, segments, index, successes=successes, host=host)
    turns = TurnActivities(turn_runner, segments, host=host)
    finish = FinishActivities(
        index, providers, segments, runner, turn_runner, is_open=is_open, host=host, now=now
    )
    reconcile = ReconcileActivities(
        client, index, every=reconcile_every, host_lost_after=policy.host_lost_after, now=now
    )
    return ActivityTable(
        local=[records.open, groups.open, groups.list_member, groups.state],
        eager=[
            records.queue,
            steps.run_steps,
            turns.begin_turn,
            turns.play_turn,
            finish.finish,
        ],
        begin=[records.begin],
        host=[
            steps.run_steps,
            steps.interrupt,
            steps.interrupt_group,
            turns.begin_turn,
            turns.play_turn,
            finish.finish,
            finish.repair,
        ],
        control=[
            finish.finish,
            finish.repair,
            groups.ask,
            groups.cancel,
            groups.cancel_runs,
            groups.await_members,
            groups.members,
        ],
        reconcile=[reconcile.reconcile],
        segments=segments,
    )
