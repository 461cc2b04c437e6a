"""A fuzz target for each parser of foreign bytes: a value that comes back as the same bytes, or the library's own error.

The inputs are valid ones, changed: bytes flipped, cut out, doubled, moved, numbers made huge, lines repeated, other inputs
spliced in, nested deeper and deeper. So they get further into a parser than random bytes do. `MARIN_FUZZ=100000` makes
that many of each instead of a few hundred. Memory is bounded for every one of them: a length that the input only claims
is not allocated.
"""

import os
import random
import tracemalloc

import pytest

from ledger import (
    Draft,
    Log,
    LogCheckpoint,
    LogReader,
    MemoryStorage,
    WitnessPolicy,
    make_proof,
    verify_proof,
)
from ledger.bundle import pack_entries, unpack_entries
from ledger.canonical import canonical_bytes, parse_canonical
from ledger.checkpoint import open_checkpoint
from ledger.errors import LedgerError
from ledger.event import Event
from ledger.journal import Record, read_records
from ledger.layout import parse_tile_path, tile_path
from ledger.note import VerifierKey, parse_note
from ledger.proof import LogProof
from ledger.wire import decode_drafts, decode_receipts, encode_drafts, encode_receipts

ROUNDS = int(os.environ.get("MARIN_FUZZ", "300"))
MEMORY = 64 << 20
NUMBERS = [b"0", b"-1", b"00", b"65536", b"4294967296", b"18446744073709551616", b"9" * 400, b"1e999", b"\xff\xff\xff\xff"]
PIECES = [b"\n", b"\n\n", "— ".encode(), b"+", b"=", b"\x00", b"\xff", b"{", b"[" * 200,
          b'"', b"\\u0000", b'"\\ud800"', b" ", b"/v1", b"NaN"]


def changed(data: bytes, others: list[bytes], chance: random.Random) -> bytes:
    for _ in range(chance.choice((1, 1, 1, 2, 4))):
        at, end = sorted((chance.randint(0, len(data)), chance.randint(0, len(data))))
        end = min(end, at + chance.choice((1, 2, 8, 300)))
        match chance.randrange(8):
            case 0 if data and at < len(data):
                data = data[:at] + bytes([data[at] ^ (1 << chance.randrange(8))]) + data[at + 1 :]
            case 1:
                data = data[:at] + data[end:]
            case 2:
                data = data[:at] + data[at:end] * chance.choice((2, 3, 50)) + data[end:]
            case 3:
                data = data[:at] + chance.choice(NUMBERS) + data[end:]
            case 4:
                data = data[:at] + chance.choice(PIECES) + data[end:]
            case 5:
                other = chance.choice(others)
                data = data[:at] + other[chance.randint(0, len(other)) :]
            case 6:
                lines = data.split(b"\n")
                chance.shuffle(lines)
                data = b"\n".join(lines)
            case 7:
                data = data[:at]
    return data[: 4 << 20]


@pytest.fixture(scope="module")
def made(signer):
    """A reader of a small log, and valid inputs of each kind."""
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        body = {"f": 1.5, "text": "é\n", "deep": [[{"a": None}]]}
        log.append([Draft("t/v1", "s/1", body | {"n": n}, id=f"id-{n}") for n in range(9)])
    return LogReader(storage, [signer.verifier])


def journal(data):
    storage = MemoryStorage({"log/journal": data})
    return [record.encode() for record in read_records(storage, "log/journal")]


def same(parse, again):
    """A target that also demands that what was accepted comes back as the bytes that were given."""

    def target(data):
        assert again(parse(data)) == data

    return target


