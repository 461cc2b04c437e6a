"""``python tests/golden/vectors_made.py``: the vectors below ``vectors/`` that are not there yet, made by this implementation.
What is there is never changed; ``vectors/README.md`` says what they are."""

from __future__ import annotations

import base64
import hashlib
import sys
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import LogCheckpoint, Signer, canonical_bytes, digest_bytes, parse_canonical, tensor_digest
from ledger.errors import LedgerError
from ledger.format.proof import LogProof
from ledger.format.tlog import leaf_hash
from marin.plugins.exact import known, reference

FOLDER = Path(__file__).with_name("vectors")
INDEX, VERSION = "index.json", 2
PACK = b"marin.packfile/1"


def coded(data: bytes) -> str:
    return base64.b64encode(data).decode()


def array(value: Any) -> dict[str, Any]:
    """A tensor: its bytes are its elements in C order, little-endian."""
    own = np.asarray(value, order="C")  # ascontiguousarray gives a number an axis
    return {
        "bytes": coded(own.astype(own.dtype.newbyteorder("<"), copy=False).tobytes()),
        "dtype": str(own.dtype),
        "shape": list(own.shape),
    }


def programs() -> Iterator[tuple[str, Any]]:
    """Every group of the known answers (marin/plugins/exact/known.py), as the reference computes it."""
    for name, case in known.cases().items():
        program = case.made().program
        outputs = reference.run(program, case.arguments)
        assert known.digest(outputs) == known.ANSWERS[name]
        given = zip(case.arguments, program.of(program.inputs), strict=True)
        yield (
            f"exact-{name.replace(' ', '-')}.json",
            {
                "constants": {tensor_digest(value): array(value) for value in program.values()},
                "inputs": [array(np.asarray(value, form.dtype)) for value, form in given],
                "outputs": [array(value) for value in outputs],
                "program": program.plain(),
            },
        )


TEXTS = [
    b"{}",
    b"[]",
    b'{"a":1}',
    b'{"b":1,"a":2}',
    b'{"a":1,"a":1}',
    b'{"a": 1}',
    b'{"a":1}\n',
    b"[1.0]",
    b"[1.5]",
    b"[-0]",
    b"[1e21]",
    b"[1e+21]",
    b"[100000000000000000000]",
    b"[9007199254740991]",
    b"[9007199254740993]",
    b"[1e400]",
    b"[NaN]",
    b"[5e-324]",
    b"[01]",
    b"[0.1]",
    b"[1E2]",
    b'["\\u0061"]',
    b'["\\n"]',
    b'["\\u000a"]',
    b'["\\u001f"]',
    b'["\\u001F"]',
    b'["\\/"]',
    b'["\\ud800"]',
    b'["\\ud83d\\ude00"]',
    '["\U0001f600"]'.encode(),
    '["\u00e9"]'.encode(),
    '["e\u0301"]'.encode(),
    '{"\u20ac":1,"\U0001f600":2,"\ufb33":3}'.encode(),
    '{"\u20ac":1,"\ufb33":3,"\U0001f600":2}'.encode(),
    b'["\xff"]',
    b"\xef\xbb\xbf[]",
    b'{"__proto__":1}',
    b"true",
    b"null",
    b"",
    b"[",
]


def json_texts() -> Any:
    """Bytes, and whether they are canonical JSON."""

    def is_canonical(data: bytes) -> bool:
        try:
            parse_canonical(data)
        except LedgerError:
            return False
        return True

    return [{"bytes": coded(data), "canonical": is_canonical(data)} for data in TEXTS]


