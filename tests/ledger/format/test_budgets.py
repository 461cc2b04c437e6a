"""What asks for too much ends in a sentence: no hang, no end of memory."""

from __future__ import annotations

import io
import threading
import urllib.request
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from email.message import Message
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from ledger import Draft, LedgerError, Log, LogReader, Malformed, PosixStorage, check, create_key
from ledger.audit import fsck
from ledger.format.budgets import BUDGETS
from ledger.format.checkpoint import LogCheckpoint
from ledger.storage import https
from ledger.storage.https import HttpsStorage, Unreachable


@pytest.mark.parametrize("size", [10_000_000, 1 << 33, 1 << 40, (1 << 62) + 1])
def test_a_signed_checkpoint_of_a_size_that_nobody_has(tmp_path: Path, size: int) -> None:
    storage, key = PosixStorage(tmp_path / "root"), create_key(tmp_path / "key", "x.example/log")
    Log.create(storage, key)
    with Log.open(storage, key) as log:
        log.append([Draft("a/v1", "s", {"n": number}) for number in range(300)])
    storage.replace("log/checkpoint", LogCheckpoint("x.example/log", size, b"\1" * 32).sign([key]).encode())
    found = check(storage, [key.verifier])
    assert found and len(found) <= 2 * BUDGETS.missing_files + 10
    assert any(finding.expected.startswith("at most") for finding in found), found[-1]
    with pytest.raises(LedgerError):
        list(LogReader(storage, [key.verifier]).events())


def test_a_file_of_the_log_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with (tmp_path / "log" / "checkpoint").open("wb") as sparse:
        sparse.truncate(BUDGETS.log_file + 1)
    with pytest.raises(Malformed, match=f"too large to be read: log/checkpoint: expected at most {BUDGETS.log_file}"):
        PosixStorage(tmp_path).read("log/checkpoint")


@contextmanager
def endless(length: str | None) -> Iterator[str]:
    class Handler(BaseHTTPRequestHandler):
        def do_GET(self) -> None:
            self.send_response(200)
            if length is not None:
                self.send_header("Content-Length", length)
            self.end_headers()
            try:
                while True:
                    self.wfile.write(b"\0" * 65536)
            except OSError:
                pass

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Handler) as server:
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_port}"
        server.shutdown()


@pytest.mark.parametrize("length", [None, str(1 << 50)])
def test_a_server_that_sends_for_ever(monkeypatch: pytest.MonkeyPatch, length: str | None) -> None:
    monkeypatch.setattr(https, "BUDGETS", replace(BUDGETS, log_file=1 << 20))
    with endless(length) as address:
        storage = HttpsStorage(address)
        with pytest.raises(Malformed, match="a server sends more than a file has: log/checkpoint"):
            storage.read("log/checkpoint")
        with pytest.raises(Malformed, match="a server sends more"):
            storage.read_range("log/checkpoint", 0, 100)


def test_a_server_that_drips(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(https, "BUDGETS", replace(BUDGETS, stall_seconds=0.0, bytes_per_second=1 << 50))
    with endless(None) as address, pytest.raises(Unreachable, match="bytes in"):
        HttpsStorage(address).read("log/checkpoint")


def test_missing_files_are_counted_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsck, "BUDGETS", replace(BUDGETS, missing_files=5))
    storage, key = PosixStorage(tmp_path / "root"), create_key(tmp_path / "key", "x.example/log")
    Log.create(storage, key)
    storage.replace("log/checkpoint", LogCheckpoint("x.example/log", 10_000, b"\1" * 32).sign([key]).encode())
    found = check(storage, [key.verifier])
    assert found[-1].what == "missing files of the log, and the rest was not looked for"
    assert (found[-1].expected, len(found)) == ("at most 5", 7)


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
    """The server of a published root would ask, through its reader, what only he can reach."""
    names = {"published.example": "1.1.1.1", "mirror.example": "8.8.8.8", "router.example": "192.168.1.1"}
    monkeypatch.setattr(
        "ledger.storage.https.socket.getaddrinfo",
        lambda host, port: [(0, 0, 0, "", (names.get(host, host.strip("[]")), 0))],
    )
    request = urllib.request.Request("https://published.example/log/checkpoint")
    found = https._Onwards().redirect_request(request, io.BytesIO(), 302, "Found", Message(), there)
    assert (found is not None and found.full_url == there) is followed
