"""The rows of a group and of its members."""

from collections.abc import Callable
from datetime import datetime

from temporalio import activity

from activities._translate import translating
from agent_env import ids, names
from agent_env.results import GroupResult
from agent_env.runs import GroupRecord, RunIndex, new_run
from agent_env.scores import group_figures
from agent_env.specs import CancelMembers, EpisodeStart, OpenGroup
from agent_env.status import RunStatus


class GroupActivities:
    """Synchronous: run by the worker's threads."""

    def __init__(self, index: RunIndex, *, now: Callable[[], datetime]) -> None:
        self._index = index
        self._now = now

    @activity.defn(name=names.OPEN_GROUP)
    def open(self, order: OpenGroup) -> None:
        """List the group and all its members as QUEUED, in one transaction."""
        start = order.start
        members = [
            new_run(
                EpisodeStart(
                    run_id=ids.member_id(start.run_group_id, index),
                    task=start.task,
                    seed=seed,
                    tags=start.tags,
                    run_group_id=start.run_group_id,
                    member_index=index,
                ),
                workflow_run_id=None,
                namespace=order.namespace,
                created_at=order.created_at,
            )
            for index, seed in enumerate(start.seeds)
        ]
        group = GroupRecord(
            run_group_id=start.run_group_id,
            task_id=start.task.id,
            created_at=order.created_at,
            size=len(members),
            figures=group_figures((RunStatus.QUEUED, None) for _ in members),
        )
        with translating():
            self._index.open_group(group, members)

    @activity.defn(name=names.CANCEL_GROUP)
    def cancel(self, order: CancelMembers) -> None:
        """End the members that have no workflow and never will."""
        with translating():
            self._index.cancel_group(
                order.run_group_id, by="group", reason=order.reason, at=self._now()
            )

    @activity.defn(name=names.GROUP_MEMBERS)
    def members(self, run_group_id: str) -> GroupResult:
        """Every member in order, with the figures."""
        with translating():
            return self._index.group_result(run_group_id)
