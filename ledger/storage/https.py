"""A published root, read over https. Read only.

A server of plain files is enough. Nothing that arrives is believed: anyone who reads through this driver
verifies bytes against a signed root or a digest, so that the transport only has to deliver. ``list`` needs an
index that plain servers lack and is refused. Requests are tried three times, for a read can always be
repeated; redirects to other schemes, and from outside into a private network, are not followed. A request has an end,
in time and in bytes, whatever the server sends: before the headers, in them, in the body or after it.
"""

from __future__ import annotations

import http.client
import io
import ipaddress
import socket
import ssl
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from functools import cache, partial
from typing import IO, Any, BinaryIO
from urllib.parse import quote, urlsplit

from ledger.errors import NotFound, Refused, StorageFailed, Unavailable
from ledger.format.budgets import BUDGETS, exceeded
from ledger.storage.port import Detail, check_name
from ledger.storage.ranges import open_by_ranges
from ledger.storage.readonly import ReadOnly

_TIMEOUT_SECONDS = 30.0
_ATTEMPTS = 3
_MISSING = {404, 410}
_CHUNK = 1 << 20
_AROUND = 1 << 20
"""Bytes that a server may send around those of a file: headers, the frames of its chunks."""
_MOST_DIGITS = 18


def open_https(address: str, *, readonly: bool = True) -> HttpsStorage:
    """The files below an address; there is no writing them."""
    return HttpsStorage(address)


class HttpsStorage(ReadOnly):
    """The files below an address. Plain http is taken from the loopback interface only. ``pause``: seconds before a
    second try of what may pass; before the third it is twice as long."""

    def __init__(self, address: str, *, pause: float = 0.2) -> None:
        parts = urlsplit(address)
        local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
        if parts.scheme != "https" and not local:
            raise Refused(
                "not an address to read from",
                where=address,
                expected="https://, or http:// of localhost, 127.0.0.1 or [::1]",
                cure="publish it over https",
            )
        self.address = address.rstrip("/")
        self._pause = pause

    def read(self, name: str) -> bytes:
        most = min(BUDGETS.of_file(name), BUDGETS.fetched)
        return self._request(name, lambda reply: _body(reply, name, most), most)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        if length <= 0:
            return b""
        most = min(length, BUDGETS.fetched)
        try:
            return self._request(
                name,
                lambda reply: _range(reply, name, start, min(length, most)),
                start + most,
                {"Range": f"bytes={start}-{start + length - 1}"},
            )
        except _BeyondTheEnd:
            return b""

    def open(self, name: str) -> BinaryIO:
        return open_by_ranges(self, name)

    def size(self, name: str) -> int:
        length = self._request(name, lambda reply: reply.headers.get("Content-Length"), method="HEAD")
        if length is None:
            return len(self.read(name))
        if not (str(length).isascii() and str(length).isdigit() and len(str(length)) <= _MOST_DIGITS):
            raise _failed(f"{self.address}/{name}", f"a Content-Length of {str(length)[:40]!r}")
        return int(length)

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
        most: int = 0,
        headers: dict[str, str] | None = None,
        method: str = "GET",
    ) -> T:
        """What ``take`` makes of the reply, whose body may have ``most`` bytes."""
        address = f"{self.address}/{quote(check_name(name))}"
        for attempt in range(1, _ATTEMPTS + 1):
            request = _Request(address, headers or {}, method, _Patience(name, 2 * most + _AROUND))
            try:
                with _opener().open(request, timeout=_TIMEOUT_SECONDS) as reply:
                    return take(reply)
            except urllib.error.HTTPError as error:
                error.close()
                if error.code in _MISSING:
                    raise NotFound("no such file", where=address, found=f"status {error.code}") from error
                if error.code == 416 and "Range" in request.headers:
                    raise _BeyondTheEnd("no such range", where=address) from error
                if error.code < 500 or attempt == _ATTEMPTS:
                    raise _failed(address, f"status {error.code}") from error
            except (OSError, http.client.HTTPException) as error:
                if attempt == _ATTEMPTS:
                    raise _failed(address, str(error)) from error
            except ValueError as error:  # not an address to go on to
                raise _failed(address, str(error)) from error
            time.sleep(self._pause * attempt)
        raise AssertionError("unreachable")


def _body(reply: http.client.HTTPResponse, name: str, most: int) -> bytes:
    """What a server sends, as far as it may: no more than ``most`` bytes."""
    found = io.BytesIO()
    while part := reply.read1(_CHUNK):
        found.write(part)
        if found.tell() > most:
            raise exceeded("a server sends more than a file has", name, f"{most} bytes", f"more than {most}")
    if reply.length:
        raise http.client.IncompleteRead(b"", reply.length)
    return found.getvalue()


