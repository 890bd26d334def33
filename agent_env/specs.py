"""What a workflow and its activities are asked for. Frozen, JSON-shaped. Pure."""

from collections.abc import Mapping
from datetime import datetime, timedelta

from pydantic import Field, JsonValue

from agent_env._model import WireModel
from agent_env.group_specs import GroupProgress
from agent_env.outcome import Outcome
from agent_env.plan import Segment
from agent_env.results import EpisodeResult, SandboxRef, StepReport
from agent_env.task import Task
from agent_env.turns import OpenTurn, Usage

MAX_UPDATES = 1_500
"""The engine ends at 2,000."""
MAX_EVENTS = 10_000
"""The engine suggests it somewhat later, and ends at 51,200."""


class Policy(WireModel):
    """Settings of the worker that opened an episode; recorded, so that a replay sees the same."""

    host_lost_after: timedelta = timedelta(seconds=60)
    """How long a host may not poll its queue before its episodes begin again elsewhere."""
    max_host_losses: int = 2
    """How often that may happen to one episode."""
    max_updates: int = Field(default_factory=lambda: MAX_UPDATES)
    """Updates of one execution before an open turn goes on in a new one."""
    max_events: int = Field(default_factory=lambda: MAX_EVENTS)
    """Events of its history before it does."""
    lands_first: bool = False
    """Whether what is to be stopped first takes up what has arrived for it. Workers say so; none
    did for a history that was recorded before."""


class Placement(WireModel):
    """Answer of ``open`` and ``begin``: where the episode runs."""

    host: str | None
    """The host that took it. None while it is QUEUED."""
    policy: Policy = Policy()
    finished: bool = False
    """The row had ended already: nothing may start."""
    eager: bool = False
    """The worker that runs the workflow took it: work can reach it with the answer to a workflow
    task, without a queue."""


class Resumed(WireModel):
    """Where an episode is that goes on in a new execution, since its history had grown long.

    Nothing but turns is open then.
    """

    created_at: datetime
    placement: Placement
    losses: int
    """Hosts that were lost."""
    epoch: int
    reports: tuple[StepReport, ...]
    destroy: tuple[SandboxRef, ...]
    turns: tuple[OpenTurn, ...]
    usage: Usage
    deadline_at: datetime | None


class EpisodeStart(WireModel):
    """Argument of the workflow ``agent_env.Episode``."""

    run_id: str
    """Also the workflow id."""
    task: Task
    seed: Mapping[str, str] = {}
    """What ``<key>`` in a string of a step's parameters is replaced with."""
    tags: Mapping[str, str] = {}
    run_group_id: str | None = None
    member_index: int | None = None
    """Place in the group, from 0. None for an episode that was started alone."""
    deadline: timedelta | None = None
    """Longest time from the start to the outcome. None means the task's own, or no limit."""
    instance_id: str | None = None
    """What steps and outputs are filed under. None means the run id."""
    resumed: Resumed | None = None
    """Set by an execution that goes on in a new one."""

    @property
    def deadline_s(self) -> float | None:
        """The episode's deadline in seconds: its own, else the task's."""
        if self.deadline is not None:
            return self.deadline.total_seconds()
        return self.task.deadline_seconds


class GroupStart(WireModel):
    """Argument of the workflow ``agent_env.RolloutGroup``. Members share the task."""

    run_group_id: str
    """Also the workflow id; members are ``<run_group_id>-<index>``."""
    task: Task
    seeds: tuple[Mapping[str, str], ...]
    """One a member, in order: their number is the size of the group."""
    tags: Mapping[str, str] = {}
    max_parallel: int | None = None
    """Most members that run at once. None means no limit but the hosts' room."""
    deadline: timedelta | None = None
    """Each member's deadline."""
    group_deadline: timedelta | None = None
    """Longest time from the start to the end of the last member."""
    min_scored: int | None = None
    """When so many members have a reward, the others are canceled. None means all are played."""
    progress: GroupProgress | None = None
    """Of earlier executions of this group. None for the first."""


class OpenRun(WireModel):
    """Argument of ``open``: list the run, on this host at once if it has room."""

    start: EpisodeStart
    workflow_run_id: str
    namespace: str
    created_at: datetime


class BeginRun(WireModel):
    """Argument of ``begin``: take the episode for this host."""

    run_id: str
    epoch: int


class StepProgress(WireModel):
    """What ``run_steps`` heartbeats: a later attempt goes on after the reports in it."""

    reports: tuple[StepReport, ...] = ()
    running: tuple[str, ...] = ()
    """Steps under way, by id: a later attempt knows which were cut off."""
    detail: JsonValue = None
    """What the current step says of itself."""


