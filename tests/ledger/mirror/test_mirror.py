"""Being a mirror and having one: what it keeps, what it signs, what it refuses, and a second reader of its protocol.

The client and the server of ``ledger.mirror`` could agree on a mistake. So requests are also put together here from the text of
C2SP tlog-mirror alone (``spec_body``), with proofs from the definition, and answers are read without the library.
"""

import gzip
import http.client
import random
import struct
from contextlib import ExitStack, closing
from urllib.parse import urlsplit

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey

from ledger import (
    Conflict,
    Draft,
    Log,
    LogMirror,
    LogReader,
    Malformed,
    PosixStorage,
    Refused,
    Signer,
    Tampered,
    Unverified,
    WitnessServer,
    ask_subtree,
    check,
    follow_log,
    mirror_at,
    open_storage,
    origin_hash,
    post_to,
    read_cosigned,
    subtree_proof,
    subtree_root,
)
from ledger.format.cosignature import Subtree
from ledger.format.cosigner import Cosigner
from ledger.format.note import parse_note
from ledger.format.tlog import leaf_hash
from ledger.mirror.entries import MirrorInfo
from ledger.witness.upload import bytes_upload
from ledger.witness.witness import WitnessRequest
from tests.ledger.format.test_tlog import oracle_subtree_proof
from tests.ledger.memory import MemoryStorage

OURS = Cosigner("mirror.example/m", MLDSA44PrivateKey.from_seed_bytes(bytes([9]) * 32))
OTHER = Cosigner("mirror.example/m", MLDSA44PrivateKey.from_seed_bytes(bytes([8]) * 32))


def grown(signer, *counts: int, word="honest"):
    """A log after so many events, and its reader; a reader after each count."""
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer, publish_seconds=0) as log:
        readers = []
        for count in counts:
            size = log.checkpoint.size
            log.append([Draft("t/v1", "s", {"n": n, "word": word}) for n in range(size, size + count)])
            readers.append(LogReader(storage, [signer.verifier]))
            readers[-1].refresh()
    return readers


@pytest.fixture
def kept():
    return MemoryStorage()


@pytest.fixture
def mirror(signer, kept):
    return LogMirror(kept, [OURS], {signer.name: [signer.verifier]})


def copy_of(kept, signer):
    return LogReader(kept, [signer.verifier], log=origin_hash(signer.name))


@pytest.mark.parametrize("counts", [(1,), (255, 1, 1), (700,), (3, 297, 400, 256)])
def test_it_follows_a_log_and_signs_what_it_has(mirror, kept, signer, counts):
    for reader in grown(signer, *counts):
        (line,) = follow_log(post_to(mirror), reader, [OURS.verifier])
        assert OURS.verifier.verify(str(reader.checkpoint()), line.signature)
        copied = copy_of(kept, signer)
        assert copied.checkpoint() == reader.checkpoint()
        assert list(copied.entries()) == list(reader.entries())
        assert check(kept, [signer.verifier], log=origin_hash(signer.name)) == []
    # Nothing is left of what was waited for, or of bundles that are whole now.
    size = reader.checkpoint().size
    assert [name for name in kept.files if name.startswith("pending/")] == []
    assert all(f"/{size // 256:03d}.p/" in name for name in kept.files if "entries" in name and ".p/" in name)


def test_the_same_log_again_is_signed_again(mirror, signer):
    (reader,) = grown(signer, 300)
    first = follow_log(post_to(mirror), reader, [OURS.verifier])
    again = follow_log(post_to(mirror), reader, [OURS.verifier])
    assert (first[0].name, first[0].key_id) == (again[0].name, again[0].key_id)


def test_over_http_with_its_pages_and_its_subtrees(mirror, kept, signer):
    (reader,) = grown(signer, 700)
    keys = [OURS.verifier]
    with WitnessServer(mirror) as server:
        follow_log(mirror_at(server.address), reader, keys)
        checkpoint, note = read_cosigned(server.address, signer.name, [signer.verifier], keys)
        assert checkpoint == reader.checkpoint()
        assert {line.name for line in note.signatures} == {signer.name, OURS.name}
        served = open_storage(f"{server.address}/{origin_hash(signer.name)}")
        assert list(LogReader(served, [signer.verifier], log="").entries()) == list(reader.entries())
        subtree = Subtree(signer.name, 256, 512, subtree_root(256, 512, reader.hash))
        proof = subtree_proof(256, 512, 700, reader.hash)
        (line,) = ask_subtree(server.address, str(note).encode(), subtree, proof, keys)
        assert OURS.verifier.verify_subtree(subtree, line.signature)
        with pytest.raises(Refused, match="cosigned first"):
            ask_subtree(server.address, reader.note(), subtree, proof, keys)
        for path in ("/", f"/{'0' * 64}/checkpoint", f"/{origin_hash(signer.name)}/tile/0/9.9"):
            assert asked(server, "GET", path)[0] == 404
        assert asked(server, "GET", "/add-entries")[0] == 405
        assert asked(server, "GET", "/witness/" + origin_hash(signer.name))[0] == 404


