"""The socket: uvicorn over the application, with what one connection may do, and an end that loses nothing.

uvicorn waits for the head of a request as long as the client likes; here a connection that says nothing, or half of something,
is closed after ``HEAD_SECONDS``, and beyond ``MOST_CONNECTIONS`` a new one is answered 503. SIGTERM and Ctrl-C close the
listening socket, finish every request that was taken, and return; a second one ends at once.
"""

from __future__ import annotations

import asyncio
import contextlib
import ipaddress
import socket
from collections.abc import Awaitable, Callable, MutableMapping
from typing import Any
from urllib.parse import urlsplit

import msgspec
import uvicorn
from uvicorn.protocols.http.h11_impl import H11Protocol, RequestResponseCycle

from marin.plugins.serve.app import Served, application
from marin.plugins.serve.wire import Refused
from marin.process.listening import stopping

HEAD_SECONDS = 20.0
IDLE_SECONDS = 60
GRACE_SECONDS = 600
"""How long what was taken may go on after SIGTERM."""
MOST_CONNECTIONS = 512
MOST_HEAD = 64 * 1024

_REASONS = {400: b"Bad Request", 503: b"Service Unavailable"}


def plain_answer(refused: Refused) -> bytes:
    """A refusal as a whole HTTP/1.1 answer, for a connection that speaks no HTTP, or comes in vain."""
    body = msgspec.json.encode(refused.body())
    head = b"HTTP/1.1 %d %s\r\n" % (refused.status, _REASONS[refused.status])
    more = b"" if refused.retry_after is None else b"retry-after: %d\r\n" % refused.retry_after
    return (
        head
        + more
        + b"content-type: application/json\r\ncontent-length: %d\r\nconnection: close\r\n\r\n" % len(body)
        + body
    )


class Connection(H11Protocol):
    """A connection whose requests have to come."""

    _deadline: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Refused where there are too many."""
        super().connection_made(transport)
        if len(self.connections) > MOST_CONNECTIONS:
            transport.write(plain_answer(Refused("too many connections", 503, "server_error", retry_after=5)))
            transport.close()
            return
        self._deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._late)

    def data_received(self, data: bytes) -> None:
        """From the first byte of a request on, its head has to come in time."""
        super().data_received(data)
        if self._between_requests():
            if self._deadline is None and not self.transport.is_closing():
                self._deadline = asyncio.get_running_loop().call_later(HEAD_SECONDS, self._late)
        elif self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None

    def _between_requests(self) -> bool:
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is None or cycle.response_complete

    def _late(self) -> None:
        self._deadline = None
        if self._between_requests():
            self.transport.close()

    def connection_lost(self, exc: Exception | None) -> None:
        """The deadline goes with it."""
        if self._deadline is not None:
            self._deadline.cancel()
        super().connection_lost(exc)

    def send_400_response(self, msg: str) -> None:
        """In OpenAI's shape, as every other refusal."""
        self.transport.write(plain_answer(Refused(msg, 400, code="invalid_http")))
        self.transport.close()


Scope = MutableMapping[str, Any]


class OwnName:
    """ASGI middleware: a request names this machine in ``Host``. A page whose name was rebound to this address, open in a
    browser here, names itself there, and is refused."""

    def __init__(self, inner: Any, host: str) -> None:
        self._inner = inner
        self._names = {"127.0.0.1", "::1", "localhost", host}
        with contextlib.suppress(ValueError):
            if ipaddress.ip_address(host).is_unspecified:
                self._names = set()

    async def __call__(
        self, scope: Scope, receive: Callable[[], Awaitable[Any]], send: Callable[[Any], Awaitable[None]]
    ) -> None:
        if scope["type"] == "http" and self._names:
            named = next((value for name, value in scope["headers"] if name == b"host"), b"").decode("latin-1")
            try:
                known = urlsplit(f"//{named}").hostname in self._names
            except ValueError:
                known = False
            if not known:
                body = msgspec.json.encode(Refused("Host names another server", 421, code="wrong_host").body())
                headers = [(b"content-type", b"application/json"), (b"content-length", str(len(body)).encode())]
                await send({"type": "http.response.start", "status": 421, "headers": headers})
                await send({"type": "http.response.body", "body": body})
                return
        await self._inner(scope, receive, send)


def configuration(listener: socket.socket, served: Served) -> uvicorn.Config:
    """How uvicorn serves."""
    return uvicorn.Config(
        OwnName(application(served), listener.getsockname()[0]),
        http=Connection,
        ws="none",
        lifespan="off",
        log_level="critical",
        access_log=False,
        server_header=False,
        timeout_keep_alive=IDLE_SECONDS,
        timeout_graceful_shutdown=GRACE_SECONDS,
        h11_max_incomplete_event_size=MOST_HEAD,
        backlog=128,
    )


def serve(listener: socket.socket, served: Served, *, announce: Callable[[], None]) -> None:
    """Serve until SIGINT or SIGTERM. Call on the main thread; the engine of ``served`` has begun."""
    server = uvicorn.Server(configuration(listener, served))
    server.capture_signals = contextlib.nullcontext  # type: ignore[assignment,method-assign]  # ours below
    with stopping(server):
        announce()
        server.run(sockets=[listener])
    served.engine.end()
