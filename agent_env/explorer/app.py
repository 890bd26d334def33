"""The explorer as an ASGI application: composition root, errors, static files."""

from __future__ import annotations

from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import asynccontextmanager
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs

from fastapi import FastAPI, Request
from fastapi.exceptions import RequestValidationError
from starlette.exceptions import HTTPException
from starlette.responses import RedirectResponse, Response
from starlette.staticfiles import StaticFiles
from temporalio.client import Client
from temporalio.service import RPCError

from agent_env._version import __version__
from agent_env.artifacts import ArtifactStore
from agent_env.errors import (
    AgentEnvError,
    ConflictError,
    IndexUnavailableError,
    MoveRefusedError,
    RunNotFoundError,
    UnavailableError,
    UserError,
    error_text,
    error_type,
)
from agent_env.explorer import api, pages
from agent_env.explorer.api import JsonResponse
from agent_env.explorer.changes import Changes
from agent_env.explorer.health import Health
from agent_env.explorer.links import Links
from agent_env.explorer.live import Poller
from agent_env.explorer.reader import Views
from agent_env.explorer.security import Access, Guard, signed_in
from agent_env.explorer.temporal import Temporal
from agent_env.runs import RunIndex

_STATIC = Path(__file__).parent / "static"
_THREADS = 4
"""Reads of the index at one time: it has eight connections, and a worker may share them."""
_JSON_ENDINGS = (".json", ".jsonl", ".csv")
_STATUS: Sequence[tuple[type[AgentEnvError], int, str]] = (
    (RunNotFoundError, 404, "Not found"),
    (IndexUnavailableError, 503, "The run index does not answer"),
    (UnavailableError, 503, "Temporal does not answer"),
    (MoveRefusedError, 409, "Not now"),
    (ConflictError, 409, "Something is in the way"),
    (UserError, 400, "That can't be asked"),
)


def utc_now() -> datetime:
    """The clock."""
    return datetime.now(UTC)


def _nobody() -> str | None:
    return None


@dataclass(frozen=True)
class ExplorerServices:
    """What the explorer works with. Whoever opened it closes it."""

    index: RunIndex
    connect: Callable[[], Awaitable[Client]]
    """Makes a client of Temporal; raises UnavailableError when none answers."""
    store: ArtifactStore
    access: Access = field(default_factory=lambda: Access(token=None))
    user: str = "explorer"
    """In whose name things are changed when nobody says who they are."""
    temporal_ui: Callable[[], str | None] = _nobody
    """Address of Temporal's UI, now."""
    hosts: Sequence[str] = ()
    """Hosts that are known beside those of the index."""
    force_after: timedelta = timedelta(seconds=60)
    """How long a cancel may take before a forced stop is offered."""
    poll_every_s: float = 1.0
    now: Callable[[], datetime] = utc_now


@dataclass(frozen=True)
class About:
    """What every page needs to know."""

    version: str
    read_only: bool
    has_token: bool
    user: str


def create_app(services: ExplorerServices) -> FastAPI:
    """The application. Reads nothing and connects to nothing until it is used."""
    threads = ThreadPoolExecutor(_THREADS, thread_name_prefix="explorer")
    temporal = Temporal(services.connect)
    links = Links(services.temporal_ui, namespace=lambda: temporal.namespace)
    views = Views(
        services.index,
        temporal,
        links=links,
        now=services.now,
        force_after=services.force_after,
        read_only=services.access.read_only,
        threads=threads,
    )
    poller = Poller(
        services.index.reads,
        in_thread=views.in_thread,
        temporal=temporal,
        every_s=services.poll_every_s,
    )

    @asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncGenerator[None]:
        try:
            async with poller.running():
                yield
        finally:
            threads.shutdown(wait=False, cancel_futures=True)

    app = FastAPI(
        title="episodes explorer",
        version=__version__,
        summary="Runs, groups and tasks of the run index, as the explorer's pages show them.",
        openapi_url="/openapi.json",
        # Their pages load scripts from elsewhere.
        docs_url=None,
        redoc_url=None,
        lifespan=lifespan,
        responses=api.MORE_ERRORS,
    )
    app.state.services = services
    app.state.views = views
    app.state.poller = poller
    app.state.access = services.access
    app.state.about = About(
        __version__, services.access.read_only, services.access.has_token, services.user
    )
    app.state.health = Health(
        services.index,
        temporal,
        views=views,
        poller=poller,
        links=links,
        now=services.now,
        hosts=services.hosts,
    )
    app.state.changes = Changes(
        services.index,
        temporal,
        services.store,
        force_after=services.force_after,
        now=services.now,
    )
    app.include_router(api.router)
    app.include_router(pages.router)
    app.add_api_route("/", _home, include_in_schema=False)
    app.add_api_route("/go", _go, include_in_schema=False)
    app.add_api_route("/enter", _enter, methods=["GET"], include_in_schema=False)
    app.add_api_route("/enter", _entered, methods=["POST"], include_in_schema=False)
    app.mount("/static", StaticFiles(directory=_STATIC, check_dir=False), name="static")
    app.add_exception_handler(AgentEnvError, _told)
    app.add_exception_handler(RPCError, _told_by_temporal)
    app.add_exception_handler(RequestValidationError, _told_of_query)
    app.add_exception_handler(HTTPException, _told_of_path)
    app.add_exception_handler(Exception, _told_of_bug)
    app.add_middleware(Guard, access=services.access, refuse=refused)
    return app


