"""What Temporal says of workflows: which are open, how one ended, what one was started with."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Any, NamedTuple, TypeVar

from temporalio.api.common.v1 import Payload
from temporalio.api.enums.v1 import EventType
from temporalio.client import (
    Client,
    WorkflowFailureError,
    WorkflowHandle,
)
from temporalio.exceptions import ApplicationError, FailureError, TerminatedError
from temporalio.service import RPCError, RPCStatusCode

from agent_env import names
from agent_env.disagreements import Closed, ComparedRun, Opened, OpenWorkflow, overrules
from agent_env.results import EpisodeResult
from agent_env.runs import RunRecord
from agent_env.specs import EpisodeStart, GroupStart

_Start = TypeVar("_Start", EpisodeStart, GroupStart)

PAGE = 1000
"""Workflows of one listing call."""
_BEGUN_EVENTS = 5
"""Least of a history with a completed workflow task: before are its start, perhaps a cancel."""
_FROM_OUTSIDE = (
    f"WorkflowType = '{names.EPISODE}' AND ExecutionStatus IN ('Terminated', 'TimedOut')"
)
_OPEN = (
    f"WorkflowType IN ('{names.EPISODE}', '{names.ROLLOUT_GROUP}') AND ExecutionStatus = 'Running'"
)


class Execution(NamedTuple):
    """One workflow as Temporal describes it: a fact, where a listing may lag."""

    run_id: str
    status: str
    """``RUNNING COMPLETED FAILED CANCELED TERMINATED CONTINUED_AS_NEW TIMED_OUT``, or others."""
    is_cancel_requested: bool
    is_begun: bool
    """Whether a worker has run its code."""
    started_at: datetime
    closed_at: datetime | None

    @property
    def is_open(self) -> bool:
        """Whether it can still write its own end. A paused one can."""
        return self.closed_at is None


async def open_workflows(client: Client) -> Opened:
    """Every open episode and group of the client's namespace. One call for a thousand of them."""
    episodes: dict[str, OpenWorkflow] = {}
    groups: dict[str, OpenWorkflow] = {}
    async for found in client.list_workflows(_OPEN, page_size=PAGE):
        into = episodes if found.workflow_type == names.EPISODE else groups
        into[found.id] = OpenWorkflow(found.run_id, found.start_time)
    return Opened(episodes, groups)


class OutsideEnd(NamedTuple):
    """How something from outside has ended a workflow."""

    status: str
    """``TERMINATED`` or ``TIMED_OUT``."""
    closed_at: datetime


async def ended_from_outside(client: Client, *, since: datetime | None) -> Mapping[str, OutsideEnd]:
    """Episodes of the client's namespace that were terminated or timed out, by id.

    With ``since`` only those that closed then or later, by the server's clock; else all that it
    still knows of. A server that can't list workflows tells of none.
    """
    where = _FROM_OUTSIDE
    if since is not None:
        where += f" AND CloseTime >= '{since.astimezone(UTC):%Y-%m-%dT%H:%M:%S.%fZ}'"
    found: dict[str, OutsideEnd] = {}
    try:
        async for each in client.list_workflows(where, page_size=PAGE):
            if each.status is not None and each.close_time is not None:
                # The latest comes first, where there are several of one id.
                found.setdefault(each.id, OutsideEnd(each.status.name, each.close_time))
    except RPCError as error:
        if error.status is not RPCStatusCode.UNIMPLEMENTED:
            raise
    return found


async def has_listings(client: Client) -> bool:
    """Whether the server can list workflows; the one that tests use to skip time can't."""
    try:
        async for _ in client.list_workflows(_OPEN, page_size=1, limit=1):
            pass
    except RPCError as error:
        if error.status is RPCStatusCode.UNIMPLEMENTED:
            return False
        raise
    return True


async def described(
    client: Client, workflow_id: str, run_id: str | None = None
) -> Execution | None:
    """A workflow, by default the latest of this id. None: there is none, or no longer."""
    try:
        found = await client.get_workflow_handle(workflow_id, run_id=run_id).describe()
    except RPCError as error:
        if error.status in (RPCStatusCode.NOT_FOUND, RPCStatusCode.INVALID_ARGUMENT):
            return None  # a run id that no server gave is an invalid argument
        raise
    return Execution(
        run_id=found.run_id,
        status=found.status.name if found.status is not None else "of unknown status",
        is_cancel_requested=found.raw_description.workflow_extended_info.cancel_requested,
        is_begun=found.history_length >= _BEGUN_EVENTS,
        started_at=found.start_time,
        closed_at=found.close_time,
    )


