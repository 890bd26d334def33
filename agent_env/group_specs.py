"""What a group's workflow and its activities ask of each other. Frozen, JSON-shaped. Pure."""

from collections.abc import Mapping
from datetime import datetime

from agent_env._model import WireModel
from agent_env.task import Task


class Rerun(WireModel):
    """A run that replaces an earlier one of the same member."""

    run_id: str
    index: int
    replaces: str | None = None
    """The run that it replaces, if that had not ended."""
    is_new: bool = True
    """False: the member had not begun, so it stands for itself."""


class GroupProgress(WireModel):
    """How far a group is: what one execution of its workflow hands to the next."""

    opened_at: datetime
    """When the group was listed. Its deadline counts from here."""
    next: int = 0
    """Members from this index on have not been started."""
    open: tuple[str, ...] = ()
    """Runs that were started and have not ended."""
    again: tuple[Rerun, ...] = ()
    """Listed to replace a member, and not started."""
    replace: tuple[int, ...] = ()
    """Members that are to be replaced first of all."""
    room: int | None = None
    """Most members open at once, as far as is known of the hosts' room."""


class OpenedGroup(WireModel):
    """Answer of ``open_group``."""

    room: int | None = None
    """Episodes that the host which listed it takes at once."""


class ListMember(WireModel):
    """Argument of ``list_member``: list a run that replaces a member's latest one."""

    run_group_id: str
    index: int
    task: Task
    seed: Mapping[str, str]
    tags: Mapping[str, str] = {}
    namespace: str
    created_at: datetime
    """Also tells one replacement from the next: asked twice, it is listed once."""


class GroupState(WireModel):
    """What a group asks of its members' rows."""

    waiting: int
    """Members that have a workflow and that no host has begun."""
    scored: int
    """Members that have a reward."""
    ended: int
    """Runs that have ended, replaced ones too: counts up whenever one ends."""
    is_finished: bool
    """Whether every member has ended."""


class AskedGroup(WireModel):
    """Answer of ``ask_group``: the request is on the row of every live member."""

    hosts: tuple[str, ...] = ()
    """Where members run."""


class CancelRuns(WireModel):
    """Argument of ``cancel_runs``: have Temporal cancel these workflows, with the reason."""

    run_ids: tuple[str, ...]
    reason: str
    is_recorded: bool = True
    """False: put the request on their rows first."""


class AwaitMembers(WireModel):
    """Argument of ``await_members``: answer when some of these runs have ended."""

    run_ids: tuple[str, ...]


class EndedMembers(WireModel):
    """Answer of ``await_members``."""

    run_ids: tuple[str, ...]
