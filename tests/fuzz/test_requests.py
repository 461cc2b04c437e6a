"""Any bytes on the sockets of our servers: an answer or a closed connection, and the next client is served."""

from __future__ import annotations

import logging
import os
import re
import socket
from collections.abc import Iterator
from contextlib import suppress
from urllib.parse import urlsplit

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from ledger import Log, LogClient, LogService, Witness, WitnessServer
from tests.ledger.memory import MemoryStorage

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


def exchanged(port: int, data: bytes) -> tuple[bytes, bool]:
    """What comes back until the other side ends the connection, and whether it is whole: of a connection that is reset,
    because not all that was sent is read, a part of the answer may be lost."""
    answer = b""
    with socket.create_connection(("127.0.0.1", port), timeout=600) as connection:
        try:
            connection.sendall(data)
            with suppress(OSError):  # ended by the other side already
                connection.shutdown(socket.SHUT_WR)
            while more := connection.recv(1 << 16):
                answer += more
        except ConnectionError:
            return answer, False
    return answer, True


def said(port: int, data: bytes) -> bytes:
    return exchanged(port, data)[0]


def words_of(request: bytes) -> list[str]:
    """The request line, as http.server splits it."""
    return request.partition(b"\n")[0].decode("latin-1").split()


def has_version(request: bytes) -> bool:
    """Whether the request line ends in HTTP/1.x. All others are taken for HTTP/0.9."""
    words = words_of(request)
    return len(words) >= 3 and re.fullmatch(r"HTTP/1\.[0-9]{1,10}", words[-1]) is not None


def assert_is_answer(answer: bytes, request: bytes) -> None:
    """All of an answer: status line, header fields and a body of the length that they say; to HTTP/0.9 one line of text."""
    head, ends, body = answer.partition(b"\r\n\r\n")
    if not answer.startswith(b"HTTP"):
        assert not has_version(request), answer
        assert answer.endswith(b"\n") and answer.count(b"\n") == 1 and answer.decode().strip(), answer
        return
    assert ends and re.match(rb"HTTP/1\.1 (2\d\d|4\d\d|50[1-5]) [A-Z][A-Za-z -]*\r\n", head), answer
    (length,) = re.findall(rb"(?m)^Content-Length: (\d+)\r?$", head)
    words = words_of(request)
    assert len(body) == (0 if words[:1] == ["HEAD"] and len(words) == 3 else int(length)), answer
    assert head.endswith(b"\r\nConnection: close"), answer


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
        answer, is_whole = exchanged(witness, request)
        assert b"Traceback" not in answer
        if answer and is_whole:
            assert_is_answer(answer, request)
    assert said(witness, b"GET /x HTTP/1.1\r\n\r\n").startswith(b"HTTP/1.1 404")


@pytest.mark.parametrize(("request_", "status"), list(zip(HEADS, (404, 400, 411, 404, None), strict=True)))
def test_a_request_as_it_was_before_its_edits_is_answered(witness: int, request_: bytes, status: int | None):
    answer, is_whole = exchanged(witness, request_)
    assert is_whole or status == 411  # whose body nobody reads
    assert answer.startswith(b"no such page" if status is None else f"HTTP/1.1 {status} ".encode())
    assert_is_answer(answer, request_)


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