def test_a_mirror_signs_under_a_name_of_its_own(kept, signer):
    with pytest.raises(Refused):
        LogMirror(kept, [], {signer.name: [signer.verifier]})
    with pytest.raises(Refused):
        LogMirror(kept, [Cosigner(signer.name, OURS.key)], {signer.name: [signer.verifier]})


def test_another_history_and_an_older_one_are_refused(mirror, kept, signer):
    (reader,) = grown(signer, 400)
    follow_log(post_to(mirror), reader, [OURS.verifier])
    before = dict(kept.files)
    (fork,) = grown(signer, 500, word="another story")
    with pytest.raises(Conflict, match="422"):
        follow_log(post_to(mirror), fork, [OURS.verifier])
    (short,) = grown(signer, 300)
    with pytest.raises(Tampered, match="longer log"):
        follow_log(post_to(mirror), short, [OURS.verifier])
    stranger = Signer(signer.name, Ed25519PrivateKey.from_private_bytes(bytes([5]) * 32))
    (planted,) = grown(stranger, 500)
    with pytest.raises(Conflict, match="403"):
        follow_log(post_to(mirror), planted, [OURS.verifier])
    assert kept.files == before


def test_an_answer_under_another_key_is_none(mirror, signer):
    (reader,) = grown(signer, 5)
    with pytest.raises(Unverified):
        follow_log(post_to(mirror), reader, [OTHER.verifier])


