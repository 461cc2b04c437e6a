"""Any bytes on the sockets of our servers: an answer or a closed connection, and the next client is served."""

from __future__ import annotations

import logging
import os
import socket
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import Log, LogClient, LogService, MemoryStorage, Witness, WitnessServer

from .parsers import SIGNER
from .test_parsers import _edit, edited

EXAMPLES = int(os.environ.get("MARIN_FUZZ", "100"))
HEADS = [
    b"GET /" + b"0" * 64 + b"/checkpoint HTTP/1.1\r\nHost: w\r\n\r\n",
    b"POST /add-checkpoint HTTP/1.1\r\nHost: w\r\nContent-Length: 7\r\n\r\nold 0\n\n",
    b"POST /add-checkpoint HTTP/1.1\r\nTransfer-Encoding: chunked\r\n\r\n5\r\nold 0\r\n0\r\n\r\n",
    b"HEAD / HTTP/1.0\r\n\r\n",
    b"GET /\r\n",
]
FRAMES = [b'\x00\x00\x00\x0d{"token":"x"}', b"\xff\xff\xff\xff", b"\x00\x00\x00\x02{}", b""]
fuzzed = settings(
    max_examples=EXAMPLES,
    database=None,
    derandomize="MARIN_FUZZ" not in os.environ,
    suppress_health_check=list(HealthCheck),
)


def said(port: int, data: bytes) -> bytes:
    """What comes back until the other side ends the connection."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as connection, suppress(ConnectionError):
        connection.sendall(data)
        with suppress(OSError):  # ended by the other side already
            connection.shutdown(socket.SHUT_WR)
        while more := connection.recv(1 << 16):
            answer += more
    return answer


@pytest.fixture(scope="module")
def witness() -> Iterator[int]:
    with WitnessServer(Witness(MemoryStorage(), [], {SIGNER.name: [SIGNER.verifier]})) as server:
        yield urlsplit(server.address).port or 0


@fuzzed
@given(seed=st.sampled_from(HEADS), edits=st.lists(_edit, max_size=4), raw=st.binary(max_size=60))
def test_any_request_to_a_witness_is_answered_or_ended(
    witness: int, seed: bytes, edits: list[tuple[int, int, int, int]], raw: bytes
):
    data = seed
    for edit in edits:
        data = edited(data, *edit)[: 1 << 16]
    for request in (data, raw):
        answer = said(witness, request)
        assert answer == b"" or answer.startswith(b"HTTP/1.1 ") or not answer.startswith(b"HTTP")
        assert b"Traceback" not in answer
        assert not answer.startswith(b"HTTP/1.1 500")
    assert said(witness, b"GET /x HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 404")


def test_any_greeting_is_refused_and_the_service_goes_on(tmp_path, caplog: pytest.LogCaptureFixture):
    storage = MemoryStorage()
    Log.create(storage, SIGNER)
    with Log.open(storage, SIGNER) as log, LogService(log, tmp_path / "service.json") as service:

        @fuzzed
        @given(seed=st.sampled_from(FRAMES), edits=st.lists(_edit, max_size=4), raw=st.binary(max_size=60))
        def run(seed: bytes, edits: list[tuple[int, int, int, int]], raw: bytes) -> None:
            data = seed
            for edit in edits:
                data = edited(data, *edit)[: 1 << 16]
            for frame in (data, raw):
                assert b'"origin"' not in said(service.port, frame)

        with caplog.at_level(logging.ERROR):
            run()
        assert caplog.records == []
        with LogClient(tmp_path / "service.json") as client:
            assert client.origin == SIGNER.name
