"""The pages as HTML: each asks ``Views`` for what it shows, as its JSON twin does."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any, NamedTuple

from fastapi import APIRouter, Depends, Query, Request
from fastapi.responses import HTMLResponse
from markupsafe import Markup
from starlette.responses import Response

from agent_env.explorer import charts, columns, talk, timeline, words
from agent_env.explorer.health_views import HealthView
from agent_env.explorer.queries import GroupsQuery, MessagesQuery, RunsQuery, TasksQuery
from agent_env.explorer.reader import Views
from agent_env.explorer.rendering import again, rendered
from agent_env.explorer.run_views import MessagesView, RunView

_Columns = Annotated[str | None, Query(alias="columns", max_length=1000)]


async def _note_seq(request: Request) -> None:
    """Before the page is read: its script hears of all that changes from then on."""
    request.state.seq = request.app.state.poller.seq


router = APIRouter(
    include_in_schema=False,
    default_response_class=HTMLResponse,
    dependencies=[Depends(_note_seq)],
)

_MOST_ROWS = 200
"""Most rows that one question for rows is answered with."""


class Talk(NamedTuple):
    """A part of a conversation, as a template takes it."""

    shown: Sequence[talk.Shown]
    next: str | None
    find: str | None = None
    note: str = ""


@router.get("/runs")
async def runs(request: Request, query: Annotated[RunsQuery, Query()]) -> Response:
    """A list of runs."""
    view = await _views(request).runs(query)
    cleared = again(RunsQuery().model_copy(update={"columns": query.columns, "sort": query.sort}))
    return _page(
        request,
        "runs.html",
        section="run",
        view=view,
        query=query,
        columns=columns.shown(query.columns),
        cleared=cleared,
    )


@router.get("/runs/rows")
async def run_rows(
    request: Request, ids: Annotated[list[str], Query()], columns_: _Columns = None
) -> Response:
    """Rows of runs that changed, to be put where the old ones are."""
    rows = await _views(request).rows(ids[:_MOST_ROWS])
    now = datetime.now(UTC)
    return _page(request, "rows.html", rows=rows, columns=columns.shown(columns_), now=now)


@router.get("/groups")
async def groups(request: Request, query: Annotated[GroupsQuery, Query()]) -> Response:
    """A list of groups."""
    view = await _views(request).groups(query)
    return _page(request, "groups.html", section="group", view=view, query=query)


@router.get("/groups/rows")
async def group_rows(request: Request, ids: Annotated[list[str], Query()]) -> Response:
    """Rows of groups that changed."""
    found = await _views(request).group_rows(ids[:_MOST_ROWS])
    return _page(request, "group_rows.html", groups=found, now=datetime.now(UTC))


@router.get("/run")
async def run(request: Request, id: str) -> Response:
    """One run."""
    views = _views(request)
    view = await views.run(id)
    messages = Talk((), None)
    if view.messages:
        messages = _talk(await views.messages(MessagesQuery(id=id)), None)
    return _page(
        request,
        "run.html",
        section="run",
        view=view,
        messages=messages,
        steps=timeline.lines(view),
        length_s=timeline.length_s(view),
        facts=_facts(view),
        is_long_run=_is_long(view),
    )


@router.get("/run/messages")
async def messages(request: Request, query: Annotated[MessagesQuery, Query()]) -> Response:
    """A part of a run's conversation."""
    found = _talk(await _views(request).messages(query), query.find)
    return _page(request, "messages.html", messages=found)


@router.get("/group")
async def group(request: Request, id: str) -> Response:
    """One group."""
    view = await _views(request).group(id)
    return _page(
        request,
        "group.html",
        section="group",
        view=view,
        columns=(*columns.MEMBER[:3], columns.ADVANTAGE, *columns.MEMBER[3:]),
        scale=charts.scale_of(mark.reward for mark in view.marks),
    )


@router.get("/compare")
async def compare(request: Request, run: Annotated[list[str], Query()]) -> Response:
    """Some runs side by side."""
    view = await _views(request).compare(run)
    return _page(request, "compare.html", section="group", view=view)


