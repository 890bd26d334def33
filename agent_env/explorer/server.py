"""Serves the explorer: checks where it listens, binds, and ends without waiting for open pages."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import socket
from collections.abc import AsyncGenerator, Generator
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import NamedTuple

import uvicorn
from fastapi import FastAPI

from agent_env._connect import connect
from agent_env.artifacts import ArtifactStore
from agent_env.config import Settings, host_id
from agent_env.errors import ConfigError, ConflictError
from agent_env.explorer.app import ExplorerServices, create_app
from agent_env.explorer.security import LEAST_TOKEN_CHARS, Access, is_loopback
from agent_env.runs import RunIndex

_TRIED_PORTS = 20
_TEARDOWN = timedelta(seconds=30)
"""How long teardown may take before a forced stop is offered."""
_STOP_S = 2


class Explorer(NamedTuple):
    """An explorer that serves."""

    url: str
    """Its first page."""
    link: str
    """The same for a browser that has no cookie yet: works once. Without a token, ``url``."""
    app: FastAPI


def access_of(settings: Settings) -> Access:
    """Who may come in, as the settings say.

    Raises:
        ConfigError: others could reach it and no token is set, or the token is too short.
    """
    token = settings.token
    if token is None and not is_loopback(settings.explorer_host):
        raise ConfigError(
            f"explorer_host: others can reach {settings.explorer_host}, so a token is needed; set "
            "EPISODES_EXPLORER_TOKEN to a long random word"
        )
    if token is not None and len(token) < LEAST_TOKEN_CHARS:
        raise ConfigError(
            f"explorer_token: has {len(token)} characters, which can be guessed; use at least "
            f"{LEAST_TOKEN_CHARS} random ones"
        )
    names = [name for name in settings.explorer_names.replace(",", " ").split() if name]
    if not is_loopback(settings.explorer_host):
        names.append(settings.explorer_host)
    return Access(token=token, names=names, read_only=settings.explorer_read_only)


def services_of(settings: Settings, index: RunIndex, *, user: str) -> ExplorerServices:
    """What the explorer of this machine works with.

    Raises:
        ConfigError: see ``access_of``.
    """

    def temporal_ui() -> str | None:
        from agent_env._connect import external_address
        from agent_env.embedded import find_running

        if settings.temporal_ui is not None or external_address() is not None:
            return settings.temporal_ui
        running = find_running(settings.state_dir)
        return None if running is None else running.ui_url

    # One that no worker has served has no name yet, and its folder may be another's to write.
    is_named = settings.host is not None or (settings.state_dir / "host").exists()
    host = host_id(settings) if is_named else None
    return ExplorerServices(
        index=index,
        connect=lambda: connect(settings.state_dir),
        store=ArtifactStore(settings.state_dir / "artifacts"),
        access=access_of(settings),
        user=user,
        temporal_ui=temporal_ui,
        hosts=() if host is None else (host,),
        # A step that doesn't stop is abandoned after the grace; then comes teardown.
        force_after=timedelta(seconds=settings.cancel_grace_s) + _TEARDOWN,
    )


@asynccontextmanager
async def explorer_serving(
    services: ExplorerServices, *, host: str, port: int, may_move: bool = False
) -> AsyncGenerator[Explorer]:
    """Serve while entered.

    Args:
        services: What it works with; stays open.
        host: Address to listen on.
        port: Port; 0 is any that is free.
        may_move: Take one of the next ports when this one is in use.

    Raises:
        ConflictError: the port is in use.
        ConfigError: there is no such address here.
    """
    listener = _bound(host, port, tries=_TRIED_PORTS if may_move and port else 1)
    app = create_app(services)
    config = uvicorn.Config(
        app,
        log_config=None,
        access_log=False,
        server_header=False,
        proxy_headers=False,
        ws="none",
        lifespan="on",
        timeout_graceful_shutdown=_STOP_S,
    )
    server = _Server(config)
    serving = asyncio.create_task(server.serve(sockets=[listener]))
    try:
        while not server.started:
            if serving.done():
                await serving
                raise ConflictError("the explorer ended before it served; see its log")
            await asyncio.sleep(0.01)
        url = f"http://{_shown(host)}:{listener.getsockname()[1]}/"
        link = url
        if services.access.has_token:
            link = f"{url}enter?key={services.access.one_time_key()}"
        yield Explorer(url, link, app)
    finally:
        await app.state.poller.stop()
        server.should_exit = True
        with contextlib.suppress(Exception):
            await serving
        listener.close()


class _Server(uvicorn.Server):
    """Leaves signals to whoever runs it."""

    @contextlib.contextmanager
    def capture_signals(self) -> Generator[None]:
        yield


def _bound(host: str, port: int, *, tries: int) -> socket.socket:
    busy: OSError | None = None
    for number in range(port, min(port + tries, 65536)):
        try:
            return _listener(host, number)
        except socket.gaierror as error:
            raise ConfigError(
                f"explorer_host: {host!r} is no address of this machine: {error.strerror}"
            ) from None
        except PermissionError as error:
            raise ConfigError(
                f"explorer_port: {number} may not be used by this user: {error.strerror}; use one "
                "over 1023"
            ) from None
        except OSError as error:
            busy = error
    assert busy is not None
    if busy.errno != errno.EADDRINUSE:
        raise ConfigError(f"explorer_host: can't listen on {host}: {busy.strerror}")
    raise ConflictError(
        f"port {port} of {host} is in use; stop what uses it, or name another with "
        "EPISODES_EXPLORER_PORT"
    )


def _listener(host: str, port: int) -> socket.socket:
    family, kind, protocol, _, address = socket.getaddrinfo(
        host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
    )[0]
    listener = socket.socket(family, kind, protocol)
    try:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        listener.bind(address)
        listener.listen(256)
    except BaseException:
        listener.close()
        raise
    listener.setblocking(False)
    return listener


def _shown(host: str) -> str:
    """The address as it stands in a URL; that of every interface is this machine's name."""
    if host in ("0.0.0.0", "::"):
        return socket.gethostname()
    return f"[{host}]" if ":" in host else host