def notes() -> Any:
    """Signed notes of checkpoints, under a key, and whether its holder signed them."""
    signer = Signer("log.example/spec", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    other = Signer("log.example/spec", Ed25519PrivateKey.from_private_bytes(bytes(32)))
    checkpoint = LogCheckpoint("log.example/spec", 3, bytes(range(32)))
    good = checkpoint.sign([signer])
    told = {
        "signed": (good, True),
        "signed by two": (checkpoint.sign([other, signer]), True),
        "signed by another": (checkpoint.sign([other]), False),
        "another size": (good.replace("\n3\n", "\n4\n"), False),
        "no empty line": (good.replace("\n\n", "\n"), False),
        "a byte more at the end": (good + "\n", False),
        "base64 with stray bits": (good.replace("=\n\n", "F=\n\n"), False),
    }
    return [
        {"key": str(signer.verifier), "name": name, "note": note, "signed": signed}
        for name, (note, signed) in told.items()
    ]


def tensors() -> Any:
    """Tensors and their digests."""
    draw = np.random.default_rng(57)
    values = [
        np.array(7, np.int64),
        np.arange(6, dtype=np.float32).reshape(2, 3),
        np.zeros((0, 4), np.uint8),
        np.array([True, False, True]),
        draw.integers(0, 2**16, 5, dtype=np.uint16),
        np.array([-0.0, np.inf, 5e-324]),
    ]
    return [array(value) | {"digest": tensor_digest(value)} for value in values]


def proofs() -> Any:
    """Proofs that carry their entry, under a key, and whether they show that the log has it."""
    signer = Signer("log.example/spec", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
    entries = [f'{{"n":{n}}}'.encode() for n in range(7)]
    leaves = [leaf_hash(entry) for entry in entries]
    note = LogCheckpoint("log.example/spec", 7, root_of(leaves)).sign([signer])
    right = [LogProof(n, tuple(path_of(n, leaves)), note, entries[n]) for n in range(7)]
    one, more = right[3], (bytes(32),)
    told = {f"entry {proof.index}": (str(proof), True) for proof in right} | {
        "another entry": (str(replace(one, extra=entries[4])), False),
        "another index": (str(replace(one, index=2)), False),
        "an index behind the end": (str(replace(one, index=7)), False),
        "hashes in another order": (str(replace(one, hashes=one.hashes[::-1])), False),
        "a hash less": (str(replace(one, hashes=one.hashes[:-1])), False),
        "a hash more": (str(replace(one, hashes=one.hashes + more)), False),
        "another size": (str(one).replace("\n7\n", "\n8\n"), False),
        "an index with a zero before it": (str(one).replace("index 3", "index 03"), False),
        "base64 with stray bits": (str(one).replace("extra eyJuIjozfQ==", "extra eyJuIjozfR=="), False),
        "another first line": (str(one).replace("@v1", "@v2"), False),
        "no note": (str(one).partition("\n\n")[0], False),
        "of a log with one entry": (
            str(LogProof(0, (), LogCheckpoint("log.example/spec", 1, leaves[0]).sign([signer]), entries[0])),
            True,
        ),
    }
    return [
        {"key": str(signer.verifier), "name": name, "proof": proof, "shown": shown}
        for name, (proof, shown) in told.items()
    ]


def root_of(leaves: list[bytes]) -> bytes:
    """RFC 9162, section 2.1.1, word for word: no code of the log's."""
    if len(leaves) == 1:
        return leaves[0]
    cut = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + root_of(leaves[:cut]) + root_of(leaves[cut:])).digest()


def path_of(index: int, leaves: list[bytes]) -> list[bytes]:
    """Section 2.1.3.1 likewise."""
    if len(leaves) == 1:
        return []
    cut = 1 << (len(leaves) - 1).bit_length() - 1
    if index < cut:
        return [*path_of(index, leaves[:cut]), root_of(leaves[cut:])]
    return [*path_of(index - cut, leaves[cut:]), root_of(leaves[:cut])]


def manifests() -> Any:
    """Lists of a tree's files, and whether they are one."""
    blob, large = {"digest": f"sha256:{'a' * 64}", "executable": False, "size": 3}, 8 * 1024 * 1024 + 1

    def files(*paths: str, **changed: Any) -> list[dict[str, Any]]:
        return [blob | {"path": path} | changed for path in paths]

    told: dict[str, tuple[Any, bool]] = {
        "no file": ([], True),
        "three files": (files("a", "b/c", "b/d"), True),
        "an executable one": (files("a", executable=True), True),
        "by the bytes of names": (files("Z", "a", "\u00e9", "\ufb33", "\U0001f600"), True),
        "a large one": (files("a", size=large, parts="b" * 64), True),
        "out of order": (files("b", "a"), False),
        "one twice": (files("a", "a"), False),
        "two that differ in case": (files("A", "a"), False),
        "two that differ in how a letter is composed": (files("e\u0301", "\u00e9"), False),
        "a file that is a folder too": (files("a", "a/b"), False),
        "a way out": (files("../a"), False),
        "a way round": (files("a/./b"), False),
        "from the top": (files("/a"), False),
        "a name of Git": (files(".git/config"), False),
        "a device of another system": (files("aux.txt"), False),
        "a point at the end": (files("a."), False),
        "an empty name": (files("a//b"), False),
        "a line in a name": (files("a\nb"), False),
        "a size below none": (files("a", size=-1), False),
        "a malformed digest": (files("a", digest="sha256:" + "A" * 64), False),
        "no word on whether it is executed": (files("a", executable=None), False),
        "parts of a small one": (files("a", parts="b" * 64), False),
        "a large one without parts": (files("a", size=large), False),
        "a member more": (files("a", owner="root"), False),
    }
    found = [
        {
            "bytes": coded(canonical_bytes({"entries": entries, "kind": "tree", "version": 1})),
            "name": name,
            "tree": tree,
        }
        for name, (entries, tree) in told.items()
    ]
    others = {
        "another version": canonical_bytes({"entries": [], "kind": "tree", "version": 2}),
        "another kind": canonical_bytes({"entries": [], "kind": "state", "version": 1}),
        "a space": b'{"entries": [],"kind":"tree","version":1}',
        "no object": b"[]",
    }
    return [*found, *({"bytes": coded(data), "name": name, "tree": False} for name, data in others.items())]


def packfiles() -> Any:
    """Packfiles by their names, whether they are one, and what they hold; the sha256 of each blob is still to be asked."""
    blobs = sorted((b"one", b"another", b""), key=lambda blob: hashlib.sha256(blob).digest())

    def packed(places: list[tuple[bytes, int, int]], body: bytes, magic: bytes = PACK) -> tuple[str, bytes]:
        index = b"".join(
            hashlib.sha256(blob).digest() + start.to_bytes(8) + size.to_bytes(4) for blob, start, size in places
        )
        tail = index + len(places).to_bytes(8) + PACK
        return hashlib.sha256(tail).hexdigest(), magic + body + tail

    places = [(blob, 16 + sum(map(len, blobs[:n])), len(blob)) for n, blob in enumerate(blobs)]
    body = b"".join(blobs)
    name, data = packed(places, body)
    outside = [*places[:2], (places[2][0], 16 + len(body), 1)]
    told = {
        "three blobs": (name, data, True),
        "none": (*packed([], b""), True),
        "under another name": ("0" * 64, data, False),
        "a bit of the index": (name, data[:-30] + bytes([data[-30] ^ 1]) + data[-29:], False),
        "a blob behind the end": (*packed(outside, body), False),
        "a blob before the beginning": (*packed([(places[0][0], 0, 3), *places[1:]], body), False),
        "not by digest": (*packed(places[::-1], body), False),
        "one blob twice": (*packed([places[0], *places], body), False),
        "another beginning": (*packed(places, body, b"marin.packfile/2"), False),
        "a count of more than there is": (name, data[:-24] + (99).to_bytes(8) + PACK, False),
        "no tail": (name, data[:-1], False),
    }
    holds = {f"sha256:{hashlib.sha256(blob).hexdigest()}": coded(blob) for blob in blobs}
    return [
        {
            "bytes": coded(data),
            "holds": holds if case == "three blobs" else {},
            "name": case,
            "packfile": good,
            "stored_as": name,
        }
        for case, (name, data, good) in told.items()
    ]


def tiles() -> Any:
    """Bundles of entries beside the tile of their hashes, and whether they are those of so many entries; no code of the log's."""

    def bundle(entries: list[bytes]) -> bytes:
        return b"".join(len(one).to_bytes(2, "big") + one for one in entries)

    def hashes(entries: list[bytes]) -> bytes:
        return b"".join(hashlib.sha256(b"\x00" + one).digest() for one in entries)

    few, full = [b"first", b"", b"third"], [b"entry %d" % n for n in range(256)]
    told = {
        "one entry": ([b"{}"], b"", b"", 1),
        "three, one of them without a byte": (few, b"", b"", 3),
        "a full tile": (full, b"", b"", 256),
        "the longest entry": ([b"x" * 65535], b"", b"", 1),
        "a byte after them": (few, b"\x00", b"", 3),
        "a length without its entry": (few, b"\x00\x01", b"", 4),
        "more than are counted": (few, b"", b"", 2),
        "fewer than are counted": (few, b"", b"", 4),
        "a hash after them": (few, b"", bytes(32), 3),
    }
    good = 4
    cases = [
        {
            "bundle": coded(bundle(entries) + more),
            "count": count,
            "name": name,
            "tile": coded(hashes(entries) + other),
            "tiles": number < good,
        }
        for number, (name, (entries, more, other, count)) in enumerate(told.items())
    ]
    swapped = {"bundle": coded(bundle(few)), "count": 3, "name": "hashes in another order", "tiles": False}
    return [*cases, swapped | {"tile": coded(hashes(few[::-1]))}]


def made() -> Iterator[tuple[str, bytes]]:
    """All vectors, by name."""
    yield "json.json", canonical_bytes(json_texts())
    yield "notes.json", canonical_bytes(notes())
    yield "tensors.json", canonical_bytes(tensors())
    yield "proofs.json", canonical_bytes(proofs())
    yield "manifests.json", canonical_bytes(manifests())
    yield "packfiles.json", canonical_bytes(packfiles())
    yield "tiles.json", canonical_bytes(tiles())
    for name, value in programs():
        yield name, canonical_bytes(value)


def index() -> Any:
    """The version of the suite, and the digest of each of its files."""
    files = {path.name: digest_bytes(path.read_bytes()) for path in FOLDER.glob("*.json") if path.name != INDEX}
    return {"files": files, "version": VERSION}


if __name__ == "__main__":
    for name, data in made():
        path = FOLDER / name
        if not path.exists():
            path.write_bytes(data)
            sys.stdout.write(f"{path.name}: {len(data)} bytes\n")
    (FOLDER / INDEX).write_bytes(canonical_bytes(index()))