def test_a_copy_that_somebody_changed_is_not_signed(mirror, kept, signer):
    readers = grown(signer, 300, 1)
    follow_log(post_to(mirror), readers[0], [OURS.verifier])
    entries = f"{origin_hash(signer.name)}/tile/entries/001.p/44"
    for name, data in list(kept.files.items()):
        if not name.startswith(origin_hash(signer.name)):
            continue
        changed = bytearray(data)
        changed[len(changed) // 2] ^= 1
        kept.replace(name, bytes(changed))
        if name == entries or name.endswith(("checkpoint", ".p/44", ".p/1")):
            # Malformed: the changed letter of a signature may be no letter of base64
            with pytest.raises((Tampered, Unverified, Conflict, Malformed)):
                follow_log(post_to(mirror), readers[1], [OURS.verifier])
            assert copy_size(kept, signer) != 301
        kept.replace(name, data)
    follow_log(post_to(mirror), readers[1], [OURS.verifier])
    assert copy_of(kept, signer).checkpoint().size == 301


def copy_size(kept, signer):
    return int(kept.files[f"{origin_hash(signer.name)}/checkpoint"].split(b"\n")[1])


# A second client, from the text of the specification


def spec_body(origin, start, end, entries, *, ticket=b"", most=None):
    """`add-entries` as the specification's list of values has it."""
    name = origin.encode()
    body = (
        struct.pack(">H", len(name)) + name + struct.pack(">QQ", start, end) + struct.pack(">H", len(ticket)) + ticket
    )
    first = start // 256 * 256
    count = (-(-end // 256) * 256 - first) // 256 if start != end else 0
    for i in range(count if most is None else most):
        at, stop = max(start, first + i * 256), min(end, first + (i + 1) * 256)
        body += b"".join(struct.pack(">H", len(entry)) + entry for entry in entries[at:stop])
        proof = oracle_subtree_proof(first + i * 256, stop, entries[:end])
        body += bytes([len(proof)]) + b"".join(proof)
    return body


def asked(server, method, path, body=None, headers=None, encode_chunked=False):
    place = urlsplit(server.address)
    connection = http.client.HTTPConnection(place.hostname, place.port)
    connection.request(method, path, body, headers or {}, encode_chunked=encode_chunked)
    reply = connection.getresponse()
    found = reply.status, reply.headers.get("Content-Type"), reply.read()
    connection.close()
    return found


OCTETS = {"Content-Type": "application/octet-stream"}
INFO = "text/x.tlog.mirror-info"


def test_a_client_from_the_text_alone(mirror, kept, signer):
    readers = grown(signer, 10, 690)
    entries = [entry for _, entry in readers[1].entries()]
    origin = signer.name
    with WitnessServer(mirror) as server:

        def send(origin, start, end, entries, most=None):
            return asked(server, "POST", "/add-entries", spec_body(origin, start, end, entries, most=most), OCTETS)

        assert send("log.example/nobody", 0, 10, entries)[0] == 404
        assert send(origin, 0, 10, entries)[0] == 422  # no checkpoint came
        for reader, old in ((readers[0], 0), (readers[1], 10)):
            request = WitnessRequest(old, tuple(reader.consistency_proof(old)) if old else (), reader.note()).encode()
            assert asked(server, "POST", "/add-checkpoint", request)[::2] == (200, b"")
        assert send(origin, 0, 11, entries) == (409, INFO, b"700\n0\n\n")  # no checkpoint of that size
        assert send(origin, 1, 700, entries) == (409, INFO, b"700\n0\n\n")  # beyond the next entry
        assert send(origin, 700, 700, entries) == (409, INFO, b"700\n0\n\n")
        assert send(origin, 0, 700, entries, most=0)[0] == 400
        altered = [*entries[:3], entries[3] + b" ", *entries[4:]]
        body = spec_body(origin, 0, 700, entries).replace(
            struct.pack(">H", len(entries[3])) + entries[3], struct.pack(">H", len(altered[3])) + altered[3]
        )
        assert asked(server, "POST", "/add-entries", body, OCTETS)[0] == 422
        assert send(origin, 0, 10, entries)[0] == 200  # an older checkpoint that was accepted
        assert copy_size(kept, signer) == 10
        cut = spec_body(origin, 10, 700, entries)
        assert asked(server, "POST", "/add-entries", cut[:60], OCTETS)[0] == 400
        assert send(origin, 10, 700, entries, most=1) == (202, INFO, b"700\n256\n\n")
        whole = spec_body(origin, 256, 700, entries)
        assert asked(server, "POST", "/add-entries", whole[:-5], OCTETS) == (202, INFO, b"700\n512\n\n")
        # What is there already may be sent again; in chunks, and in gzip.
        again = gzip.compress(spec_body(origin, 3, 700, entries))
        chunks = (again[at : at + 999] for at in range(0, len(again), 999))
        status, _, lines = asked(
            server, "POST", "/add-entries", chunks, OCTETS | {"Content-Encoding": "gzip"}, encode_chunked=True
        )
        assert status == 200
        (line,) = parse_note(b"x\n\n" + lines).signatures
        assert OURS.verifier.verify(str(readers[1].checkpoint()), line.signature)
        assert send(origin, 0, 10, entries)[0] == 409  # behind the copy now
        assert send(origin, 700, 700, entries)[0] == 200  # signed once more, with a newer time
    assert list(copy_of(kept, signer).entries()) == list(enumerate(entries))


@pytest.mark.parametrize(
    ("headers", "status"),
    [
        ({"Content-Length": "x"}, 411),
        ({"Content-Length": "5", "Transfer-Encoding": "chunked"}, 411),
        ({"Content-Length": "5", "Content-Encoding": "br"}, 415),
        ({"Content-Length": "5", "Content-Encoding": "gzip"}, 400),
        ({"Transfer-Encoding": "chunked"}, 400),
    ],
)
def test_bodies_that_are_none_have_a_status(mirror, headers, status):
    with WitnessServer(mirror) as server:
        place = urlsplit(server.address)
        connection = http.client.HTTPConnection(place.hostname, place.port)
        connection.putrequest("POST", "/add-entries")
        for name, value in headers.items():
            connection.putheader(name, value)
        connection.endheaders(b"hello\r\n")
        reply = connection.getresponse()
        assert (reply.status, reply.headers["Accept-Encoding"]) == (status, "gzip")
        connection.close()


def test_a_body_that_drips_ends(mirror, signer):
    """A package has one deadline: bytes now and then buy no time."""
    (reader,) = grown(signer, 300)
    mirror.add_checkpoint(WitnessRequest(0, (), reader.note()).encode())
    body = spec_body(signer.name, 0, 300, [entry for _, entry in reader.entries()])
    with WitnessServer(mirror, request_seconds=0.2) as server:
        place = urlsplit(server.address)
        connection = http.client.HTTPConnection(place.hostname, place.port)
        connection.putrequest("POST", "/add-entries")
        connection.putheader("Content-Length", str(len(body)))
        connection.endheaders(body[:200])
        with pytest.raises((http.client.RemoteDisconnected, ConnectionResetError)):
            connection.getresponse()
        connection.close()


def test_a_crowd_of_uploads_that_stall_keeps_nobody_from_sending(mirror, signer):
    """The entries of a public log are anybody's to send again; the seats that one address takes are its own to lose."""
    (reader,) = grown(signer, 300)
    mirror.add_checkpoint(WitnessRequest(0, (), reader.note()).encode())
    head = spec_body(signer.name, 0, 300, [], most=0)
    with WitnessServer(mirror, request_seconds=60) as server, ExitStack() as stack:
        place = urlsplit(server.address)
        for _ in range(12):
            stalled = stack.enter_context(closing(http.client.HTTPConnection(place.hostname, place.port)))
            stalled.putrequest("POST", "/add-entries")
            stalled.putheader("Content-Length", "100000")
            stalled.endheaders(head)
        assert follow_log(mirror_at(server.address), reader, [OURS.verifier])


def test_no_stranger_makes_it_hold_more_than_a_package(mirror, signer):
    """Zeroes in gzip: entries of no bytes, which no checkpoint has."""
    (reader,) = grown(signer, 300)
    mirror.add_checkpoint(WitnessRequest(0, (), reader.note()).encode())
    head = spec_body(signer.name, 0, 300, [], most=0)
    bomb = gzip.compress(head + bytes(50_000_000))
    answer = mirror.add_entries(bytes_upload(bomb, {"Content-Encoding": "gzip"}))
    assert answer.status == 422


def test_any_order_of_requests_keeps_one_history(signer, kept, mirror):
    """Cuts, repetitions, older checkpoints and bodies with a wrong bit, drawn: what is signed is the log."""
    drawn = random.Random(20261129)
    readers = grown(signer, 3, 250, 3, 300, 100)
    sizes = [reader.checkpoint().size for reader in readers]
    entries = [entry for _, entry in readers[-1].entries()]
    known = 0
    for _ in range(120):
        if (kind := drawn.random()) < 0.15 and known < len(readers):
            reader, old = readers[known], sizes[known - 1] if known else 0
            proof = tuple(reader.consistency_proof(old)) if old else ()
            assert mirror.add_checkpoint(WitnessRequest(old, proof, reader.note()).encode()).status == 200
            known += 1
            continue
        end = drawn.choice(sizes)
        start = drawn.choice([0, 3, 253, 256, min(end, 512), end])
        body = spec_body(signer.name, min(start, end), end, entries)
        if kind < 0.5:
            body = body[: drawn.randrange(len(body))]
        elif kind < 0.7:
            changed = bytearray(body)
            changed[drawn.randrange(len(body))] ^= 1 << drawn.randrange(8)
            body = bytes(changed)
        status = mirror.add_entries(bytes_upload(body, {})).status
        assert status in (200, 202, 400, 404, 409, 422)
        if f"{origin_hash(signer.name)}/checkpoint" in kept.files:
            size = copy_size(kept, signer)
            assert [entry for _, entry in copy_of(kept, signer).entries()] == entries[:size]
    for reader in readers[known:]:
        follow_log(post_to(mirror), reader, [OURS.verifier])
    follow_log(post_to(mirror), readers[-1], [OURS.verifier])
    assert check(kept, [signer.verifier], log=origin_hash(signer.name)) == []
    assert list(copy_of(kept, signer).entries()) == list(enumerate(entries))


def test_it_follows_the_copy_of_another_mirror(mirror, kept, signer, tmp_path):
    """A mirror's copy is a log: the next one takes it from there, and its own reader needs only the log's key."""
    (reader,) = grown(signer, 300)
    follow_log(post_to(mirror), reader, [OURS.verifier])
    second = PosixStorage(tmp_path)
    farther = LogMirror(second, [OTHER], {signer.name: [signer.verifier]})
    follow_log(post_to(farther), copy_of(kept, signer), [OTHER.verifier])
    assert copy_of(second, signer).leaf_hash(299) == leaf_hash(reader.entry(299))


def test_a_mirror_that_always_waits_for_more_is_left(signer):
    """One that names entries beyond the log's end for ever keeps nobody from an end."""
    (reader,) = grown(signer, 3)
    times = 0

    def posted(path, body, headers):
        nonlocal times
        if path == "/add-checkpoint":
            return 200, b""
        times += 1
        assert times < 100
        return 409, MirrorInfo(3, 10**6 + times).encode()

    with pytest.raises(Conflict, match="does not go on"):
        follow_log(posted, reader, [OURS.verifier])