class Ending(WireModel):
    """What ``run_steps`` needs to end an episode that succeeds with its segment."""

    workflow_run_id: str
    steps: tuple[str, ...]
    """Ids of all steps of the task."""
    reward: str | None
    """The step that the task names as its reward."""
    retried: tuple[StepReport, ...] = ()
    """Reports that count for nothing, and are kept."""
    sandbox_types: tuple[str, ...] = ()
    """Providers the run may have used."""


class RunSteps(WireModel):
    """Argument of ``run_steps``: one segment, and what it needs to know of the steps before it."""

    run_id: str
    task_id: str
    artifacts: Mapping[str, str]
    """Named artifacts, as ``sha256:…``."""
    seed: Mapping[str, str]
    epoch: int
    segment: Segment
    reports: tuple[StepReport, ...]
    """Surviving reports of the steps that ended before, in order."""
    destroy: tuple[SandboxRef, ...] = ()
    """Sandboxes of a span that is being retried: gone before the first step starts."""
    steps_total: int
    host: str | None = None
    """Who is meant, when it did not come over the host's own queue."""
    earlier: StepProgress | None = None
    """How far an attempt that came without a queue got."""
    ending: Ending | None = None
    """Given when nothing is left to do once these steps have succeeded."""


class StepsDone(WireModel):
    """Answer of ``run_steps``: a report for each step of the segment."""

    reports: tuple[StepReport, ...]
    outcome: Outcome | None = None
    """Given when these steps have brought the episode to a success: it is decided."""
    ended: EpisodeResult | None = None
    """Given when that was seen to, too: the episode torn down, and its row written."""


class Interrupt(WireModel):
    """Argument of ``interrupt``: stop the segments with these steps where they run."""

    run_id: str
    epoch: int
    """Segments of later epochs are left alone."""
    step_ids: tuple[str, ...]


class Finish(WireModel):
    """Argument of ``finish``: tear down, then write how the episode ended."""

    start: EpisodeStart
    workflow_run_id: str
    namespace: str
    created_at: datetime
    epoch: int
    outcome: Outcome
    reports: tuple[StepReport, ...]
    """All of them, retried ones included, in order."""
    host: str | None = None
    """Who is meant, when it did not come over the host's own queue."""


class OpenGroup(WireModel):
    """Argument of ``open_group``: list the group and all its members at once."""

    start: GroupStart
    namespace: str
    created_at: datetime


class CancelMembers(WireModel):
    """Argument of ``cancel_group``: ask every live member, and end those that have not begun."""

    run_group_id: str
    reason: str


class Reconcile(WireModel):
    """Argument of the workflow ``agent_env.Reconcile``, and of each of its looks."""

    once: bool = False
    """Look one time and answer what was repaired, instead of watching for ever."""
    under_way: tuple[str, ...] = ()
    """Runs and groups that are being repaired: left alone."""


class Repair(WireModel):
    """Argument of ``repair``: end a run whose workflow is over and did not end its row so."""

    run_id: str
    workflow_run_id: str | None
    """Of the row when it was looked at: one that has got another since is left alone."""
    host: str | None
    """Where its sandboxes may be."""
    outcome: Outcome
    is_own: bool = False
    """The workflow's own word, reward and scores included. Else those of the recorded steps stand.
    """
    reward_step: str | None = None
    """The step that the task names as its reward."""
    sandbox_types: tuple[str, ...] = ()
    """Providers the run may have used."""
    overrules: bool = False
    """Something from outside has ended the workflow: an end that the row has, or gets meanwhile,
    does not stand."""


class Repaired(WireModel):
    """What was done about one disagreement."""

    target: str
    """A run or a group, by id."""
    changed: bool
    """False when somebody else was faster, or it could not be repaired."""
    detail: str
    agrees: bool = True
    """False when it could not be repaired: the next look finds it again."""


class Findings(WireModel):
    """Answer of a look: what to repair, and what the look has repaired itself."""

    repairs: tuple[Repair, ...] = ()
    groups: tuple[CancelMembers, ...] = ()
    """Groups that are over and have members that will never start."""
    done: tuple[Repaired, ...] = ()
    more: bool = False
    """There was more than one look may answer: look again."""
    host_lost_after: timedelta = timedelta(seconds=60)
    """How long a host may not answer before another one ends its runs."""


class Reconciled(WireModel):
    """Result of a reconciliation by hand."""

    repaired: tuple[Repaired, ...] = ()
    """Of the first 500; texts are cut."""
    count: int = 0
    """All of them."""
    more: bool = False
    """There is more to repair than one reconciliation does."""
