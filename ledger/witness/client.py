"""One request to a server of someone else, and its answer. The whole answer has one deadline: a byte now and then buys no time.

A timeout of a socket is that of one read, so a server that drips holds anyone who asks for as long as it likes. Here the
head and the body of an answer must be read within the same seconds (``post``).
"""

from __future__ import annotations

import http.client
import io
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Buffer, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import urlsplit

from ledger.errors import LedgerError, Malformed, Refused, Unavailable
from ledger.format.note import NoteSignature, parse_note

ANSWER_SECONDS = 30.0
_MAX_ANSWER = 1 << 20


@dataclass(frozen=True)
class WitnessAnswer:
    """Status, content type and body, as the protocols of witnesses and mirrors have them."""

    status: int
    body: bytes
    content_type: str = "text/plain; charset=utf-8"


def error_answer(status: int, error: LedgerError) -> WitnessAnswer:
    """An error as an answer: one line of text."""
    return WitnessAnswer(status, f"{error}\n".encode())


def signature_lines(body: bytes) -> tuple[NoteSignature, ...]:
    """The signature lines that an answer consists of; ``Malformed`` if it does not."""
    note = parse_note(b"-\n\n" + body)
    if note.text != "-\n":
        raise Malformed("not an answer of signature lines", found=repr(note.text[2:80]))
    return note.signatures


def ask(
    address: str, body: bytes | None, headers: Mapping[str, str] | None = None, *, seconds: float = ANSWER_SECONDS
) -> tuple[int, bytes]:
    """Status and body of the answer of a witness or a mirror; without a ``body`` it is a GET.

    Raises:
        Refused: ``address`` is not one of https or http.
        Unavailable: nothing answers there, or not in time.
    """
    if urlsplit(address).scheme not in ("https", "http"):
        raise Refused("not the address of a witness", where=address, expected="https://")
    try:
        return post(address, body, headers, most=_MAX_ANSWER, seconds=seconds)
    except (OSError, http.client.HTTPException) as error:
        raise Unavailable("a witness cannot be reached", where=address, found=str(error)) from error


def post(
    address: str,
    body: bytes | None,
    headers: Mapping[str, str] | None = None,
    *,
    most: int,
    seconds: float = ANSWER_SECONDS,
) -> tuple[int, bytes]:
    """Status and body of the answer, of any status; of a longer body the first ``most`` bytes. Without a body it is a GET.

    The caller has checked the scheme of the address. Connecting, and then the answer, take ``seconds`` each at most, for
    every address of the host and every redirect again. Raises ``OSError`` (``TimeoutError`` where it took longer) or
    ``http.client.HTTPException``.
    """
    method = "GET" if body is None else "POST"
    request = urllib.request.Request(address, data=body, headers=dict(headers or {}), method=method)  # noqa: S310
    try:
        with urllib.request.build_opener(_Http, _Https).open(request, timeout=seconds) as reply:
            return int(reply.status), bytes(reply.read(most))
    except urllib.error.HTTPError as error:
        with error:
            return error.code, bytes(error.read(most))


class _TimelyResponse(http.client.HTTPResponse):
    """An answer that is read within the timeout of its connection, from its first byte to its last."""

    def __init__(self, sock: socket.socket, *args: Any, **kwargs: Any) -> None:
        super().__init__(sock, *args, **kwargs)
        self.fp = io.BufferedReader(_Prompt(sock, self.fp))


class _Prompt(io.RawIOBase):
    """The bytes of ``stream``, which reads from the socket, for as long as the socket's timeout from now."""

    def __init__(self, sock: socket.socket, stream: io.BufferedReader) -> None:
        super().__init__()
        self._socket = sock
        self._stream = stream
        timeout = sock.gettimeout()
        assert timeout is not None  # post gives one
        self._until = time.monotonic() + timeout

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        left = self._until - time.monotonic()
        if left <= 0:
            raise TimeoutError("the answer took too long")
        self._socket.settimeout(left)
        return self._stream.readinto1(buffer)

    def close(self) -> None:
        self._stream.close()  # the socket lives as long
        super().close()


class _Connection(http.client.HTTPConnection):
    response_class = _TimelyResponse


class _SecureConnection(http.client.HTTPSConnection):
    response_class = _TimelyResponse


class _Http(urllib.request.HTTPHandler):
    def http_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_Connection, req)


class _Https(urllib.request.HTTPSHandler):
    def https_open(self, req: urllib.request.Request) -> http.client.HTTPResponse:
        return self.do_open(_SecureConnection, req)
