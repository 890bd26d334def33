"""What goes into the run index and what comes out of it. Frozen, JSON-shaped; no SQL."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import datetime
from enum import StrEnum
from typing import NamedTuple

from agent_env._model import WireModel
from agent_env.outcome import Outcome
from agent_env.results import EpisodeResult, SandboxRef, StepReport
from agent_env.scores import GroupFigures
from agent_env.specs import EpisodeStart
from agent_env.status import RunStatus


class NewRun(WireModel):
    """A run as it is listed."""

    run_id: str
    task_id: str
    task_version: str
    steps_total: int
    created_at: datetime
    namespace: str
    workflow_run_id: str | None = None
    """None for a group's member whose workflow has not started yet."""
    instance_id: str | None = None
    """None means the run id."""
    run_group_id: str | None = None
    member_index: int | None = None
    seed: Mapping[str, str] = {}
    tags: Mapping[str, str] = {}


def new_run(
    start: EpisodeStart, *, workflow_run_id: str | None, namespace: str, created_at: datetime
) -> NewRun:
    """The row of an episode as it is listed."""
    return NewRun(
        run_id=start.run_id,
        task_id=start.task.id,
        task_version=start.task.version,
        steps_total=len(start.task.steps),
        created_at=created_at,
        namespace=namespace,
        workflow_run_id=workflow_run_id,
        instance_id=start.instance_id,
        run_group_id=start.run_group_id,
        member_index=start.member_index,
        seed=start.seed,
        tags=start.tags,
    )


class End(WireModel):
    """How a run ended."""

    epoch: int
    outcome: Outcome
    reports: tuple[StepReport, ...] = ()
    still_up: tuple[SandboxRef, ...] = ()


class Finished(End):
    """How a run ended, and what is needed to list it in case its row is missing."""

    run: NewRun


class Succeeded(End):
    """How a run ended on the host that ran it to a success, if it is that host's to say."""

    run_id: str
    workflow_run_id: str
    host: str


class Ended(WireModel):
    """How a run ended whose workflow did not write it so."""

    run_id: str
    workflow_run_id: str | None
    """Of the row when it was looked at."""
    outcome: Outcome
    is_own: bool = False
    """The workflow's own word. Else reward and scores are those of the recorded steps."""
    reward_step: str | None = None
    """The step that the task names as its reward."""
    still_up: tuple[SandboxRef, ...] = ()
    overrules: bool = False
    """Whether it holds against an end that the row has already."""


class RunRecord(WireModel):
    """A run's row. Times are UTC and aware."""

    run_id: str
    instance_id: str
    runner: str
    task_id: str
    task_version: str
    run_group_id: str | None
    member_index: int | None
    status: RunStatus
    created_at: datetime
    started_at: datetime | None
    finished_at: datetime | None
    error_type: str | None
    error: str | None
    reward: float | None
    scores: Mapping[str, float | None]
    steps_total: int
    steps_done: int
    current_step: str | None
    host: str | None
    epoch: int
    cancel_requested_at: datetime | None
    cancel_requested_by: str | None
    cancel_requested_reason: str | None
    still_up: tuple[SandboxRef, ...]
    seed: Mapping[str, str]
    tags: Mapping[str, str]
    model: str | None
    prompt_tokens: int | None
    completion_tokens: int | None
    workflow_run_id: str | None
    namespace: str

    @property
    def is_canceling(self) -> bool:
        """Whether a cancel was asked for and the run has not ended."""
        return self.cancel_requested_at is not None and not self.status.is_finished

    def result(self) -> EpisodeResult:
        """The same facts as a trainer sees them."""
        return EpisodeResult(
            run_id=self.run_id,
            task_id=self.task_id,
            status=self.status,
            reward=self.reward,
            scores=self.scores,
            error_type=self.error_type,
            error=self.error,
            run_group_id=self.run_group_id,
            member_index=self.member_index,
            started_at=self.started_at,
            finished_at=self.finished_at,
            still_up=self.still_up,
        )


class RunPlace(NamedTuple):
    """Where a run is in its life, and on which host."""

    status: RunStatus
    host: str | None
    epoch: int


class StillUp(NamedTuple):
    """What teardown of a run could not remove."""

    run_id: str
    host: str | None
    """Where the run was last."""
    refs: tuple[SandboxRef, ...]


class CancelState(StrEnum):
    """What asking for a cancel found."""

    ASKED = "asked"
    ALREADY_ASKED = "already asked"
    FINISHED = "finished"


class CancelAnswer(WireModel):
    """The answer to a cancel request, with the row as it is now."""

    state: CancelState
    run: RunRecord


class GroupRecord(WireModel):
    """A group and its figures."""

    run_group_id: str
    task_id: str
    created_at: datetime
    size: int | None
    """Members asked for; None for a group that only single episodes name."""
    figures: GroupFigures