async def overruling(client: Client, row: ComparedRun | RunRecord) -> Execution | None:
    """The execution of a row that something from outside has ended otherwise than the row says."""
    latest = await described(client, row.run_id)
    if latest is None or not overrules(latest.status, row.status):
        return None
    # A reset terminates one execution and goes on with another: then the latest says how it ended.
    its = await of_row(client, row, latest)
    return its if its is not None and overrules(its.status, row.status) else None


async def of_row(
    client: Client, row: ComparedRun | RunRecord, latest: Execution | None
) -> Execution | None:
    """The execution that a row belongs to, given the latest of its id."""
    if latest is None or row.workflow_run_id in (None, latest.run_id):
        return latest
    its = await described(client, row.run_id, row.workflow_run_id)
    return latest if its is not None and its.status == "CONTINUED_AS_NEW" else its


async def closed(client: Client, workflow_id: str, execution: Execution | None) -> Closed:
    """How a workflow that is not open ended. None: there is no such workflow."""
    if execution is None:
        return Closed("NOT_FOUND")
    handle = client.get_workflow_handle(
        workflow_id, run_id=execution.run_id, result_type=EpisodeResult
    )
    name = execution.status
    if name == "CANCELED":
        return Closed(name, reason=await _cancel_reason(handle))
    if name not in ("COMPLETED", "FAILED", "TERMINATED"):
        return Closed(name)
    try:
        return Closed(name, result=await handle.result(follow_runs=False))
    except WorkflowFailureError as failure:
        return _failed(name, failure.cause)
    except (ValueError, TypeError, RuntimeError):
        return Closed(name)  # not a result of ours


async def started_with(client: Client, workflow_id: str, run_id: str | None) -> EpisodeStart | None:
    """The argument of an episode, from its history. None if there is none that can be read."""
    return await _argument(client, workflow_id, run_id, EpisodeStart)


async def group_started_with(client: Client, workflow_id: str) -> GroupStart | None:
    """The argument of a group, from its history. None if there is none that can be read."""
    return await _argument(client, workflow_id, None, GroupStart)


async def _argument(
    client: Client, workflow_id: str, run_id: str | None, type: type[_Start]
) -> _Start | None:
    handle = client.get_workflow_handle(workflow_id, run_id=run_id)
    try:
        async for event in handle.fetch_history_events(page_size=1):
            given = event.workflow_execution_started_event_attributes.input.payloads
            return await _decoded(client, given, type)
    except RPCError as error:
        if error.status is not RPCStatusCode.NOT_FOUND:
            raise
    return None


async def _decoded(
    client: Client, payloads: Sequence[Payload], type: type[_Start]
) -> _Start | None:
    try:
        (start,) = await client.data_converter.decode(payloads, [type])
    except (ValueError, TypeError, RuntimeError):
        return None  # started by hand, with something else
    return start


def _failed(name: str, cause: BaseException) -> Closed:
    if isinstance(cause, TerminatedError):
        # The SDK puts words of its own in place of an empty reason.
        said = "" if cause.message == "Workflow terminated" else cause.message
        return Closed(name, reason=said)
    if isinstance(cause, ApplicationError):
        if cause.details:
            try:
                return Closed(name, result=EpisodeResult.model_validate(cause.details[0]))
            except ValueError:
                pass  # not a failure of ours
        return Closed(name, reason=cause.message, error_type=cause.type)
    text = cause.message if isinstance(cause, FailureError) else str(cause)
    return Closed(name, reason=text)


async def _cancel_reason(handle: WorkflowHandle[Any, Any]) -> str:
    async for event in handle.fetch_history_events():
        if event.event_type == EventType.EVENT_TYPE_WORKFLOW_EXECUTION_CANCEL_REQUESTED:
            asked = event.workflow_execution_cancel_requested_event_attributes
            return asked.cause
    return ""
