"""A server of a published root may send what it likes, and how slowly it likes: every request has an end that says why."""

from __future__ import annotations

import io
import re
import socket
import socketserver
import threading
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace
from email.message import Message
from itertools import chain, repeat

import pytest

from ledger import Malformed, NotFound
from ledger.format.budgets import BUDGETS
from ledger.storage import https, ranges
from ledger.storage.https import HttpsStorage, Unreachable
from ledger.storage.ranges import PIECE
from ledger.store.layout import blob_name

NAME = "log/checkpoint"
BLOB = blob_name("sha256:" + "ab" * 32)
OK = b"HTTP/1.1 200 OK\r\n"
CHUNKED = OK + b"Transfer-Encoding: chunked\r\n\r\n"


@contextmanager
def answering(reply: Callable[[bytes], Iterator[bytes]]) -> Iterator[str]:
    """A server that sends these pieces to every request (its head is given), and closes."""

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            head = b"".join(iter(self.rfile.readline, b"\r\n"))
            with suppress(OSError):
                for piece in reply(head):
                    self.wfile.write(piece)

    class Server(socketserver.ThreadingTCPServer):
        daemon_threads = True

    with Server(("127.0.0.1", 0), Handler) as server:
        threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()


def dripping(start: bytes, drop: bytes = b"x") -> Iterator[bytes]:
    pause = threading.Event()
    yield start
    while not pause.wait(0.02):
        yield drop


SLOW = {
    "status line": lambda: dripping(b"HTTP/1.1 200 "),
    "headers": lambda: dripping(OK + b"Header: "),
    "interim answers": lambda: dripping(b"", b"HTTP/1.1 100 Continue\r\n\r\n"),
    "body": lambda: dripping(OK + b"Content-Length: 1000000\r\n\r\n"),
    "body without length": lambda: dripping(OK + b"\r\n"),
    "size of a chunk": lambda: dripping(CHUNKED + b"1;", b"x"),
    "trailers": lambda: dripping(CHUNKED + b"0\r\n", b"a: b\r\n"),
    "nothing": lambda: dripping(b"", b""),
}
FAST = {
    "interim answers": lambda: repeat(b"HTTP/1.1 100 Continue\r\n\r\n" * 1000),
    "body": lambda: chain([OK + b"\r\n"], repeat(bytes(65536))),
    "body of a length": lambda: chain([OK + b"Content-Length: 1125899906842624\r\n\r\n"], repeat(bytes(65536))),
    "trailers": lambda: chain([CHUNKED + b"0\r\n"], repeat(b"a: b\r\n" * 1000)),
}


@pytest.mark.table
@pytest.mark.parametrize("what", SLOW)
def test_a_server_that_drips(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "BUDGETS", replace(BUDGETS, stall_seconds=0.1, bytes_per_second=1 << 50))
    monkeypatch.setattr(https, "_TIMEOUT_SECONDS", 0.3)
    with answering(lambda _: SLOW[what]()) as address, pytest.raises(Unreachable) as refused:
        HttpsStorage(address, pause=0.0).read(NAME)
    assert ("timed out" if what == "nothing" else "bytes in") in refused.value.found


@pytest.mark.parametrize("what", FAST)
def test_a_server_that_sends_for_ever(what: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "BUDGETS", replace(BUDGETS, log_file=1 << 20))
    with (
        answering(lambda _: FAST[what]()) as address,
        pytest.raises(Malformed, match=f"a server sends more than a file has: {NAME}"),
    ):
        HttpsStorage(address).read(NAME)


def test_no_more_of_a_file_than_memory_holds(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "BUDGETS", replace(BUDGETS, fetched=1 << 20))
    with answering(lambda _: FAST["body"]()) as address:
        with pytest.raises(Malformed, match="expected at most 1048576 bytes"):
            HttpsStorage(address).read(BLOB)
        assert HttpsStorage(address).read_range(BLOB, 5, 7) == bytes(7), "what follows is not waited for"


