"""The gate before MLflow's server: nothing passes without the token of the address that `marin ui` printed.

MLflow's server has no login, and a port of this machine is open to every user of it, and to every page that a browser
here has open. So each request, reads too, must name this server in ``Host`` (a page whose name was rebound to this
address names itself there), must not come from another origin, and must bring the token:

    a browser     opens the printed address once, and is led to a room: a path that nobody guesses. It keeps the room's
                  key in a cookie that scripts and other sites do not see
    a client      ``Authorization: Bearer TOKEN``; MLflow's own sends that where MLFLOW_TRACKING_TOKEN is set

A browser sends a cookie to every port of a host, to those of other users of this machine too, but only below the
cookie's path: anyone who serves another port does not know the room and is never sent its key, which is not the token.
Room and key are drawn anew for each server. A cookie is sent by the browser whatever made it ask, so what changes
something by cookie must say that it comes from this server's own pages (``Origin`` or ``Sec-Fetch-Site``).
"""

from __future__ import annotations

import hmac
import ipaddress
import secrets
import urllib.parse
from collections.abc import Awaitable, Callable, Iterable, MutableMapping
from http import HTTPStatus
from typing import Any

Scope = MutableMapping[str, Any]
Receive = Callable[[], Awaitable[MutableMapping[str, Any]]]
Send = Callable[[MutableMapping[str, Any]], Awaitable[None]]
Application = Callable[[Scope, Receive, Send], Awaitable[None]]

COOKIE = "marin-ui"
_SAFE = frozenset({"GET", "HEAD", "OPTIONS"})
_ALWAYS = {b"referrer-policy": b"same-origin", b"x-content-type-options": b"nosniff", b"cache-control": b"no-store"}

_FROM_HERE = (
    b"default-src 'self' 'unsafe-inline' 'unsafe-eval' data: blob:; object-src 'none'; base-uri 'self'; "
    b"form-action 'self'; frame-ancestors 'self'"
)
"""MLflow's own pages hold scripts and styles in line."""


def new_token() -> str:
    """A token that nobody guesses: 256 bits."""
    return secrets.token_hex(32)


class Gate:
    """ASGI middleware before ``inner``, for a server on ``port`` of ``host``."""

    def __init__(self, inner: Application, *, token: str, host: str, port: int) -> None:
        self._inner = inner
        self._token = token
        self._port = port
        self._hosts = {"127.0.0.1", "::1", "localhost", host}
        self._anywhere = _is_address(host) and ipaddress.ip_address(host).is_unspecified
        self._room = f"/{secrets.token_hex(16)}"
        self._key = new_token()

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] == "lifespan":
            await self._inner(scope, receive, send)
        elif scope["type"] != "http":
            await send({"type": "websocket.close", "code": 1008})
        elif (refusal := self._refusal(scope)) is not None:
            await _answer(send, *refusal)
        elif (place := self._opened(scope)) is not None:
            cookie = f"{COOKIE}={self._key}; Path={self._room}/; HttpOnly; SameSite=Strict"
            headers = {b"location": place, b"set-cookie": cookie.encode()}
            await _answer(send, HTTPStatus.SEE_OTHER, "opened", headers)
        else:
            await self._inner(self._outside(scope), receive, _with_headers(send, _sandbox(scope)))

    def _refusal(self, scope: Scope) -> tuple[HTTPStatus, str] | None:
        """Why a request does not pass, as a status and a line; None if it does."""
        headers = _Headers(scope)
        host = headers.one(b"host")
        if not self._names_this(host):
            return (
                HTTPStatus.MISDIRECTED_REQUEST,
                "this server has another name: open the address that marin ui printed",
            )
        origin, site = headers.one(b"origin"), headers.one(b"sec-fetch-site")
        own = f"http://{host}"
        if origin not in (None, own) or site not in (None, "same-origin", "none"):
            # A link from elsewhere may lead here, to be looked at; it brings no cookie (SameSite) and so no further.
            return HTTPStatus.FORBIDDEN, "asked by a page of another origin"
        if self._is_token(_bearer(headers)) or self._is_token(_query_token(scope)):
            return None
        if not (self._in_room(scope) and _same(headers.cookie(COOKIE), self._key)):
            return HTTPStatus.UNAUTHORIZED, (
                "the token is missing: open the address that marin ui printed, or send it as Authorization: Bearer "
                "(MLflow's client: MLFLOW_TRACKING_TOKEN)"
            )
        if scope["method"] not in _SAFE and origin != own and site != "same-origin":
            return HTTPStatus.FORBIDDEN, "a change that does not say that it comes from this server's own pages"
        return None

    def _names_this(self, host: str | None) -> bool:
        try:
            place = urllib.parse.urlsplit(f"//{host}")
            name, port = place.hostname, place.port
        except ValueError:
            return False
        if host is None or name is None or place.username is not None or (port or 80) != self._port:
            return False
        return name in self._hosts or (self._anywhere and _is_address(name))

    def _is_token(self, given: str | None) -> bool:
        return _same(given, self._token)

    def _in_room(self, scope: Scope) -> bool:
        return str(scope["path"]).startswith(f"{self._room}/")

    def _outside(self, scope: Scope) -> Scope:
        """The same request as what stands behind the gate knows it: without the room."""
        if not self._in_room(scope):
            return scope
        raw = scope.get("raw_path")
        shorter = {"raw_path": raw.removeprefix(self._room.encode())} if isinstance(raw, bytes) else {}
        return {**scope, "path": str(scope["path"]).removeprefix(self._room), **shorter}

    def _opened(self, scope: Scope) -> bytes | None:
        """Where to go on, for a browser that opens the printed address: the same in the room, without the token."""
        if scope["method"] not in ("GET", "HEAD") or not self._is_token(_query_token(scope)):
            return None
        rest = [(name, value) for name, value in _query(scope) if name != "token"]
        path = f"{self._room}/" + urllib.parse.quote(str(self._outside(scope)["path"])).lstrip("/")
        return (path + ("?" + urllib.parse.urlencode(rest) if rest else "")).encode()


