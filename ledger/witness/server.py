"""The HTTP around a witness or a mirror (C2SP tlog-witness, tlog-mirror): one request per connection, said at once.

It is asked by anybody, so it counts on clients that begin a request and stop, send a body a byte at a time,
claim a large one, or come in thousands. Each has one deadline for the whole request, one bound of bytes, and a seat
that the next one takes when all are taken (``ledger.service.lobby``); the rest are answered meanwhile. The entries that
a mirror is sent are a long body: few may send one at a time, and each piece of it has a deadline of its own.
"""

from __future__ import annotations

import http.server
import io
import logging
import re
import socket
import threading
from collections.abc import Callable, Mapping
from contextlib import suppress
from http import HTTPStatus
from typing import Any, Protocol

from ledger.errors import LedgerError, Malformed, NotFound, Unavailable
from ledger.service.lobby import Lobby, PromptReader
from ledger.witness.client import WitnessAnswer, error_answer
from ledger.witness.upload import Body, Upload

_LOG = logging.getLogger(__name__)
MAX_BODY = 1 << 18
"""Bytes of a request's body: a proof of 63 hashes and a checkpoint with seventy post-quantum signatures."""
_MAX_HEAD = 1 << 14
_ENDS_WITHIN = 0.1
"""Seconds after which it looks whether it shall end."""
_SEATS = 64
_DECIDING = 32
"""How many requests may be read whole and not be answered yet."""
_REQUEST_SECONDS = 10.0
_ANSWER_SECONDS = 10.0
_UPLOADS = 4
"""How many may send a long body at the same time. The next one takes the place of the address that has most of them."""
_MAX_PIECE = 1 << 25
"""Bytes on the wire of a piece of a long body: 256 entries of 65,535 bytes, and their proof."""
_LINGER_SECONDS = 2.0
_MAX_LINGER = 1 << 26
_LENGTH = re.compile(r"[0-9]{1,7}")
_LONG_LENGTH = re.compile(r"[0-9]{1,12}")


class Served(Protocol):
    """What a server is put around: ``Witness``, or ``ledger.mirror.mirror.LogMirror``."""

    @property
    def posts(self) -> Mapping[str, Callable[[bytes], WitnessAnswer]]:
        """What is asked with a body that is read whole, by path."""

    @property
    def uploads(self) -> Mapping[str, Callable[[Upload], WitnessAnswer]]:
        """What is sent piece by piece, by path."""

    def page(self, path: str) -> WitnessAnswer | None:
        """The answer to ``GET path``; None where there is no such page."""


class WitnessServer:
    """A witness or a mirror over HTTP. Use it as a context manager."""

    def __init__(
        self,
        witness: Served,
        *,
        host: str = "127.0.0.1",
        port: int = 0,
        seats: int = _SEATS,
        request_seconds: float = _REQUEST_SECONDS,
    ) -> None:
        """Listen. At most ``seats`` requests are being read at a time, each for ``request_seconds`` at most."""
        self._lobby = Lobby(seats=seats, inside=_DECIDING)
        uploading = Lobby(seats=_UPLOADS, inside=0)
        self._uploading = uploading
        settings = {"served": witness, "lobby": self._lobby, "request_seconds": request_seconds, "uploading": uploading}
        handler = type("Handler", (_Handler,), settings)
        self._server = _Server((host, port), handler, self._lobby)
        self.address = f"http://{host}:{self._server.server_port}"
        self._thread = threading.Thread(
            target=self._server.serve_forever, kwargs={"poll_interval": _ENDS_WITHIN}, name="witness", daemon=True
        )

    def __enter__(self) -> WitnessServer:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._lobby.close()
        self._uploading.close()
        self._server.shutdown()
        self._thread.join()
        self._server.server_close()


class _Server(http.server.ThreadingHTTPServer):
    daemon_threads = True
    request_queue_size = 128

    def __init__(self, address: tuple[str, int], handler: type[_Handler], lobby: Lobby) -> None:
        super().__init__(address, handler)
        self._lobby = lobby

    def server_bind(self) -> None:
        # Not HTTPServer's, which asks the resolver for the name of the address.
        super(http.server.HTTPServer, self).server_bind()
        self.server_name, self.server_port = self.server_address[:2]  # type: ignore[assignment]

    def process_request(self, request: Any, client_address: Any) -> None:
        if self._lobby.enter(request, str(client_address[0])):
            super().process_request(request, client_address)
        else:
            self.shutdown_request(request)

    def shutdown_request(self, request: Any) -> None:
        super().shutdown_request(request)
        self._lobby.leave(request)

    def handle_error(self, request: Any, client_address: Any) -> None:
        _LOG.info("a request ended", exc_info=True)


