"""Witnesses: what they cosign, what they refuse and how they say so, over HTTP; hybrid keys; the policy n of m."""

import http.client
import socket
import threading
from contextlib import ExitStack, contextmanager, suppress
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from ledger import (
    Conflict,
    Draft,
    LedgerError,
    Log,
    LogCheckpoint,
    LogReader,
    Malformed,
    Signer,
    Tampered,
    Unavailable,
    Unverified,
    VerifierKey,
    check,
    create_key,
    load_signer,
    make_proof,
    verify_proof,
)
from ledger.format.checkpoint import open_checkpoint
from ledger.format.cosigner import Cosigner
from ledger.format.note import open_note, parse_note
from ledger.format.tlog import EMPTY_ROOT
from ledger.witness.server import MAX_BODY, WitnessServer
from ledger.witness.witness import Witness, WitnessRequest, ask_witness, check_witnessed
from tests.ledger.memory import MemoryStorage

# The example of C2SP tlog-cosignature (Ed25519): its key is not published, so only its form is checked.
EXAMPLE = (
    "example.com/behind-the-sofa\n20852163\nCsUYapGGPo4dkMgIAUqom/Xajj7h2fB2MPA3j2jxq2I=\n\n"
    "— witness.example.com/w1 "
    "jWbPPwAAAABkGFDLEZMHwSRaJNiIDoe9DYn/zXcrtPHeolMI5OWXEhZCB9dlrDJsX3b2oyin1nPZqhf5nNo0xUe+mbIUBkBIfZ+qnA==\n"
).encode()


def ed25519(name, seed):
    return Cosigner(name, Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32), clock=lambda: 1679315147)


def mldsa(name, seed):
    return Cosigner(name, MLDSA44PrivateKey.from_seed_bytes(bytes([seed]) * 32), clock=lambda: 1679315147)


ONE = ed25519("witness.example/one", 1)
TWO = mldsa("witness.example/two", 2)


@pytest.fixture
def log(signer):
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer, publish_seconds=0) as opened:
        yield opened, storage


@pytest.fixture
def witness(signer):
    kept = MemoryStorage()
    return Witness(kept, [ONE, TWO], {signer.name: [signer.verifier]}), kept


def grow(log, count):
    opened, _ = log
    size = opened.checkpoint.size
    opened.append([Draft("t/v1", "s", {"n": n}) for n in range(size, size + count)])


def request(log, signer, old):
    reader = LogReader(log[1], [signer.verifier])
    return WitnessRequest(old, tuple(reader.consistency_proof(old)) if old else (), reader.note())


def test_a_growing_log_is_cosigned(log, witness, signer):
    deciding, kept = witness
    old = 0
    for count in (3, 5, 1, 300):
        grow(log, count)
        asked = request(log, signer, old)
        answer = deciding.add_checkpoint(asked.encode())
        assert answer.status == 200
        text = parse_note(asked.note).text
        lines = parse_note(text.encode() + b"\n" + answer.body).signatures
        assert [line.name for line in lines] == [ONE.name, TWO.name]
        for cosigner, line in zip((ONE, TWO), lines, strict=True):
            assert cosigner.verifier.verify(text, line.signature)
            assert not cosigner.verifier.verify(text.replace("s", "z"), line.signature)
        old += count
    (record,) = kept.files.values()
    assert open_checkpoint(record, [ONE.verifier, TWO.verifier, signer.verifier])[0].size == old


def test_the_same_checkpoint_again_is_cosigned_again(log, witness, signer):
    grow(log, 3)
    assert witness[0].add_checkpoint(request(log, signer, 0).encode()).status == 200
    assert witness[0].add_checkpoint(request(log, signer, 3).encode()).status == 200


def test_another_old_size_is_answered_with_the_known_one(log, witness, signer):
    grow(log, 3)
    witness[0].add_checkpoint(request(log, signer, 0).encode())
    grow(log, 2)
    for old in (0, 2, 4):
        answer = witness[0].add_checkpoint(request(log, signer, old).encode())
        assert (answer.status, answer.body, answer.content_type) == (409, b"3\n", "text/x.tlog.size")


def fork(signer, size, root):
    return LogCheckpoint(signer.name, size, root).sign([signer]).encode()


def test_a_fork_is_refused_and_both_roots_are_named(log, witness, signer):
    grow(log, 3)
    deciding, kept = witness
    deciding.add_checkpoint(request(log, signer, 0).encode())
    before = dict(kept.files)
    known = log[0].checkpoint.root.hex()
    for note, proof in ((fork(signer, 3, bytes(32)), ()), (fork(signer, 5, bytes(32)), (bytes(32),))):
        answer = deciding.add_checkpoint(WitnessRequest(3, proof, note).encode())
        assert answer.status == 422
        assert known in answer.body.decode()
        assert bytes(32).hex() in answer.body.decode()
    assert kept.files == before