def refused(request: Request, status: int, title: str, message: str) -> Response:
    """An answer that says what is wrong: a page for people, JSON for programs."""
    if _wants_json(request):
        kind = title.lower().replace(" ", "_").replace("'", "")
        error = {"message": message, "type": kind, "title": title}
        return JsonResponse({"error": error}, status_code=status)
    return pages.error_page(request, status, title, message)


def _wants_json(request: Request) -> bool:
    path = request.url.path
    return (
        path.endswith(_JSON_ENDINGS)
        or path.startswith("/api/")
        or path == "/live"
        or request.method not in ("GET", "HEAD", "POST")
    )


async def _home() -> Response:
    return RedirectResponse("/runs", status_code=307)


async def _go(request: Request, text: str = "") -> Response:
    """Where a word in the search box leads: to the run or group of that id, else to a search."""
    from urllib.parse import quote

    word = text.strip()[:1000]
    views: Views = request.app.state.views
    if word and await views.rows([word]):
        return RedirectResponse(f"/run?id={quote(word, safe='')}", status_code=303)
    if word and await views.group_rows([word]):
        return RedirectResponse(f"/group?id={quote(word, safe='')}", status_code=303)
    return RedirectResponse(f"/runs?text={quote(word, safe='')}", status_code=303)


async def _enter(request: Request, key: str = "", to: str = "/") -> Response:
    access: Access = request.app.state.access
    if not access.has_token:
        return RedirectResponse("/", status_code=303)
    if key:
        if access.redeem(key):
            return signed_in(access, to, is_secure=request.url.scheme == "https")
        return pages.enter_page(request, "This link was used before, or is too old.")
    return pages.enter_page(request, None)


async def _entered(request: Request) -> Response:
    access: Access = request.app.state.access
    form = parse_qs((await request.body()).decode("utf-8", "replace"), max_num_fields=10)
    if access.is_token(form.get("token", [""])[0].strip()):
        to = form.get("to", ["/"])[0]
        return signed_in(access, to, is_secure=request.url.scheme == "https")
    return pages.enter_page(request, "That is not the token.")


async def _told(request: Request, error: Exception) -> Response:
    assert isinstance(error, AgentEnvError)
    for kind, status, title in _STATUS:
        if isinstance(error, kind):
            return _failed(request, status, title, error_text(error), error_type(error))
    return _failed(request, 500, "That failed", error_text(error), error_type(error))


async def _told_by_temporal(request: Request, error: Exception) -> Response:
    said = error.message if isinstance(error, RPCError) else str(error)
    text = f"Temporal answered with an error: {said}; try again"
    return _failed(request, 503, "Temporal does not answer", text, "Unavailable")


async def _told_of_query(request: Request, error: Exception) -> Response:
    assert isinstance(error, RequestValidationError)
    return _failed(request, 422, "That can't be asked", _problems(error.errors()), "InvalidSpec")


async def _told_of_path(request: Request, error: Exception) -> Response:
    assert isinstance(error, HTTPException)
    if error.status_code == 404:
        return _failed(request, 404, "Not found", "there is no such page", "NotFound")
    kind = "InvalidSpec" if error.status_code == 400 else "NotAllowed"
    answer = _failed(request, error.status_code, "Not here", str(error.detail), kind)
    answer.headers.update(error.headers or {})
    return answer


async def _told_of_bug(request: Request, error: Exception) -> Response:
    text = f"{error_type(error)}: {error_text(error)}; its trace is in the explorer's log"
    return _failed(request, 500, "A bug of the explorer", text, "InternalError")


def _failed(request: Request, status: int, title: str, message: str, kind: str) -> Response:
    if _wants_json(request):
        return JsonResponse({"error": {"message": message, "type": kind}}, status_code=status)
    return pages.error_page(request, status, title, message)


def _problems(errors: Sequence[Any]) -> str:
    """What is wrong with an address or a body, a line each."""
    lines: list[str] = []
    for found in errors[:20]:
        where = ".".join(str(part) for part in found["loc"][1:])
        said = str(found["msg"]).removeprefix("Value error, ")
        if found["type"] == "extra_forbidden":
            said = "is not a parameter of this page; leave it out"
        lines.append(f"{where}: {said}" if where else said)
    return "\n".join(lines)[:4000]
