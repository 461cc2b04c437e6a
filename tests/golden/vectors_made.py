"""``python tests/golden/vectors_made.py``: the vectors below ``vectors/`` that are not there yet, made by this implementation.
What is there is never changed; ``vectors/README.md`` says what they are."""

from __future__ import annotations

import base64
import hashlib
import io
import operator
import sys
import tarfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import (
    LogCheckpoint,
    Signer,
    canonical_bytes,
    canonical_digest,
    digest_bytes,
    parse_canonical,
    tensor_digest,
)
from ledger.errors import LedgerError
from ledger.format.proof import LogProof
from ledger.format.tlog import leaf_hash
from ledger.store.packs.packing import compress_planes
from marin.plugins.exact import known, reference
from marin.plugins.exact.compiled import exact
from marin.plugins.exact.program import Factors, Form, Operation, Program

FOLDER = Path(__file__).with_name("vectors")
INDEX, VERSION = "index.json", 3
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


def fewer_bits() -> Any:
    """A product whose factors have eight bits (docs/exact.md, "Fewer bits"): rows of every size, zeros, ties, one not finite."""
    left, right = known.numbers(21, 9, 24), known.numbers(22, 24, 7)
    left *= np.exp2(np.arange(-120, 120, 27, dtype=np.float32))[:, None]
    left[2], left[3], left[5, 3] = 0, np.resize(np.float32([1, 0.501953125, 0.498046875]), 24), np.inf
    program = exact(operator.matmul, left, right, factors=Factors(8)).program
    return executed(program, (left, right))


def executed(program: Program, arguments: Sequence[np.ndarray]) -> dict[str, Any]:
    """A program with its inputs, and its outputs by the reference."""
    return {
        "constants": {tensor_digest(value): array(value) for value in program.values()},
        "inputs": [array(value) for value in arguments],
        "outputs": [array(value) for value in reference.run(program, arguments)],
        "program": program.plain(),
    }


def whole_programs() -> Iterator[tuple[str, Any]]:
    """The programs of the run that is kept (exact.tar.gz), one after the other: its initial state, the gradient of a batch there,
    and the update by it."""
    with tarfile.open(FOLDER.with_name("exact.tar.gz")) as archive:
        files = {
            Path(one.name).name: archive.extractfile(one)
            for one in archive
            if "/programs/" in one.name and one.isfile()
        }
        held = {name: file.read() for name, file in files.items() if file is not None}
    plain = {name.removesuffix(".json"): parse_canonical(data) for name, data in held.items() if len(name) == 69}
    by_inputs = {len(told["inputs"]): told for told in plain.values()}
    initial, gradient, update = (program_of(by_inputs[count], held) for count in sorted(by_inputs))
    first = reference.run(initial, ())
    params, moments = first[3:14], first[14:]
    tokens = (np.arange(128).reshape(8, 16) ** 2 * 3 % 61 * 29 % 260).astype(np.int32)
    weights = np.ones((8, 16), np.float32)
    weights[:, -1] = 0
    sums = reference.run(gradient, (*params, tokens, weights))
    rows = [
        value.reshape(form.shape)
        for value, form in zip((*params, *moments, *sums), update.of(update.inputs), strict=True)
    ]
    yield "exact-run-initial.json", executed(initial, ())
    yield "exact-run-gradient.json", executed(gradient, (*params, tokens, weights))
    yield "exact-run-update.json", executed(update, rows)


def program_of(plain: Any, held: Mapping[str, bytes]) -> Program:
    """A program of its plain form, with the constants that were published beside it."""
    forms = tuple(Form(dtype, tuple(shape)) for dtype, shape in plain["forms"])
    program = Program(
        forms,
        tuple(plain["inputs"]),
        tuple(
            (
                number,
                np.frombuffer(held[digest.removeprefix("sha256:")], forms[number].dtype).reshape(forms[number].shape),
            )
            for number, digest in plain["constants"]
        ),
        tuple(
            Operation(name, tuple(taken), tuple(made), settings, tuple(program_of(body, held) for body in bodies))
            for name, taken, made, settings, bodies in plain["operations"]
        ),
        tuple(plain["outputs"]),
    )
    assert program.plain() == plain
    return program


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