def _range(reply: http.client.HTTPResponse, name: str, start: int, length: int) -> bytes:
    if reply.status != 206:
        return _part_of_body(reply, start, length)
    given = str(reply.headers.get("Content-Range", ""))
    if not given.startswith(f"bytes {start}-"):
        raise _failed(name, f"the range {given[:40]!r} for one from byte {start}")
    return _body(reply, name, length)


def _part_of_body(reply: http.client.HTTPResponse, start: int, length: int) -> bytes:
    """Some bytes of a whole file, from a server that gives no ranges; what follows them is not waited for."""
    found, at = io.BytesIO(), 0
    while at < start + length and (part := reply.read1(min(_CHUNK, start + length - at))):
        found.write(part[max(0, start - at) :])
        at += len(part)
    if at < start + length and reply.length:
        raise http.client.IncompleteRead(b"", reply.length)
    return found.getvalue()


class _BeyondTheEnd(StorageFailed):
    """The range begins behind the last byte."""


class _Patience:
    """What one request may take of time and of bytes, over all redirects, until its reply is closed."""

    def __init__(self, name: str, most: int) -> None:
        self._name, self._most = name, most
        self._began, self._arrived = time.monotonic(), 0

    def check(self) -> None:
        """Raises:
        Malformed: the server sends more than it may.
        Unreachable: it takes longer than it may."""
        if self._arrived > self._most:
            raise exceeded("a server sends more than a file has", self._name, f"{self._most} bytes", self._arrived)
        seconds = time.monotonic() - self._began
        if seconds > BUDGETS.stall_seconds + self._arrived / BUDGETS.bytes_per_second:
            raise _failed(self._name, f"{self._arrived} bytes in {seconds:.0f} s")

    def took(self, size: int) -> None:
        """So many bytes arrived."""
        self._arrived += size


class _Measured(io.RawIOBase):
    """A connection's bytes, as far as patience reaches. All of a reply passes here: a status line that never ends too."""

    def __init__(self, raw: io.RawIOBase, patience: _Patience) -> None:
        super().__init__()
        self._raw, self._patience = raw, patience

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Any, /) -> int | None:
        self._patience.check()
        size = self._raw.readinto(buffer)
        self._patience.took(size or 0)
        return size

    def close(self) -> None:
        self._raw.close()
        super().close()


class _Response(http.client.HTTPResponse):
    def __init__(self, patience: _Patience, sock: socket.socket, method: str | None = None, **options: Any) -> None:
        super().__init__(sock, method=method, **options)
        self.fp = io.BufferedReader(_Measured(self.fp.detach(), patience))


class _Request(urllib.request.Request):
    def __init__(self, address: str, headers: dict[str, str], method: str, patience: _Patience) -> None:
        super().__init__(address, headers=headers, method=method)
        self.patience = patience

    def connection(self, kind: type[http.client.HTTPConnection], host: str, **options: Any) -> Any:
        """A connection of this kind whose replies are measured."""
        made = kind(host, **options)
        made._create_connection = partial(_connected, self.patience)  # type: ignore[attr-defined]  # there is no public one
        made.response_class = partial(_Response, self.patience)  # type: ignore[assignment]
        return made


def _connected(patience: _Patience, address: tuple[str, int], timeout: float, source: Any = None) -> socket.socket:
    """A connection to one of the addresses of a host: of a name with a thousand of them, as many as patience reaches."""
    failed = OSError(f"no address of {address[0]}")
    for *_, place in socket.getaddrinfo(*address, type=socket.SOCK_STREAM):
        patience.check()
        try:
            return socket.create_connection((str(place[0]), int(place[1])), timeout, source)
        except OSError as error:
            failed = error
    raise failed


class _Plain(urllib.request.HTTPHandler):
    def http_open(self, req: Any) -> Any:
        return self.do_open(partial(req.connection, http.client.HTTPConnection), req)


class _Secure(urllib.request.HTTPSHandler):
    def __init__(self) -> None:
        self._trusted = ssl.create_default_context()
        super().__init__(context=self._trusted)

    def https_open(self, req: Any) -> Any:
        return self.do_open(partial(req.connection, http.client.HTTPSConnection), req, context=self._trusted)


class Onwards(urllib.request.HTTPRedirectHandler):
    """Follows a redirect under the same scheme, and none from a public host to a private one."""

    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        """The request to follow with; None where it is not followed."""
        fp.close()  # or urllib would read the page that comes with a redirect, into memory
        first, there = urlsplit(req.full_url), urlsplit(newurl)
        if there.scheme != first.scheme:
            return None
        if there.hostname != first.hostname and _is_private(there.hostname) and not _is_private(first.hostname):
            return None
        onwards = super().redirect_request(req, fp, code, msg, headers, newurl)
        if onwards is None or not isinstance(req, _Request):
            return onwards
        return _Request(onwards.full_url, dict(onwards.headers), req.get_method(), req.patience)


@cache
def _opener() -> urllib.request.OpenerDirector:
    return urllib.request.build_opener(_Plain, _Secure, Onwards)


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
