"""A published root, read over https. Read only.

A server of plain files is enough. Nothing that arrives is believed: whoever reads through this driver
verifies bytes against a signed root or a digest, so that the transport only has to deliver. `list` needs an
index that plain servers lack and is refused. Requests are tried three times, for a read can always be
repeated; redirects to other schemes are not followed.
"""

from __future__ import annotations

import http.client
import io
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from pathlib import Path
from typing import IO, BinaryIO, NoReturn
from urllib.parse import quote, urlsplit

from ledger.errors import NotFound, Refused, StorageFailed, Unavailable
from ledger.storage.port import Detail, Storage, check_name

_TIMEOUT_SECONDS = 30.0
_ATTEMPTS = 3
_PAUSE_SECONDS = 0.2
_MISSING = {404, 410}


class HttpsStorage:
    """The files below an address. Plain http is taken from the loopback interface only."""

    def __init__(self, address: str) -> None:
        parts = urlsplit(address)
        local = parts.scheme == "http" and parts.hostname in ("localhost", "127.0.0.1", "::1")
        if parts.scheme != "https" and not local:
            raise Refused(
                "not an address to read from",
                where=address,
                expected="https://",
                cure="publish it over https",
            )
        self._address = address.rstrip("/")

    @property
    def writable(self) -> bool:
        return False

    def guard(self, names: Sequence[str]) -> Storage:
        return self

    def describe(self) -> str:
        return self._address

    def local_path(self, name: str) -> Path | None:
        check_name(name)
        return None

    def read(self, name: str) -> bytes:
        return self._request(name, lambda reply: reply.read())

    def read_range(self, name: str, start: int, length: int) -> bytes:
        if length <= 0:
            return b""
        try:
            return self._request(
                name,
                lambda reply: reply.read() if reply.status == 206 else reply.read()[start : start + length],
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
            where=f"{self._address}/{prefix}",
            cure="read it by name, or copy it first",
        )

    def details(self, prefix: str = "") -> Iterator[Detail]:
        yield from (Detail(name, self.size(name), 0.0) for name in self.list(prefix))

    def create(self, name: str, data: bytes) -> None:
        self._refuse(name)

    def ensure(self, name: str, data: bytes) -> None:
        self._refuse(name)

    def ensure_many(self, items: Iterable[tuple[str, bytes]]) -> None:
        self._refuse("")

    def replace(self, name: str, data: bytes) -> None:
        self._refuse(name)

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        self._refuse(name)

    def adopt(self, name: str, path: Path, *, link: bool = False) -> None:
        self._refuse(name)

    def arrived(self, name: str, content: bytes | Path) -> bool:
        return False

    def rename(self, name: str, to: str) -> None:
        self._refuse(name)

    def remove(self, *names: str) -> None:
        self._refuse(" ".join(names))

    def lock(self, name: str, holder: str, *, wait: float = 0.0) -> AbstractContextManager[None]:
        self._refuse(name)

    def _refuse(self, name: str) -> NoReturn:
        raise Refused(
            "a published root can only be read",
            where=f"{self._address}/{name}",
            cure="write to the root it is published from",
        )

    def _request[T](
        self,
        name: str,
        take: Callable[[http.client.HTTPResponse], T],
        headers: dict[str, str] | None = None,
        method: str = "GET",
    ) -> T:
        address = f"{self._address}/{quote(check_name(name))}"
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
            time.sleep(_PAUSE_SECONDS * attempt)
        raise AssertionError("unreachable")


class _BeyondTheEnd(StorageFailed):
    """The range begins behind the last byte."""


class _SameScheme(urllib.request.HTTPRedirectHandler):
    def redirect_request(
        self,
        req: urllib.request.Request,
        fp: IO[bytes],
        code: int,
        msg: str,
        headers: http.client.HTTPMessage,
        newurl: str,
    ) -> urllib.request.Request | None:
        if urlsplit(newurl).scheme != urlsplit(req.full_url).scheme:
            return None
        return super().redirect_request(req, fp, code, msg, headers, newurl)


_OPENER = urllib.request.build_opener(_SameScheme)


class Unreachable(StorageFailed, Unavailable):
    """No answer, an error of the server, or one that is not to be trusted: it says nothing about what is published."""


def _failed(address: str, found: str) -> Unreachable:
    return Unreachable(
        "could not read a published file", where=address, found=found, cure="check the address, then repeat"
    )