def entries() -> Any:
    """Entries, and whether each is an event: its members, their forms and sizes, and canonical bytes."""
    event: dict[str, Any] = {
        "actor": "marin",
        "body": {"n": 1},
        "id": "a1",
        "seq": 0,
        "stream": "run/a",
        "time": "2026-11-29T12:00:00.000000Z",
        "type": "run.started/v1",
    }
    room = 65535 - len(canonical_bytes(event | {"body": {"text": ""}}))
    right: dict[str, dict[str, Any]] = {
        "an event": {},
        "an empty body": {"body": {}},
        "characters of three and four bytes": {"actor": "\u20ac\U0001f600", "body": {"\U0001f600": 1, "\ufb33": 2}},
        "an actor of 200 characters": {"actor": "\U0001f600" * 200},
        "an id with all that it may have": {"id": "A-z_0.:/@=+"},
        "an id of 200 characters": {"id": "a" * 200},
        "a stream of parts": {"stream": "a/B.c_d@e=f-9/0"},
        "a type that nobody knows": {"type": "nobody.knows-this_one/v12"},
        "the largest number of a stream": {"seq": 2**53 - 1},
        "a number that is no integer": {"body": {"n": 0.1}},
        "the longest entry": {"body": {"text": "x" * room}},
    }
    wrong: dict[str, dict[str, Any]] = {
        "an entry too long": {"body": {"text": "x" * (room + 1)}},
        "no actor": {"actor": ""},
        "an actor of 201 characters": {"actor": "a" * 201},
        "a line in an actor": {"actor": "a\nb"},
        "a deletion in an actor": {"actor": "a\x7f"},
        "a body that is a list": {"body": []},
        "a body that is null": {"body": None},
        "an id that begins with a point": {"id": ".a"},
        "an id of 201 characters": {"id": "a" * 201},
        "an id with a line behind it": {"id": "a\n"},
        "an id that is a number": {"id": 1},
        "a number below none": {"seq": -1},
        "a number in a string": {"seq": "0"},
        "half a number": {"seq": 0.5},
        "true for a number": {"seq": True},
        "a stream with an empty part": {"stream": "a//b"},
        "a stream that ends in a slash": {"stream": "a/"},
        "a stream that begins with a point": {"stream": ".a"},
        "a time without microseconds": {"time": "2026-11-29T12:00:00Z"},
        "a time of another zone": {"time": "2026-11-29T12:00:00.000000+00:00"},
        "a type without a version": {"type": "run.started"},
        "a type with a capital": {"type": "Run/v1"},
        "a type of many characters": {"type": "a" * 121 + "/v1"},
        "a member more": {"more": 1},
    }
    cases = [(name, canonical_bytes(event | told), True) for name, told in right.items()]
    cases += [(name, canonical_bytes(event | told), False) for name, told in wrong.items()]
    text = canonical_bytes(event)
    less = canonical_bytes({name: value for name, value in event.items() if name != "actor"})
    cases += [
        ("a member less", less, False),
        (
            "members in another order",
            b'{"type":"run.started/v1",' + text[1:].replace(b',"type":"run.started/v1"', b""),
            False,
        ),
        ("a space", text.replace(b":", b": ", 1), False),
        ("a line behind it", text + b"\n", False),
        ("a body twice", text.replace(b'"body":{"n":1}', b'"body":{"n":1},"body":{"n":1}'), False),
        ("a letter as an escape", text.replace(b"marin", b"\\u006darin"), False),
        ("bytes that are no UTF-8", text.replace(b"marin", b"\xffarin"), False),
        ("half a pair", text.replace(b"marin", b"\\ud83d"), False),
        ("a list", b"[]", False),
        ("nothing", b"", False),
    ]
    return [{"bytes": coded(data), "event": good, "name": name} for name, data, good in cases]


LARGE = 8 * 1024 * 1024


def blobs() -> Any:
    """Blobs, as pieces that are repeated, and whether a digest is theirs; both digests of a large one are computed here from the
    text of ledger/SPEC.md, by no code of the store's."""

    def parts_root(data: bytes) -> str:
        leaves = [hashlib.sha256(b"\x00" + data[at : at + LARGE]).digest() for at in range(0, len(data), LARGE)]
        return root_of(leaves).hex()

    def plain(data: bytes) -> str:
        return hashlib.sha256(data).hexdigest()

    def right(data: bytes) -> str:
        if len(data) > LARGE:
            return plain(b"marin.blob/v1\nparts 8388608\nsize %d\nroot %s\n" % (len(data), parts_root(data).encode()))
        return plain(b"marin.blob/v1\nbytes\n" + data if data.startswith(b"marin.blob/v1\n") else data)

    text = b"marin.blob/v1\nparts 8388608\nsize 8388609\nroot %s\n" % parts_root(bytes(LARGE + 1)).encode()
    told: dict[str, list[tuple[bytes, int]]] = {
        "no byte": [],
        "some": [(b"alpha\n", 1)],
        "the header": [(b"marin.blob/v1\n", 1)],
        "the header without its line feed": [(b"marin.blob/v1", 1)],
        "what a large one is hashed as": [(text, 1)],
        "the largest small one": [(b"\x00", LARGE)],
        "a byte more": [(b"\x00", LARGE + 1)],
        "three parts": [(b"ab", LARGE), (b"c", 3)],
        "a large one that begins with the header": [(b"marin.blob/v1\n", 1), (b"\x00", LARGE)],
    }
    cases = []
    for name, pieces in told.items():
        data = b"".join(piece * count for piece, count in pieces)
        headed, large = data.startswith(b"marin.blob/v1\n"), len(data) > LARGE
        asked = {right(data): True, plain(data): not headed, plain(data + b"\x00"): False}
        if not large:
            asked[right(data)] = True
        cases += [
            {
                "blob": good,
                "digest": f"sha256:{digest}",
                "name": f"{name}: {digest[:8]}",
                "pieces": [{"bytes": coded(piece), "times": count} for piece, count in pieces],
            }
            for digest, good in asked.items()
        ]
    return cases