@router.get("/tasks")
async def tasks(request: Request, query: Annotated[TasksQuery, Query()]) -> Response:
    """Every task that was played."""
    view = await _views(request).tasks(query)
    return _page(request, "tasks.html", section="task", view=view, query=query)


@router.get("/health")
async def health(request: Request) -> Response:
    """Whether everything is there."""
    view = await request.app.state.health.view()
    return _page(request, "health.html", section="health", view=view, troubles=_troubles(view))


def error_page(request: Request, status: int, title: str, message: str) -> Response:
    """What is shown when a page can't be."""
    here = request.url.path + (f"?{request.url.query}" if request.url.query else "")
    return _page(
        request,
        "error.html",
        answer=status,
        status=status,
        title=title,
        message=message,
        here=here if request.method == "GET" else "/runs",
    )


def enter_page(request: Request, message: str | None) -> Response:
    """Asks for the token."""
    status = 200 if message is None else 401
    return HTMLResponse(rendered("enter.html", message=message), status_code=status)


def _page(
    request: Request, template: str, *, section: str = "", answer: int = 200, **values: Any
) -> HTMLResponse:
    now_ms = int(datetime.now(UTC).timestamp() * 1000)
    about, seq = request.app.state.about, getattr(request.state, "seq", None)
    text = rendered(template, section=section, about=about, now_ms=now_ms, seq=seq, **values)
    return HTMLResponse(text, status_code=answer)


def _views(request: Request) -> Views:
    views: Views = request.app.state.views
    return views


def _talk(view: MessagesView, find: str | None) -> Talk:
    shown = [talk.shown(message) for message in view.messages]
    note = ""
    if find and not shown and view.next is None:
        note = "nothing found"
    if view.searched is not None and view.next is not None:
        note = f"looked through {view.searched:,} messages so far"
    return Talk(shown, view.next, find, note)


def _is_long(view: RunView) -> bool:
    error = (view.run.error or "").strip()
    return "\n" in error or len(error) > 300


def _facts(view: RunView) -> list[tuple[str, str | Markup]]:
    run, now = view.run, view.now
    found: list[tuple[str, str | Markup | None]] = [
        ("scores", _pairs({name: words.number(score) for name, score in run.scores.items()})),
        ("seed", _pairs(run.seed)),
        ("tags", _pairs(run.tags)),
        ("member", None if run.member_index is None else str(run.member_index)),
        ("epoch", str(run.epoch)),
        ("listed", words.moment(run.created_at, now)),
        ("started", words.moment(run.started_at, now) if run.started_at else None),
        ("finished", words.moment(run.finished_at, now) if run.finished_at else None),
        ("cancel", _cancel(view)),
        ("model", run.model),
        ("tokens", _tokens(view)),
        ("instance", run.instance_id if run.instance_id != run.run_id else None),
        ("workflow", f"{run.run_id} in namespace {run.namespace}"),
    ]
    return [(name, value) for name, value in found if value]


def _cancel(view: RunView) -> Markup | None:
    run = view.run
    if run.cancel_requested_at is None:
        return None
    return Markup("asked for by {} at {}{}").format(
        words.visible(run.cancel_requested_by or "someone in Temporal"),
        words.moment(run.cancel_requested_at, view.now),
        words.visible(f": {run.cancel_requested_reason}" if run.cancel_requested_reason else ""),
    )


def _tokens(view: RunView) -> str | None:
    run = view.run
    if run.prompt_tokens is None and run.completion_tokens is None:
        return None
    return f"{run.prompt_tokens or 0:,} in, {run.completion_tokens or 0:,} out"


def _pairs(values: Mapping[str, str]) -> Markup | None:
    if not values:
        return None
    shown = [
        Markup("<code>{}={}</code>").format(words.visible(key), words.visible(value))
        for key, value in values.items()
    ]
    return Markup(" ").join(shown)


def _troubles(view: HealthView) -> bool:
    return bool(
        view.index_trouble
        or view.temporal_trouble
        or view.disagreements
        or view.still_up
        or not view.workers
    )