class _Headers:
    """The headers of a request. One that is given twice counts as given wrongly."""

    def __init__(self, scope: Scope) -> None:
        self._all: list[tuple[bytes, bytes]] = list(scope.get("headers", []))

    def one(self, name: bytes) -> str | None:
        found = [value for key, value in self._all if key.lower() == name]
        return None if not found else found[0].decode("latin-1") if len(found) == 1 else "given twice"

    def cookie(self, name: str) -> str | None:
        for key, value in self._all:
            if key.lower() == b"cookie":
                for part in value.decode("latin-1").split(";"):
                    found, _, content = part.strip().partition("=")
                    if found == name:
                        return content
        return None


def _same(given: str | None, secret: str) -> bool:
    return given is not None and hmac.compare_digest(given.encode("utf-8", "replace"), secret.encode())


def _bearer(headers: _Headers) -> str | None:
    scheme, _, token = (headers.one(b"authorization") or "").partition(" ")
    return token.strip() if scheme.lower() == "bearer" else None


def _query(scope: Scope) -> list[tuple[str, str]]:
    text = bytes(scope.get("query_string", b"")).decode("latin-1")
    try:
        return urllib.parse.parse_qsl(text, keep_blank_values=True, max_num_fields=100)
    except ValueError:
        return []


def _query_token(scope: Scope) -> str | None:
    if scope["method"] not in ("GET", "HEAD"):
        return None
    return next((value for name, value in _query(scope) if name == "token"), None)


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name)
    except ValueError:
        return False
    return True


def _sandbox(scope: Scope) -> dict[bytes, bytes]:
    """What a run brought is shown, and never runs as a page of this server. A page loads from here alone: notes are
    Markdown that anybody may have written, and a picture in one would tell its host who looks at the run."""
    return {b"content-security-policy": b"sandbox" if "artifact" in scope["path"] else _FROM_HERE}


def _with_headers(send: Send, more: dict[bytes, bytes]) -> Send:
    async def sending(message: MutableMapping[str, Any]) -> None:
        if message["type"] == "http.response.start":
            kept: Iterable[tuple[bytes, bytes]] = message.get("headers", [])
            message["headers"] = [*((k, v) for k, v in kept if k.lower() not in more), *more.items()]
        await send(message)

    return sending


async def _answer(send: Send, status: HTTPStatus, line: str, headers: dict[bytes, bytes] | None = None) -> None:
    body = f"{line}\n".encode()
    named = {b"content-type": b"text/plain; charset=utf-8", b"content-length": str(len(body)).encode()}
    if status == HTTPStatus.UNAUTHORIZED:
        named[b"www-authenticate"] = b'Bearer realm="marin ui"'
    all_headers = list((named | _ALWAYS | (headers or {})).items())
    await send({"type": "http.response.start", "status": int(status), "headers": all_headers})
    await send({"type": "http.response.body", "body": body})
