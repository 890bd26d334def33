"""Who may use the explorer, and from where: hosts, tokens, and what a change must carry.

Two attacks are meant. A page of another site, open in the same browser, can send requests here:
it can't set a header of ours, and its requests carry its origin. A name of another site can be made
to lead here (DNS rebinding): its requests carry that name as their host.
"""

from __future__ import annotations

import hashlib
import hmac
import ipaddress
import re
import secrets
import socket
import time
from collections.abc import Awaitable, Callable, Iterable
from urllib.parse import quote

from starlette.datastructures import Headers, MutableHeaders
from starlette.requests import Request
from starlette.responses import RedirectResponse, Response
from starlette.types import ASGIApp, Message, Receive, Scope, Send

CHANGE_HEADER = "x-episodes"
CHANGE_VALUE = "explorer"
COOKIE = "episodes_explorer"
LEAST_TOKEN_CHARS = 16
MOST_BODY_BYTES = 64 * 1024
_KEY_LIVES_S = 600.0
_READS = frozenset({"GET", "HEAD"})
_OPEN_PATHS = ("/static/", "/enter")
_HOST = re.compile(r"(?:\[(?P<address>[0-9a-fA-F:.]+)\]|(?P<name>[\w.-]+))(?::[0-9]{1,5})?")
_LOOPBACK_NAMES = frozenset({"localhost", "localhost.localdomain"})

HEADERS = {
    "content-security-policy": (
        "default-src 'self'; base-uri 'none'; form-action 'self'; frame-ancestors 'none'; "
        "object-src 'none'"
    ),
    "x-content-type-options": "nosniff",
    "x-frame-options": "DENY",
    "referrer-policy": "no-referrer",
    "cross-origin-opener-policy": "same-origin",
    "cross-origin-resource-policy": "same-origin",
    "permissions-policy": "camera=(), geolocation=(), microphone=()",
}

Refuse = Callable[[Request, int, str, str], Response]
"""Makes the answer to a request that is refused: its status, a title and what to do."""


def is_loopback(host: str) -> bool:
    """Whether only this machine can reach an address."""
    if host.lower() in _LOOPBACK_NAMES:
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:
        return False


class Access:
    """What is let in.

    Args:
        token: Who has it may come in; None lets everybody in who can reach the address.
        names: Under which browsers reach this, beside addresses, localhost and this machine's name.
        read_only: Nothing may be changed.
    """

    def __init__(self, *, token: str | None, names: Iterable[str] = (), read_only: bool = False):
        self._token = token
        machine = socket.gethostname().lower()
        self._names = {name.lower() for name in names} | {machine} | _LOOPBACK_NAMES
        self._keys: dict[str, float] = {}
        self.read_only = read_only

    @property
    def has_token(self) -> bool:
        """Whether a token is asked for."""
        return self._token is not None

    def one_time_key(self) -> str:
        """A key that lets one browser in, once, within ten minutes."""
        key = secrets.token_urlsafe(24)
        self._keys[key] = time.monotonic() + _KEY_LIVES_S
        return key

    def redeem(self, key: str) -> bool:
        """Use up a key. False if it was used before, is too old or was never given."""
        until = self._keys.pop(key, None)
        return until is not None and time.monotonic() <= until

    def is_token(self, given: str) -> bool:
        """Whether this is the token."""
        return self._token is not None and _same(given, self._token)

    @property
    def cookie(self) -> str:
        """What a browser keeps in place of the token."""
        assert self._token is not None
        return hmac.new(self._token.encode(), b"explorer cookie", hashlib.sha256).hexdigest()

    def lets_in(self, request: Request) -> bool:
        """Whether a request carries the token or the cookie, if one is asked for."""
        if self._token is None:
            return True
        scheme, _, given = request.headers.get("authorization", "").partition(" ")
        if scheme.lower() == "bearer" and self.is_token(given.strip()):
            return True
        return _same(request.cookies.get(COOKIE, ""), self.cookie)

    def is_host(self, header: str) -> bool:
        """Whether a request that names this host was meant for us.

        An address always was: no name had to be looked up for it.
        """
        found = _HOST.fullmatch(header)
        if found is None:
            return False
        try:
            ipaddress.ip_address(found["address"] or found["name"])
        except ValueError:
            return (found["name"] or "").lower().rstrip(".") in self._names
        return True


