"""The JSON twins of the pages, downloads, and changes. Described by the OpenAPI document."""

from __future__ import annotations

import json
import math
from collections.abc import AsyncGenerator
from typing import Annotated, Any, cast

from fastapi import APIRouter, Query, Request
from pydantic import BaseModel, Field, model_validator
from starlette.responses import Response, StreamingResponse

from agent_env._model import EdgeModel
from agent_env.explorer import exports
from agent_env.explorer.changes import Changes
from agent_env.explorer.group_views import CompareView, GroupView
from agent_env.explorer.health_views import HealthView, TasksView
from agent_env.explorer.live import Poller
from agent_env.explorer.queries import GroupsQuery, MessagesQuery, RunsQuery, TasksQuery
from agent_env.explorer.reader import Views
from agent_env.explorer.run_views import MessagesView, RunView
from agent_env.explorer.views import Changed, GroupRow, GroupsView, NewerView, RunRow, RunsView
from agent_env.explorer.views import Changes as ChangesView

router = APIRouter()

Id = Annotated[str, Query(max_length=1000, description="Of a run or a group.")]
Ids = Annotated[list[str], Query(max_length=200, description="One or more.")]
MORE_ERRORS: dict[int | str, dict[str, Any]] = {
    "4XX": {"description": "What is wrong with the request, and what to do."},
    "503": {"description": "The run index or Temporal does not answer; try again."},
}


class JsonResponse(Response):
    """JSON of a model, whatever is in its texts: half surrogate pairs are escaped."""

    media_type = "application/json"

    def render(self, content: Any) -> bytes:
        """The bytes."""
        return dumped(content).encode("ascii")


def dumped(content: Any) -> str:
    """JSON in ASCII. Numbers that JSON has no word for become null."""
    if isinstance(content, BaseModel):
        content = content.model_dump(mode="json")
    try:
        return json.dumps(content, allow_nan=False, separators=(",", ":"))
    except ValueError:
        return json.dumps(_finite(content), allow_nan=False, separators=(",", ":"))


def _finite(value: Any) -> Any:
    if isinstance(value, float):
        return value if math.isfinite(value) else None
    if isinstance(value, dict):
        return {key: _finite(item) for key, item in cast("dict[Any, Any]", value).items()}
    if isinstance(value, list | tuple):
        return [_finite(item) for item in cast("list[Any]", value)]
    return value


def _views(request: Request) -> Views:
    return cast(Views, request.app.state.views)


@router.get("/runs.json", response_model=RunsView)
async def runs(request: Request, query: Annotated[RunsQuery, Query()]) -> Response:
    """One page of runs."""
    return JsonResponse(await _views(request).runs(query))


@router.get("/runs/newer.json", response_model=NewerView)
async def newer(
    request: Request,
    query: Annotated[RunsQuery, Query()],
) -> Response:
    """How many runs that match were listed after ``first`` of a page, given as ``after``."""
    return JsonResponse(await _views(request).newer(query, than=query.after))


@router.get("/runs/rows.json", response_model=list[RunRow])
async def run_rows(request: Request, ids: Ids) -> Response:
    """These runs, in this order; unknown ones are left out."""
    found = await _views(request).rows(ids)
    return JsonResponse([row.model_dump(mode="json") for row in found])


@router.get("/run.json", response_model=RunView)
async def run(request: Request, id: Id) -> Response:
    """Everything about one run but its conversation."""
    return JsonResponse(await _views(request).run(id))


@router.get("/run/messages.json", response_model=MessagesView)
async def messages(request: Request, query: Annotated[MessagesQuery, Query()]) -> Response:
    """A part of a run's conversation."""
    return JsonResponse(await _views(request).messages(query))


@router.get("/groups.json", response_model=GroupsView)
async def groups(request: Request, query: Annotated[GroupsQuery, Query()]) -> Response:
    """One page of groups."""
    return JsonResponse(await _views(request).groups(query))


@router.get("/groups/rows.json", response_model=list[GroupRow])
async def group_rows(request: Request, ids: Ids) -> Response:
    """These groups, in this order; unknown ones are left out."""
    found = await _views(request).group_rows(ids)
    return JsonResponse([row.model_dump(mode="json") for row in found])


@router.get("/group.json", response_model=GroupView)
async def group(request: Request, id: Id) -> Response:
    """Everything about one group."""
    return JsonResponse(await _views(request).group(id))


@router.get("/compare.json", response_model=CompareView)
async def compare(request: Request, run: Ids) -> Response:
    """Two to eight runs side by side."""
    return JsonResponse(await _views(request).compare(run))


@router.get("/tasks.json", response_model=TasksView)
async def tasks(request: Request, query: Annotated[TasksQuery, Query()]) -> Response:
    """Every task that was played lately."""
    return JsonResponse(await _views(request).tasks(query))


@router.get("/health.json", response_model=HealthView)
async def health(request: Request) -> Response:
    """Whether all parts are there and agree."""
    return JsonResponse(await request.app.state.health.view())


Download = Annotated[RunsQuery, Query()]