class _Handler(http.server.BaseHTTPRequestHandler):
    served: Served
    lobby: Lobby
    uploading: Lobby
    request_seconds: float
    connection: socket.socket
    protocol_version = "HTTP/1.1"
    error_content_type = "text/plain; charset=utf-8"
    error_message_format = "%(message)s\n"

    def setup(self) -> None:
        super().setup()
        self.rfile.close()
        self.reader = PromptReader(self.connection, seconds=self.request_seconds, limit=_MAX_HEAD + MAX_BODY)
        self.rfile = io.BufferedReader(self.reader)

    def handle(self) -> None:
        with suppress(OSError):  # too slow, gone, or sent away for another
            self.handle_one_request()

    def do_POST(self) -> None:
        if self.path in self.served.uploads:
            self._upload(self.served.uploads[self.path])
            return
        if self.path not in self.served.posts:
            self._wrong_place("POST")
            return
        length = self.headers.get("Content-Length", "")
        if not _LENGTH.fullmatch(length) or "Transfer-Encoding" in self.headers:
            self._send(error_answer(HTTPStatus.LENGTH_REQUIRED, Malformed("a request without its length")))
            return
        if int(length) > MAX_BODY:
            found = Malformed("too long for a request", expected=f"at most {MAX_BODY} bytes", found=length)
            self._send(error_answer(HTTPStatus.REQUEST_ENTITY_TOO_LARGE, found))
            return
        body = self.rfile.read(int(length))
        if not self.lobby.admit(self.connection):
            self._send(
                error_answer(HTTPStatus.SERVICE_UNAVAILABLE, Unavailable("too many ask at once", cure="ask again"))
            )
            return
        try:
            answer = self.served.posts[self.path](body)
        except LedgerError as error:
            answer = error_answer(HTTPStatus.INTERNAL_SERVER_ERROR, error)
        self._send(answer)

    def _upload(self, endpoint: Callable[[Upload], WitnessAnswer]) -> None:
        """A long body: the endpoint reads it, piece by piece, and may answer before its end."""
        length, coding = (
            self.headers.get("Content-Length", ""),
            self.headers.get("Content-Encoding", "identity").lower(),
        )
        chunked = self.headers.get("Transfer-Encoding", "").lower() == "chunked"
        if chunked == ("Content-Length" in self.headers) or not (chunked or _LONG_LENGTH.fullmatch(length)):
            self._send(error_answer(HTTPStatus.LENGTH_REQUIRED, Malformed("a body that does not say where it ends")))
            return
        if coding not in ("identity", "gzip", "x-gzip"):
            found = Malformed("a body in a coding that is not known here", expected="gzip", found=coding[:40])
            self._send(error_answer(HTTPStatus.UNSUPPORTED_MEDIA_TYPE, found))
            return
        if not self.uploading.enter(self.connection, str(self.client_address[0])):
            return
        try:
            if not self.lobby.admit(self.connection):
                self._send(
                    error_answer(HTTPStatus.SERVICE_UNAVAILABLE, Unavailable("too many ask at once", cure="ask again"))
                )
                return
            body = Body(
                self.rfile,  # type: ignore[arg-type]
                length=None if chunked else int(length),
                zipped=coding != "identity",
                piece=lambda: self.reader.allow(seconds=self.request_seconds, limit=_MAX_PIECE),
            )
            try:
                answer = endpoint(body)
            except LedgerError as error:
                answer = error_answer(HTTPStatus.INTERNAL_SERVER_ERROR, error)
            self._send(answer)
            self._linger()
        finally:
            self.uploading.leave(self.connection)

    def _linger(self) -> None:
        """Read on for a moment: a connection that is closed on what it was sent loses the answer on its way."""
        with suppress(OSError):
            self.wfile.flush()
            self.connection.shutdown(socket.SHUT_WR)
            self.reader.allow(seconds=_LINGER_SECONDS, limit=_MAX_LINGER)
            while self.rfile.read(1 << 16):
                pass

    def do_GET(self) -> None:
        try:
            answer = self.served.page(self.path)
        except LedgerError as error:
            answer = error_answer(HTTPStatus.INTERNAL_SERVER_ERROR, error)
        if answer is None:
            self._wrong_place("GET")
        else:
            self._send(answer)

    def send_error(self, code: int, message: str | None = None, explain: str | None = None) -> None:
        """As http.server's, in one line; a method that nothing here has is not allowed, rather than unheard of."""
        if code == HTTPStatus.NOT_IMPLEMENTED:
            self._wrong_place("")
        else:
            self._send(
                error_answer(code, Malformed("not a request to a witness", found=message or HTTPStatus(code).phrase))
            )

    def log_message(self, format: str, *args: object) -> None:
        _LOG.debug(format, *args)

    def _wrong_place(self, method: str) -> None:
        """404, or 405 where there is something that is asked for in another way."""
        posted = self.path in self.served.posts or self.path in self.served.uploads
        allowed = "POST" if posted else "GET" if self.served.page(self.path) is not None else ""
        if allowed and allowed != method:
            self._send(
                error_answer(HTTPStatus.METHOD_NOT_ALLOWED, Malformed("not asked in this way", expected=allowed)),
                allowed,
            )
        else:
            self._send(error_answer(HTTPStatus.NOT_FOUND, NotFound("no such page")))

    def _send(self, answer: WitnessAnswer, allowed: str = "") -> None:
        self.close_connection = True
        self.connection.settimeout(_ANSWER_SECONDS)
        self.send_response(answer.status)
        self.send_header("Content-Type", answer.content_type)
        self.send_header("Content-Length", str(len(answer.body)))
        if allowed:
            self.send_header("Allow", allowed)
        if self.path in self.served.uploads:
            self.send_header("Accept-Encoding", "gzip")
        self.send_header("Connection", "close")
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(answer.body)
