"""A published root, read over https. Read only.

A server of plain files is enough. Nothing that arrives is believed: whoever reads through this driver
verifies bytes against a signed root or a digest, so that the transport only has to deliver. ``list`` needs an
index that plain servers lack and is refused. Requests are tried three times, for a read can always be
repeated; redirects to other schemes, and from outside into a private network, are not followed.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import socket
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from typing import IO, BinaryIO
from urllib.parse import quote, urlsplit

from ledger.errors import NotFound, Refused, StorageFailed, Unavailable
from ledger.format.budgets import BUDGETS, exceeded
from ledger.storage.port import Detail, check_name
from ledger.storage.readonly import ReadOnly

_TIMEOUT_SECONDS = 30.0
_ATTEMPTS = 3
_MISSING = {404, 410}
_CHUNK = 1 << 20


class HttpsStorage(ReadOnly):
    """The files below an address. Plain http is taken from the loopback interface only. ``pause``: seconds before a
    second try of what may pass; before the third it is twice as long."""

    def __init__(self, address: str, *, pause: float = 0.2) -> None:
        parts = urlsplit(address)
        local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
        if parts.scheme != "https" and not local:
            raise Refused(
                "not an address to read from", where=address, expected="https://", cure="publish it over https"
            )
        self.address = address.rstrip("/")
        self._pause = pause

    def read(self, name: str) -> bytes:
        return self._request(name, lambda reply: _body(reply, name, BUDGETS.of_file(name)))

    def read_range(self, name: str, start: int, length: int) -> bytes:
        if length <= 0:
            return b""
        try:
            return self._request(
                name,
                lambda reply: (
                    _body(reply, name, length)
                    if reply.status == 206
                    else _body(reply, name, BUDGETS.of_file(name))[start : start + length]
                ),
                {"Range": f"bytes={start}-{start + length - 1}"},
            )
        except _BeyondTheEnd:
            return b""

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self.read(name))

    def size(self, name: str) -> int:
        length = self._request(name, lambda reply: reply.headers.get("Content-Length"), method="HEAD")
        return int(length) if length is not None else len(self.read(name))

    def exists(self, name: str) -> bool:
        try:
            self._request(name, lambda reply: reply.status, method="HEAD")
        except NotFound:
            return False
        return True

    def list(self, prefix: str = "") -> Iterator[str]:
        raise Unavailable(
            "a published root cannot be listed",
            where=f"{self.address}/{prefix}",
            cure="read it by name, or copy it first",
        )

    def details(self, prefix: str = "") -> Iterator[Detail]:
        yield from (Detail(name, self.size(name), 0.0) for name in self.list(prefix))

    def _request[T](
        self,
        name: str,
        take: Callable[[http.client.HTTPResponse], T],
        headers: dict[str, str] | None = None,
        method: str = "GET",
    ) -> T:
        address = f"{self.address}/{quote(check_name(name))}"
        request = urllib.request.Request(address, headers=headers or {}, method=method)  # noqa: S310 - checked above
        for attempt in range(1, _ATTEMPTS + 1):
            try:
                with _OPENER.open(request, timeout=_TIMEOUT_SECONDS) as reply:
                    return take(reply)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code in _MISSING:
                    raise NotFound("no such file", where=address, found=f"status {error.code}") from error
                if error.code == 416:
                    raise _BeyondTheEnd("no such range", where=address) from error
                if error.code < 500 or attempt == _ATTEMPTS:
                    raise _failed(address, f"status {error.code}") from error
            except (OSError, http.client.HTTPException) as error:
                if attempt == _ATTEMPTS:
                    raise _failed(address, str(error)) from error
            time.sleep(self._pause * attempt)
        raise AssertionError("unreachable")


def _body(reply: http.client.HTTPResponse, name: str, most: int) -> bytes:
    """What a server sends, as far as it may: no more than ``most`` bytes, and not for ever."""
    began, parts, size = time.monotonic(), [], 0
    while part := reply.read1(_CHUNK):
        parts.append(part)
        size += len(part)
        if size > most:
            raise exceeded("a server sends more than a file has", name, f"{most} bytes", f"more than {size - 1}")
        seconds = time.monotonic() - began
        if seconds > BUDGETS.stall_seconds + size / BUDGETS.bytes_per_second:
            raise _failed(name, f"{size} bytes in {seconds:.0f} s")
    if reply.length:
        raise http.client.IncompleteRead(b"", reply.length)
    return b"".join(parts)


class _BeyondTheEnd(StorageFailed):
    """The range begins behind the last byte."""


class _Onwards(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        first, there = urlsplit(req.full_url), urlsplit(newurl)
        if there.scheme != first.scheme:
            return None
        if there.hostname != first.hostname and _is_private(there.hostname) and not _is_private(first.hostname):
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_Onwards)


def _is_private(host: str | None) -> bool:
    """Whether a name leads to this machine or its own network. One that leads nowhere does not."""
    try:
        found = {str(item[4][0]).partition("%")[0] for item in socket.getaddrinfo(host or "", None)}
    except (OSError, UnicodeError):
        return False
    return any(not ipaddress.ip_address(address).is_global for address in found)


class Unreachable(StorageFailed, Unavailable):
    """No answer, an error of the server, or one that is not to be trusted: it says nothing about what is published."""


def _failed(address: str, found: str) -> Unreachable:
    return Unreachable(
        "could not read a published file", where=address, found=found, cure="check the address, then repeat"
    )