def test_wrong_requests_have_the_statuses_of_the_protocol(log, witness, signer):
    grow(log, 3)
    deciding, kept = witness
    good = request(log, signer, 0)
    stranger = Signer(signer.name, Ed25519PrivateKey.generate())
    other = Signer("log.example/unknown", Ed25519PrivateKey.generate())
    cases = [
        (b"", 400),
        (b"old x\n\n" + good.note, 400),
        (b"old 00\n\n" + good.note, 400),
        (b"old 0\nAAAA\n\n" + good.note, 400),
        (b"old 0\n" + b"A" * 43 + b"=\n" * 64 + b"\n" + good.note, 400),
        (b"old 4\n\n" + good.note, 400),
        (b"old 0\n\n" + LogCheckpoint(other.name, 0, EMPTY_ROOT).sign([other]).encode(), 404),
        (b"old 0\n\n" + LogCheckpoint(signer.name, 0, EMPTY_ROOT).sign([stranger]).encode(), 403),
        (b"old 0\n\n" + good.note.replace(b"\n3\n", b"\n2\n"), 403),
        (WitnessRequest(0, (bytes(32),), good.note).encode(), 422),
        (WitnessRequest(0, (), fork(signer, 0, bytes(32))).encode(), 422),
    ]
    for body, status in cases:
        assert deciding.add_checkpoint(body).status == status, body[:40]
    assert kept.files == {}


def test_a_record_that_somebody_edited_is_not_continued(log, witness, signer):
    grow(log, 3)
    deciding, kept = witness
    deciding.add_checkpoint(request(log, signer, 0).encode())
    ((name, _),) = kept.files.items()
    kept.files[name] = fork(signer, 1, bytes(32))
    with pytest.raises(Unverified):
        deciding.add_checkpoint(request(log, signer, 1).encode())


def test_over_http(log, witness, signer):
    opened, storage = log
    keys = [ONE.verifier, TWO.verifier]
    with WitnessServer(witness[0]) as server:
        for count in (3, 4):  # the second time the witness tells what it knows
            grow(log, count)
            reader = LogReader(storage, [signer.verifier])
            lines = ask_witness(server.address, reader.note(), reader.consistency_proof, keys)
            opened.add_cosignatures(lines)
        note = storage.read("log/checkpoint")
        assert len(parse_note(note).signatures) == 3
        assert check_witnessed(note, keys, 2) == [ONE.name, TWO.name]
        assert check(storage, [signer.verifier]) == []
        grow(log, 1)
        proof = make_proof(LogReader(storage, [signer.verifier]), 2)
        assert verify_proof(proof, [signer.verifier]).signers == (signer.name,)

        place = urlsplit(server.address)
        connection = http.client.HTTPConnection(place.hostname, place.port)
        import hashlib

        connection.request("GET", f"/{hashlib.sha256(signer.name.encode()).hexdigest()}/checkpoint")
        served = connection.getresponse()
        assert (served.status, served.read()) == (200, next(iter(witness[1].files.values())))
        for path in ("/", f"/{'0' * 64}/checkpoint"):
            connection.request("GET", path)
            reply = connection.getresponse()
            assert reply.status == 404
            reply.read()
        connection.close()


def status_of(server, method, path, body=None, headers=None):
    place = urlsplit(server.address)
    connection = http.client.HTTPConnection(place.hostname, place.port)
    connection.request(method, path, body, headers or {})
    reply = connection.getresponse()
    reply.read()
    connection.close()
    return reply.status


@contextmanager
def guests(server, count):
    place = urlsplit(server.address)
    with ExitStack() as stack:
        yield [stack.enter_context(socket.create_connection((place.hostname, place.port))) for _ in range(count)]


def all_of(connection):
    found = b""
    with suppress(ConnectionResetError):
        while more := connection.recv(4096):
            found += more
    return found


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"POST /add-che",
        b"POST /add-checkpoint HTTP/1.1\r\nHost: w\r\n",
        b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: 200000\r\n\r\nold 0\n",
    ],
)
def test_a_crowd_of_half_open_requests_does_not_silence_it(log, witness, signer, beginning):
    """Forty begin a request and stop: anyone who asks whole is answered, and few threads are kept for the others."""
    grow(log, 3)
    with WitnessServer(witness[0], seats=4) as server, guests(server, 40) as crowd:
        for guest in crowd:
            with suppress(OSError):  # sent away already
                guest.sendall(beginning)
        reader = LogReader(log[1], [signer.verifier])
        assert ask_witness(server.address, reader.note(), reader.consistency_proof, [ONE.verifier])
        assert status_of(server, "GET", f"/{'0' * 64}/checkpoint") == 404
        for guest in crowd[:36]:
            assert all_of(guest) == b""
        assert sum("process_request_thread" in thread.name for thread in threading.enumerate()) < 20