@router.get("/runs.csv", response_class=StreamingResponse)
async def runs_csv(request: Request, query: Download) -> Response:
    """Runs that match as a table, newest first, from the first; at most 100,000."""
    return _attached(exports.runs_csv(_views(request), query), "text/csv", "runs.csv")


@router.get("/runs.jsonl", response_class=StreamingResponse)
async def runs_jsonl(request: Request, query: Download) -> Response:
    """Runs that match, one JSON object a line; at most 100,000."""
    lines = exports.runs_jsonl(_views(request), query, dumped)
    return _attached(lines, "application/jsonl", "runs.jsonl")


@router.get("/groups.csv", response_class=StreamingResponse)
async def groups_csv(request: Request, query: Annotated[GroupsQuery, Query()]) -> Response:
    """Groups that match with their figures as a table; at most 100,000."""
    return _attached(exports.groups_csv(_views(request), query), "text/csv", "groups.csv")


@router.get("/run/messages.jsonl", response_class=StreamingResponse)
async def messages_jsonl(request: Request, id: Id) -> Response:
    """A run's whole conversation, one message a line, as it was recorded."""
    await _views(request).run(id)  # there is such a run
    lines = exports.messages_jsonl(request.app.state.services.index.reads, _views(request), id)
    return _attached(lines, "application/jsonl", "messages.jsonl")


def _attached(body: AsyncGenerator[str], media_type: str, name: str) -> Response:
    headers = {"content-disposition": f'attachment; filename="{name}"'}
    return StreamingResponse(body, media_type=media_type, headers=headers)


Seq = Annotated[
    int | None, Query(ge=0, le=2**62, description="``seq`` of another answer, or of a page.")
]
About = Annotated[
    str | None,
    Query(
        max_length=1000,
        description="The run that a page is about: of this one, messages are told as well.",
    ),
]


@router.get("/live.json", response_model=ChangesView)
async def live_json(request: Request, since: Seq = None, run: About = None) -> Response:
    """What has changed since another answer of this, by its ``seq``."""
    poller: Poller = request.app.state.poller
    return JsonResponse(poller.since(since, run_id=run))


@router.get("/live", response_class=StreamingResponse, include_in_schema=False)
async def live(request: Request, since: Seq = None, run: About = None) -> Response:
    """The same as a stream of events, for as long as a page is open."""
    poller: Poller = request.app.state.poller
    seen = request.headers.get("last-event-id", "")
    seq = int(seen[:20]) if seen.isascii() and seen.isdecimal() else since

    async def events() -> AsyncGenerator[str]:
        async for change in poller.stream(seq, run_id=run):
            if change is None:
                yield ": still here\n\n"
            else:
                yield f"id: {change.seq}\nevent: changes\ndata: {dumped(change)}\n\n"

    return StreamingResponse(
        events(), media_type="text/event-stream", headers={"x-accel-buffering": "no"}
    )


class CancelRequest(EdgeModel):
    """What to cancel: one of the two."""

    run_id: Annotated[str | None, Field(max_length=1000)] = None
    run_group_id: Annotated[str | None, Field(max_length=1000)] = None
    reason: Annotated[str, Field(max_length=1000)] = ""
    """Kept, and shown wherever the run is."""
    by: Annotated[str, Field(max_length=100)] = ""
    """Who asks; empty means the user whom the explorer runs as."""

    @model_validator(mode="after")
    def _names_one(self) -> CancelRequest:
        if (self.run_id is None) == (self.run_group_id is None):
            raise ValueError("name a run or a group, one of the two")
        return self


class AgainRequest(EdgeModel):
    """What to run again."""

    run_id: Annotated[str, Field(max_length=1000)]


class TerminateRequest(EdgeModel):
    """What to force to stop."""

    run_id: Annotated[str, Field(max_length=1000)]
    reason: Annotated[str, Field(max_length=1000)] = ""
    by: Annotated[str, Field(max_length=100)] = ""


def _changes(request: Request) -> Changes:
    return cast(Changes, request.app.state.changes)


def _who(request: Request, by: str) -> str:
    return by.strip() or cast(str, request.app.state.about.user)


@router.post("/api/cancel", response_model=Changed)
async def cancel(request: Request, asked: CancelRequest) -> Response:
    """Ask a run, or every live member of a group, to stop; each ends CANCELED after teardown."""
    changes, by = _changes(request), _who(request, asked.by)
    if asked.run_id is not None:
        done = await changes.cancel_run(asked.run_id, reason=asked.reason, by=by)
    else:
        group = asked.run_group_id or ""
        done = await changes.cancel_group(group, reason=asked.reason, by=by)
    return JsonResponse(done)


@router.post("/api/run-again", response_model=Changed)
async def run_again(request: Request, asked: AgainRequest) -> Response:
    """Start another run of the same task, with the same seed, tags and deadline."""
    return JsonResponse(await _changes(request).run_again(asked.run_id))


@router.post("/api/terminate", response_model=Changed)
async def terminate(request: Request, asked: TerminateRequest) -> Response:
    """Stop a run without its teardown, once a cancel has taken too long."""
    by = _who(request, asked.by)
    done = await _changes(request).terminate(asked.run_id, reason=asked.reason, by=by)
    return JsonResponse(done)