class Guard:
    """ASGI middleware: refuses what may not be, and puts the same headers on every answer."""

    def __init__(self, app: ASGIApp, *, access: Access, refuse: Refuse) -> None:
        self._app = app
        self._access = access
        self._refuse = refuse

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """Handle one request."""
        if scope["type"] != "http":
            if scope["type"] == "lifespan":
                await self._app(scope, receive, send)
            return
        is_static = scope["path"].startswith("/static/")
        protected = _with_headers(send, is_static=is_static)
        answer = self._refusal(Request(scope))
        if answer is not None:
            await answer(scope, receive, protected)
            return
        if scope["method"] == "HEAD" and not is_static and scope["path"] != "/live":
            # Pages know GET only. The server leaves the body out.
            scope = {**scope, "method": "GET"}
        await self._app(scope, receive, protected)

    def _refusal(self, request: Request) -> Response | None:
        access, path = self._access, request.url.path
        host = request.headers.getlist("host")
        if len(host) != 1 or not access.is_host(host[0]):
            return self._refuse(
                request,
                421,
                "Not a name of this explorer",
                f"the host {', '.join(host)[:200]!r} is not known here; if it should be, name it "
                "in EPISODES_EXPLORER_NAMES",
            )
        is_open = path.startswith(_OPEN_PATHS)
        if not is_open and not access.lets_in(request):
            if request.method == "GET" and "text/html" in request.headers.get("accept", ""):
                there = path + (f"?{request.url.query}" if request.url.query else "")
                return RedirectResponse(f"/enter?to={quote(there, safe='')}", status_code=303)
            answer = self._refuse(
                request,
                401,
                "A token is needed",
                "send it as `Authorization: Bearer TOKEN`, or open the link that `episodes "
                "explorer` prints",
            )
            answer.headers["www-authenticate"] = "Bearer"
            return answer
        return None if request.method in _READS else self._change_refusal(request)

    def _change_refusal(self, request: Request) -> Response | None:
        if not is_same_origin(request.headers):
            return self._refuse(
                request,
                403,
                "From another site",
                "a change must come from the explorer's own pages",
            )
        if request.url.path != "/enter":
            if request.headers.get(CHANGE_HEADER) != CHANGE_VALUE:
                return self._refuse(
                    request,
                    403,
                    "A header is missing",
                    f"a change carries the header `{CHANGE_HEADER}: {CHANGE_VALUE}`",
                )
            if self._access.read_only:
                return self._refuse(
                    request, 403, "Read-only", "this explorer only shows; change runs elsewhere"
                )
        length = request.headers.get("content-length", "")
        # Without a length nobody knows how much comes; browsers and curl always send one.
        if not length.isdecimal() or int(length[:20]) > MOST_BODY_BYTES:
            return self._refuse(
                request,
                413 if length.isdecimal() else 411,
                "Too large",
                f"a change has a content-length of at most {MOST_BODY_BYTES} bytes",
            )
        return None


def is_same_origin(headers: Headers) -> bool:
    """Whether a change was sent by our own page, or by no page at all."""
    origin = headers.get("origin")
    if origin is not None:
        scheme, _, host = origin.partition("://")
        return scheme in ("http", "https") and host.lower() == headers.get("host", "").lower()
    return headers.get("sec-fetch-site", "none") in ("same-origin", "none")


def signed_in(access: Access, to: str, *, is_secure: bool) -> Response:
    """The answer to a browser that has shown the token: a cookie, and on to where it wanted."""
    response = RedirectResponse(local_path(to), status_code=303)
    response.set_cookie(
        COOKIE,
        access.cookie,
        max_age=30 * 86_400,
        httponly=True,
        samesite="strict",
        secure=is_secure,
    )
    return response


def local_path(to: str) -> str:
    """The path, if it is one of this server; else the first page."""
    is_ours = to.startswith("/") and not to.startswith(("//", "/\\")) and to.isprintable()
    return quote(to, safe="/?&=%~:;,+*'()!$@-._") if is_ours else "/"


def _with_headers(send: Send, *, is_static: bool) -> Callable[[Message], Awaitable[None]]:
    async def sending(message: Message) -> None:
        if message["type"] == "http.response.start":
            headers = MutableHeaders(scope=message)
            for name, value in HEADERS.items():
                headers[name] = value
            if not is_static:
                headers["cache-control"] = "no-store"
        await send(message)

    return sending


def _same(given: str, wanted: str) -> bool:
    return hmac.compare_digest(given.encode("utf-8", "replace"), wanted.encode())