def targets(reader, signer):
    note = reader.note()
    proof = str(make_proof(reader, 3)).encode()
    entries = [entry for _, entry in reader.entries()]
    drafts = [Draft("t/v1", "s", {"n": 1}, id="a"), Draft("t/v1", "s", {}, id="b", expect_seq=3, actor="me", time=None)]
    key = [signer.verifier]
    return {
        "note": (same(parse_note, lambda n: str(n).encode()), [note]),
        "checkpoint": (lambda data: open_checkpoint(data, key), [note]),
        "checkpoint text": (
            same(lambda data: LogCheckpoint.parse(data.decode("utf-8", "surrogateescape")),
                 lambda c: str(c).encode("utf-8", "surrogateescape")),
            [note.partition(b"\n\n")[0] + b"\n"],
        ),
        "vkey": (
            same(lambda data: VerifierKey.parse(data.decode("utf-8", "surrogateescape")) if data == data.strip() else data,
                 lambda k: k if isinstance(k, bytes) else str(k).encode("utf-8", "surrogateescape")),
            [str(signer.verifier).encode()],
        ),
        "bundle": (same(unpack_entries, pack_entries), [pack_entries(entries), pack_entries([b""] * 9)]),
        "event": (same(Event.decode, Event.encode), entries),
        "canonical JSON": (same(parse_canonical, canonical_bytes), [*entries, b"[1.5,1e+21,-0.1]", b'{"\xc3\xa9":[]}']),
        "proof": (same(LogProof.parse, lambda p: str(p).encode()), [proof]),
        "proof, verified": (lambda data: verify_proof(LogProof.parse(data), key), [proof]),
        "policy": (WitnessPolicy.parse, [f"log {signer.verifier}\nwitness a {signer.verifier} https://w.example\n"
                                         "group g 1 a\nquorum g\n".encode()]),
        "journal": (journal, [Record(0, note, tuple(entries)).encode()]),
        "request": (decode_drafts, [encode_drafts(drafts)]),
        "answer": (decode_receipts, [encode_receipts([])]),
        "path of a tile": (
            same(lambda data: parse_tile_path(data.decode("utf-8", "surrogateescape")),
                 lambda tile: (tile_path(tile, "") if tile.level >= 0 else "").encode()),
            [b"tile/0/000", b"tile/3/x001/x234/067.p/8"],
        ),
    }  # fmt: skip


KINDS = ["note", "checkpoint", "checkpoint text", "vkey", "bundle", "event", "canonical JSON", "proof", "proof, verified",
         "policy", "journal", "request", "answer", "path of a tile"]  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_changed_inputs_give_a_value_or_our_own_error(made, signer, kind):
    found = targets(made, signer)
    assert set(found) == set(KINDS)
    parse, valid = found[kind]
    others = [data for _, some in found.values() for data in some]
    for data in valid:
        parse(data)  # or the target would test nothing
    chance = random.Random(kind)
    refused = 0
    for _ in range(ROUNDS):
        data = changed(chance.choice(valid), others, chance)
        try:
            parse(data)
        except LedgerError as error:
            refused += 1
            assert "\n" not in str(error)
    assert refused > ROUNDS // 5 or kind == "journal"  # what is no record there is the end of the journal


@pytest.mark.parametrize("kind", KINDS)
def test_claimed_lengths_and_depths_take_no_memory(made, signer, kind):
    parse, valid = targets(made, signer)[kind]
    hostile = [b"[" * 500_000, b'{"a":' * 100_000, b"9" * 200_000, b"\xff" * 500_000, b"\n" * 200_000, b"+" * 200_000,
               valid[0] * 2000, "— a ".encode() * 100_000, b"x000/" * 100_000]  # fmt: skip
    if kind == "journal":
        head = valid[0]
        hostile += [head[:at] + b"\xff" * 8 + head[at + 8 :] for at in range(8, 32)]
    for data in hostile:
        tracemalloc.start()
        try:
            parse(data)
        except LedgerError:
            pass
        finally:
            _, peak = tracemalloc.get_traced_memory()
            tracemalloc.stop()
        assert peak < MEMORY + 20 * len(data), (kind, data[:20], peak)