def test_a_request_has_one_deadline(witness):
    with WitnessServer(witness[0], request_seconds=0.2) as server, guests(server, 2) as (silent, slow):
        slow.sendall(b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: 9\r\n\r\nold")
        assert all_of(silent) == b""
        assert all_of(slow) == b""


def test_endless_heads_and_huge_bodies_are_not_read(witness):
    piece = b"X: " + b"x" * 60_000 + b"\r\n"
    with WitnessServer(witness[0]) as server, guests(server, 2) as (head, body):
        with suppress(OSError):
            head.sendall(b"GET / HTTP/1.1\r\n")
            for _ in range(100):
                head.sendall(piece)
        all_of(head)  # returns, because the server hung up
        body.sendall(f"POST /add-checkpoint HTTP/1.1\r\nContent-Length: {MAX_BODY + 1}\r\n\r\n".encode())
        assert all_of(body).startswith(b"HTTP/1.1 413 ")
        assert status_of(server, "GET", "/") == 404


@pytest.mark.parametrize(
    ("method", "path", "body", "headers", "status"),
    [
        ("POST", "/add-checkpoint", b"", {}, 400),
        ("POST", "/add-checkpoint", b"x", {"Content-Length": "1", "Transfer-Encoding": "chunked"}, 411),
        ("POST", "/add-checkpoint", None, {"Content-Length": "-1"}, 411),
        ("POST", "/add-checkpoint", None, {"Content-Length": "9" * 5000}, 411),
        ("POST", "/add-checkpoint", None, {"Content-Length": "9999999"}, 413),
        ("POST", "/elsewhere", b"", {}, 404),
        ("GET", "/add-checkpoint", None, {}, 405),
        ("PUT", "/add-checkpoint", b"", {}, 405),
        ("POST", f"/{'0' * 64}/checkpoint", b"", {}, 405),
        ("BREW", "/tea", None, {}, 404),
    ],
)
def test_requests_that_are_none_have_a_status(witness, method, path, body, headers, status):
    with WitnessServer(witness[0]) as server:
        assert status_of(server, method, path, body, headers) == status


def test_it_stops_while_requests_hang(witness):
    with ExitStack() as stack:
        with WitnessServer(witness[0], request_seconds=3600) as server:
            crowd = stack.enter_context(guests(server, 5))
            crowd[0].sendall(b"POST ")
        for guest in crowd:  # each is sent away: none of them left, and nobody's time is over
            guest.settimeout(600)
            assert all_of(guest) == b""


def test_a_log_that_was_rolled_back_is_told(log, witness, signer):
    grow(log, 3)
    files = dict(log[1].files)
    short = LogReader(MemoryStorage(files), [signer.verifier])
    short.refresh()
    grow(log, 3)
    witness[0].add_checkpoint(request(log, signer, 0).encode())
    with WitnessServer(witness[0]) as server:
        with pytest.raises(Tampered, match="longer log"):
            ask_witness(server.address, short.note(), short.consistency_proof, [ONE.verifier])
        with pytest.raises(Conflict, match="422"):
            ask_witness(server.address, fork(signer, 9, bytes(32)), lambda old: [bytes(32)], [ONE.verifier])
        grow(log, 1)
        reader = LogReader(log[1], [signer.verifier])
        with pytest.raises(Unverified):
            ask_witness(server.address, reader.note(), reader.consistency_proof, [ed25519("w.example", 9).verifier])
    with pytest.raises(Unavailable):
        ask_witness(server.address, reader.note(), reader.consistency_proof, [ONE.verifier])
    with pytest.raises(LedgerError):
        ask_witness("file:///etc/passwd", reader.note(), reader.consistency_proof, [ONE.verifier])


def test_the_policy_counts_witnesses_not_signatures(log, signer):
    grow(log, 1)
    text = str(log[0].checkpoint)
    again = mldsa(ONE.name, 3)  # a second key of the same witness
    note = LogCheckpoint.parse(text).sign([signer, ONE, again]).encode()
    keys = [ONE.verifier, again.verifier, TWO.verifier]
    assert check_witnessed(note, keys, 1) == [ONE.name]
    with pytest.raises(Unverified, match="2 of 2"):
        check_witnessed(note, keys, 2)
    with pytest.raises(Unverified):
        check_witnessed(note, [], 1)
    forged = note.replace(b"\n1\n", b"\n2\n")
    with pytest.raises(Unverified, match="does not hold"):
        check_witnessed(forged, keys, 1)


def test_the_example_of_the_specification_has_our_form():
    (line,) = parse_note(EXAMPLE).signatures
    assert line.name == "witness.example.com/w1"
    assert len(line.signature) == 8 + 64
    assert int.from_bytes(line.signature[:8]) == 1679315147


def test_keys_of_cosigners_come_back_as_text():
    for cosigner in (ONE, TWO):
        assert VerifierKey.parse(str(cosigner.verifier)) == cosigner.verifier
    assert ONE.verifier.key_id != Signer(ONE.name, ONE.key).verifier.key_id


def test_a_cosignature_of_something_else_does_not_hold():
    for cosigner in (ONE, TWO):
        text = "log.example\n3\n" + "A" * 43 + "=\n"
        signature = cosigner.sign(text)
        assert cosigner.verifier.verify(text, signature)
        for wrong in (
            signature[:-1],
            signature[:8],
            b"",
            bytes([255]) + signature[1:],
            signature[:7] + b"\0" + signature[8:],
        ):
            assert not cosigner.verifier.verify(text, wrong)
        assert not cosigner.verifier.verify("no checkpoint\n", signature)
        renamed = VerifierKey("other.example", cosigner.verifier.algorithm, cosigner.verifier.public)
        assert renamed.verify(text, signature) == (cosigner is ONE)  # ML-DSA commits to the name, Ed25519 does not


def test_a_hybrid_key_signs_twice_and_each_half_is_enough_to_read(tmp_path):
    made = create_key(tmp_path / "key", "log.example/hybrid", hybrid=True, passphrase="p")
    signer = load_signer(tmp_path / "key", passphrase="p")
    assert signer.verifiers == made.verifiers
    assert [key.algorithm for key in signer.verifiers] == [0x01, 0x06]
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as opened:
        opened.append([Draft("t/v1", "s", {})])
    note = storage.read("log/checkpoint")
    assert open_note(note, signer.verifiers)[1] == signer.verifiers
    for key in signer.verifiers:
        assert LogReader(storage, [key]).checkpoint().size == 1
        assert check(storage, [key]) == []
    damaged = (tmp_path / "key").read_bytes().replace(b"-----END", b"-----ENT", 1)
    (tmp_path / "key").write_bytes(damaged)
    with pytest.raises(LedgerError):
        load_signer(tmp_path / "key", passphrase="p")


@pytest.mark.parametrize("data", [b"", b"\xff", b"old 1", b"old 1\n\n", b"old -1\n\nx", b"\n\n"])
def test_any_request_parses_or_is_malformed(data):
    try:
        parsed = WitnessRequest.parse(data)
    except Malformed:
        return
    assert parsed.encode() == data


@contextmanager
def dripping(beginning):
    """A server that answers with this and then a byte now and then, until the client is gone."""
    gone, stop = threading.Event(), threading.Event()

    def serve():
        guest, _ = server.accept()
        with guest, suppress(OSError):
            guest.recv(1 << 16)
            guest.sendall(beginning)
            while not stop.wait(0.01):
                guest.sendall(b"x")
        gone.set()

    with socket.create_server(("127.0.0.1", 0)) as server:
        thread = threading.Thread(target=serve, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.getsockname()[1]}", gone
        finally:
            stop.set()
            thread.join()


@pytest.mark.parametrize(
    "beginning",
    [
        b"",
        b"HTTP/1.1 200 OK\r\nX-",
        b"HTTP/1.1 200 OK\r\nContent-Length: 1000000\r\n\r\n",
        b"HTTP/1.1 200 OK\r\n\r\n",
        b"HTTP/1.1 409 Conflict\r\nContent-Length: 1000000\r\n\r\n",
    ],
)
def test_a_witness_that_drips_has_one_deadline(log, signer, beginning):
    """Each byte comes well within the timeout of a read; it is the answer that takes too long."""
    grow(log, 3)
    reader = LogReader(log[1], [signer.verifier])
    with dripping(beginning) as (address, gone):
        with pytest.raises(Unavailable, match=r"took too long|timed out"):
            ask_witness(address, reader.note(), reader.consistency_proof, [ONE.verifier], seconds=0.3)
        assert gone.wait(600), "the connection was closed"