DATA = bytes(range(251)) * (3 * PIECE // 251)


def ranged(asked: list[tuple[int, int]], *, gives_ranges: bool) -> Callable[[bytes], Iterator[bytes]]:
    def reply(head: bytes) -> Iterator[bytes]:
        fields = dict(line.split(b": ", 1) for line in head.splitlines()[1:])
        first, last = map(int, fields[b"Range"].removeprefix(b"bytes=").split(b"-"))
        asked.append((first, last - first + 1))
        data = DATA[first : last + 1] if gives_ranges else DATA
        if not data:
            yield b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n"
        status = b"206 Partial Content\r\nContent-Range: bytes %d-*/*" % first if gives_ranges else b"200 OK"
        yield b"HTTP/1.1 %s\r\nContent-Length: %d\r\n\r\n" % (status, len(data))
        yield data

    return reply


@pytest.mark.parametrize("gives_ranges", [True, False])
def test_a_file_is_read_forwards_in_pieces(gives_ranges: bool) -> None:
    asked: list[tuple[int, int]] = []
    with answering(ranged(asked, gives_ranges=gives_ranges)) as address:
        with HttpsStorage(address).open(BLOB) as stream:
            assert stream.read(3) == DATA[:3]
            assert len(asked) == 1
            assert stream.read() == DATA[3:]
        end = len(DATA) - 4
        assert HttpsStorage(address).read_range(BLOB, end, 10) == DATA[end:]
    assert asked[:-1] == [(start, PIECE) for start in range(0, len(DATA), PIECE)]


def test_a_file_that_always_has_another_piece(monkeypatch: pytest.MonkeyPatch) -> None:
    def reply(head: bytes) -> Iterator[bytes]:
        (first,) = re.findall(rb"bytes=(\d+)-", head)
        yield b"HTTP/1.1 206 Partial\r\nContent-Range: bytes %s-*/*\r\nContent-Length: %d\r\n\r\n" % (first, PIECE)
        yield bytes(PIECE)

    monkeypatch.setattr(ranges, "BUDGETS", replace(BUDGETS, stored_file=3 * PIECE))
    with (
        answering(reply) as address,
        HttpsStorage(address).open(BLOB) as stream,
        pytest.raises(Malformed, match="a file goes on for longer than it may"),
    ):
        while stream.read(PIECE):
            pass


@pytest.mark.parametrize("given", [b"bytes 0-6/100", b"bytes 50-56/100", b"", b"bytes */100"])
def test_another_range_is_none(given: bytes) -> None:
    reply = b"HTTP/1.1 206 Partial Content\r\nContent-Range: %s\r\nContent-Length: 7\r\n\r\nanother" % given
    with answering(lambda _: iter([reply])) as address, pytest.raises(Unreachable, match="for one from byte 5"):
        HttpsStorage(address).read_range(BLOB, 5, 7)


def test_a_range_that_is_none_was_not_asked_for() -> None:
    reply = b"HTTP/1.1 416 Range Not Satisfiable\r\nContent-Length: 0\r\n\r\n"
    with answering(lambda _: iter([reply])) as address:
        assert HttpsStorage(address).read_range(BLOB, 5, 7) == b""
        with pytest.raises(Unreachable, match="status 416"):
            HttpsStorage(address).read(BLOB)


def test_a_name_of_a_thousand_addresses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of which swallows what is sent to it."""
    asked: list[object] = []

    def swallowed(place: object, timeout: float, source: object) -> socket.socket:
        asked.append(place)
        clock.append(clock[-1] + 30.0)
        raise TimeoutError("timed out")

    clock = [0.0]
    monkeypatch.setattr(https.time, "monotonic", lambda: clock[-1])
    monkeypatch.setattr(
        https.socket, "getaddrinfo", lambda *_, **__: [(0, 0, 0, "", ("127.0.0.1", n)) for n in range(1000)]
    )
    monkeypatch.setattr(https.socket, "create_connection", swallowed)
    with pytest.raises(Unreachable, match="0 bytes in 90 s"):
        HttpsStorage("http://127.0.0.1").read(NAME)
    assert len(asked) == 3


def test_an_address_that_is_not_there_is_said_when_it_is_opened() -> None:
    def missing(_: bytes) -> Iterator[bytes]:
        yield b"HTTP/1.1 404 Not Found\r\nContent-Length: 0\r\n\r\n"

    with answering(missing) as address, pytest.raises(NotFound):
        HttpsStorage(address).open(BLOB)


@pytest.mark.parametrize(
    ("reply", "found"),
    [
        (b"HTTP/1.1 302 Found\r\nLocation: http://[bad/\r\n\r\n", "Invalid IPv6 URL"),
        (b"HTTP/1.1 302 Found\r\nLocation: http://127.0.0.1:99999999/\r\n\r\n", ""),
        (b"HTTP/1.1 302 Found\r\nLocation: file:///etc/passwd\r\n\r\n", "status 302"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: abc\r\n\r\n", "'abc'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: -5\r\n\r\n", "'-5'"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: " + b"9" * 5000 + b"\r\n\r\n", "'999"),
        (b"HTTP/1.1 200 OK\r\nContent-Length: \xb2\r\n\r\n", "Content-Length"),
        (b"nonsense\r\n\r\n", "nonsense"),
    ],
)
def test_an_answer_that_is_none(reply: bytes, found: str) -> None:
    with answering(lambda _: iter([reply])) as address, pytest.raises(Unreachable) as refused:
        HttpsStorage(address, pause=0.0).size(NAME)
    assert found in refused.value.found


def test_the_page_of_a_redirect_is_not_read() -> None:
    sent: list[bytes] = []

    def reply(head: bytes) -> Iterator[bytes]:
        if b"/there" in head:
            yield OK + b"Content-Length: 4\r\n\r\nhere"
            return
        yield b"HTTP/1.1 302 Found\r\nLocation: /there\r\n\r\n"
        for piece in repeat(bytes(65536)):
            sent.append(piece)
            yield piece

    with answering(reply) as address:
        assert HttpsStorage(address).read(NAME) == b"here"


def test_redirects_share_one_patience(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "_AROUND", 0)
    monkeypatch.setattr(https, "BUDGETS", replace(BUDGETS, log_file=1000))
    number = iter(range(1000))

    def onwards(_: bytes) -> Iterator[bytes]:
        yield b"HTTP/1.1 302 Found\r\nLocation: /%d\r\nPage: %s\r\n\r\n" % (next(number), b"x" * 500)

    with answering(onwards) as address, pytest.raises(Malformed, match="a server sends more"):
        HttpsStorage(address).read(NAME)
    assert next(number) <= 5


@pytest.mark.parametrize(
    ("there", "followed"),
    [
        ("https://mirror.example/log/checkpoint", True),
        ("https://published.example/elsewhere", True),
        ("https://router.example/admin", False),
        ("https://127.0.0.1:8443/admin", False),
        ("https://[::1]/admin", False),
        ("http://mirror.example/log/checkpoint", False),
    ],
)
def test_a_redirect_leads_into_no_private_network(there: str, followed: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    """The server of a published root would ask, through its reader, what only the reader can reach."""
    names = {"published.example": "1.1.1.1", "mirror.example": "8.8.8.8", "router.example": "192.168.1.1"}
    monkeypatch.setattr(
        "ledger.storage.https.socket.getaddrinfo",
        lambda host, port: [(0, 0, 0, "", (names.get(host, host.strip("[]")), 0))],
    )
    request = urllib.request.Request("https://published.example/log/checkpoint")
    found = https.Onwards().redirect_request(request, io.BytesIO(), 302, "Found", Message(), there)
    assert (found is not None and found.full_url == there) is followed