def packed() -> Any:
    """Stores in which a blob is made of others, and the bytes that are read of it: none where it has to be refused."""
    base, data = known.numbers(31, 300).tobytes(), known.numbers(31, 300) + np.float32(1e-6)
    blob = data.tobytes() + b"rest"
    longer = base + b"base"

    def name(kind: str, value: bytes) -> str:
        digest = hashlib.sha256(value).hexdigest()
        return f"store/{kind}/sha256/{digest[:2]}/{digest[2:]}"

    def record(**fields: Any) -> dict[str, bytes]:
        told = {"digest": digest_bytes(blob), "kind": "packed", "size": len(blob), "version": 1} | fields
        return {name("packed", blob): canonical_bytes(told)}

    def planes(by: int, base: bytes | None = None, **fields: Any) -> dict[str, bytes]:
        frames = compress_planes(memoryview(blob), by, io.BytesIO(base) if base is not None else None)
        kept = {name("blobs", frames): frames} | ({name("blobs", base): base} if base is not None else {})
        at = {"base": digest_bytes(base), "depth": 1} if base is not None else {"base": None, "depth": 0}
        return kept | record(**{"how": "planes", "planes": digest_bytes(frames), "width": by} | at | fields)

    def chunks(*pieces: bytes, **fields: Any) -> dict[str, bytes]:
        listed = [[digest_bytes(piece), len(piece)] for piece in pieces]
        return {name("blobs", piece): piece for piece in pieces} | record(
            **{"how": "chunks", "chunks": listed} | fields
        )

    halves = (blob[:500], blob[500:])
    told: dict[str, tuple[dict[str, bytes], bool]] = {
        "as it is": ({name("blobs", blob): blob}, True),
        "two chunks": (chunks(*halves), True),
        "a chunk twice": (chunks(*halves, halves[1]), False),
        "chunks in another order": (chunks(*halves[::-1]), False),
        "a chunk that is not there": (record(how="chunks", chunks=[[digest_bytes(blob[:500]), 500]]), False),
        "planes of one byte": (planes(1), True),
        "planes of four": (planes(4), True),
        "planes of sixteen, and a rest": (planes(16), True),
        "planes against a base": (planes(4, longer), True),
        "another width": (planes(4, width=2), False),
        "planes of seventeen": (planes(4, width=17), False),
        "a base without a depth": (planes(4, longer, depth=0), False),
        "a depth without a base": (planes(4, depth=1), False),
        "another size": (planes(4, size=len(blob) + 1), False),
        "the record of another": (planes(4, digest=digest_bytes(b"another")), False),
        "a way that nobody has": (planes(4, how="folded"), False),
        "another version": (planes(4, version=2), False),
        "nothing": ({}, False),
    }
    return [
        {
            "digest": digest_bytes(blob),
            "files": {path: coded(value) for path, value in files.items()},
            "name": case,
            "reads": coded(blob) if good else None,
        }
        for case, (files, good) in told.items()
    ]


def states() -> Any:
    """Lists of tensors, in any order, and the digest of the state that they are."""
    names = ["step", "model/\u00e9", "model/e\u0301", "model/Z", "model/a", "model/\ufb33", "model/\U0001f600"]
    lists = [names[:0], names[:1], names, names[::-1]]
    cases = []
    for listed in lists:
        tensors = [
            {"digest": tensor_digest(np.arange(n, dtype=np.int32)), "path": path} for n, path in enumerate(listed)
        ]
        ordered = sorted(tensors, key=lambda one: one["path"].encode())
        digest = canonical_digest({"kind": "state", "tensors": ordered, "version": 1})
        cases.append({"digest": digest, "tensors": tensors})
    return cases


LISTS: dict[str, Callable[[], Any]] = {
    "json.json": json_texts,
    "notes.json": notes,
    "tensors.json": tensors,
    "proofs.json": proofs,
    "manifests.json": manifests,
    "packfiles.json": packfiles,
    "tiles.json": tiles,
    "entries.json": entries,
    "blobs.json": blobs,
    "packed.json": packed,
    "states.json": states,
}
"""What is no program, by the name of its file."""


def all_programs() -> Iterator[tuple[str, Any]]:
    yield from programs()
    yield "exact-fewer-bits.json", fewer_bits()
    yield from whole_programs()


def made() -> Iterator[tuple[str, bytes]]:
    """All vectors, by name."""
    for name, cases in LISTS.items():
        yield name, canonical_bytes(cases())
    for name, value in all_programs():
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
