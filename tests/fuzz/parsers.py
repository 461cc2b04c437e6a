"""Every parser of bytes that somebody else may have made, in one table: name, function, valid inputs to start from.

A new parser is one line here. `covers` names the public functions that the line calls, as `module.function`;
`test_every_parser_is_fuzzed` compares them with what the packages have.
"""

from __future__ import annotations

import base64
import gzip
import json
import socket
import tempfile
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import cache, partial
from importlib import import_module
from pathlib import Path
from typing import Any

import tensorstore
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from rfc3161_client import decode_timestamp_response

from bench.house.gauges import lacking
from ledger import (
    Draft,
    LedgerError,
    Log,
    LogCheckpoint,
    LogReader,
    Signer,
    Store,
    WitnessPolicy,
    make_certificate,
    make_proof,
    read_certificate,
    verify_proof,
)
from ledger.audit.inventory import parse_tile_path
from ledger.authors.enrolment import read_enrolment, read_revocation
from ledger.authors.statement import read_signed, read_statement
from ledger.format.bundle import pack_entries, unpack_entries
from ledger.format.canonical import canonical_bytes, parse_canonical
from ledger.format.checkpoint import open_checkpoint
from ledger.format.cosigner import Cosigner
from ledger.format.digest import digest_bytes, parse_digest
from ledger.format.event import Event, format_time, parse_event, parse_time
from ledger.format.layout import tile_path
from ledger.format.note import NoteSignature, VerifierKey, decode_base64, open_note, parse_note
from ledger.format.proof import LogProof
from ledger.log.journal import Record, read_records
from ledger.log.trust import follow_keys, named_keys
from ledger.log.vouching.keys import open_vouched
from ledger.mirror.entries import EntriesHead, MirrorInfo, Package, encode_entries
from ledger.service.wire import (
    FrameSocket,
    decode_act,
    decode_done,
    decode_drafts,
    decode_outcome,
    decode_receipts,
    decode_storage_request,
    decode_text,
    encode_done,
    encode_drafts,
    encode_error,
    encode_member,
    encode_receipts,
    encode_storage_request,
)
from ledger.store.collect.leases import Lease
from ledger.store.packs.packfile import read_index
from ledger.store.packs.packing import parse_packed
from ledger.store.parts import PartHashes
from ledger.store.trees.manifest import Manifest
from ledger.store.workers.fileworker import ENTRY, MAGIC, TAIL, index_of
from ledger.tensors.shards import PartialTensor
from ledger.tensors.slices import SlicedForm
from ledger.tensors.statepack import read_state
from ledger.tensors.tensors import StateManifest
from ledger.witness.client import signature_lines
from ledger.witness.instant import instant_of
from ledger.witness.subtree import SubtreeRequest
from ledger.witness.timestamp import load_authorities, verify_stamp
from ledger.witness.upload import bytes_upload
from ledger.witness.witness import WitnessRequest
from marin.cli.ledger.append import parse_object
from marin.cli.ledger.witness import parse_vkey
from marin.data.documents import read_documents, read_texts
from marin.data.network.hub import parse as parse_address
from marin.data.pinned import read_source
from marin.data.tokenizer import load_tokenizer, open_tokenizer, parse_tokenizer
from marin.evaluation.evaluate import read_pairs
from marin.evaluation.folder import folder_recipe
from marin.execution.pointer import read_pointer
from marin.history.table.metric_query import parse as parse_metric
from marin.kinds.known import own_kinds
from marin.provenance.processor import parse_cpuinfo
from marin.recipe.cost import load_prices
from marin.recipe.params import load_params
from marin.record import events
from marin.record.attestation import PAYLOAD_TYPE, STATEMENT, attested
from marin.record.keys import read_request
from marin.record.trust.joined import Joined, read_invitation, split_address
from marin.record.trust.pins import Pin, read_pin
from marin.tensors.reading import array_info
from marin.tensors.token_caches import cache_content
from marin.training.tokens.stored import StoredArray
from tests.ledger.memory import MemoryStorage

PROJECT = Path(__file__).parents[2]
GOLDEN = PROJECT / "tests" / "golden"
CORPUS = Path(__file__).parent / "corpus"
DIGEST = "sha256:" + "ab" * 32
PREDICATE = "urn:marin:test:v1"
SIGNER = Signer("log.example/test", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
KEYS = [SIGNER.verifier]


@dataclass(frozen=True)
class Parser:
    """`call` takes the bytes; `seeds` are inputs that it accepts. What is in corpus/<name>/ is tried as it is."""

    name: str
    call: Callable[[bytes], object]
    seeds: Callable[[], list[bytes]]
    covers: tuple[str, ...] = field(default=())
    most: int = 1 << 20
    """Bytes of a hostile input. Less for YAML, whose reader is slow under a watch of its memory."""
    deepest: int = 10_000
    """Lists in lists of a hostile input. PyYAML's time grows by the square of them; 500 are more than its reader, which
    calls itself for each, comes through."""

    @property
    def kept(self) -> list[bytes]:
        """Inputs that once broke it."""
        return [path.read_bytes() for path in sorted((CORPUS / self.name.replace(" ", "-")).glob("*"))]


def text(parse: Callable[[str], object]) -> Callable[[bytes], object]:
    """A parser of text, given whatever text these bytes can be."""
    return lambda data: parse(data.decode("utf-8", "surrogateescape"))


def on_file(parse: Callable[[Path], object], name: str = "file") -> Callable[[bytes], object]:
    """A parser of a file, or of the folder around it where `name` has a slash."""

    def call(data: bytes) -> object:
        with tempfile.TemporaryDirectory(prefix="marin-fuzz-") as folder:
            path = Path(folder) / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_bytes(data)
            return parse(Path(folder) if "/" in name else path)

    return call


def same(parse: Callable[[bytes], Any], again: Callable[[Any], bytes]) -> Callable[[bytes], object]:
    """A parser that also must give what was accepted back as the bytes that were given."""

    def call(data: bytes) -> None:
        assert again(parse(data)) == data

    return call


@cache
def reader() -> LogReader:
    """A small log."""
    storage = MemoryStorage()
    Log.create(storage, SIGNER)
    with Log.open(storage, SIGNER) as log:
        body = {"f": 1.5, "text": "é\n", "deep": [[{"a": None}]]}
        log.append([Draft("t/v1", "s/1", body | {"n": n}, id=f"id-{n}") for n in range(9)])
    return LogReader(storage, KEYS)


def golden(pattern: str) -> Callable[[], list[bytes]]:
    """Released bytes."""
    return lambda: [path.read_bytes() for path in sorted(GOLDEN.glob(pattern))]


def _packages(data: bytes, coding: str = "") -> object:
    body = bytes_upload(data, {"Content-Encoding": coding})
    head = EntriesHead.read(body)
    return head, Package.read(body, head.start, min(head.end, head.start + 256))


def given(*seeds: bytes) -> Callable[[], list[bytes]]:
    return lambda: list(seeds)


def author_event(data: bytes) -> None:
    """As a writer takes it, and a reader."""
    event = Event.decode(data)
    draft = Draft(event.type, event.stream, event.body, event.id, actor=event.actor)
    for read in (
        lambda: read_enrolment("log.example/events", event.id, event.body),
        lambda: read_revocation("log.example/events", event.id, event.body),
        lambda: read_statement("log.example/events", event.body),
        lambda: read_signed("log.example/events", [draft]),
    ):
        with suppress(LedgerError):
            read()


def entries() -> list[bytes]:
    return [entry for _, entry in reader().entries()]


def journal(data: bytes) -> None:
    for record in read_records(MemoryStorage({"log/journal": data}), "log/journal"):
        record.encode()


def packfile() -> bytes:
    blob = b"a blob"
    index = ENTRY.pack(bytes.fromhex(digest_bytes(blob)[7:]), len(MAGIC), len(blob)) + TAIL.pack(1, MAGIC)
    return MAGIC + blob + index


def whole_packfile(data: bytes) -> None:
    """The index of whatever lies under the name that its own hash gives it."""
    named = digest_bytes(index_of(lambda at, size: data[at : at + size], len(data))) if len(data) > 60 else DIGEST
    name = f"store/packs/sha256/{named[7:9]}/{named[9:]}"
    index = read_index(MemoryStorage({name: data}), name)
    index.check()
    assert all(0 <= place.start <= len(data) for _, place in index)


def tolerant_packfile(data: bytes) -> None:
    try:
        whole_packfile(data)
    except ValueError as error:  # of index_of above, which makes the name
        assert "index" in str(error) or "tail" in str(error)


def greeting(data: bytes) -> object:
    """What the append service reads of somebody unknown."""
    left, right = socket.socketpair()
    with left, right:
        right.sendall(data[: 1 << 16])
        right.shutdown(socket.SHUT_WR)
        frames = FrameSocket(left)
        try:
            frame = frames.greeting(60)
            return None if frame is None else decode_text(frame, "token")
        finally:
            frames.close()


def framed(frame: bytes) -> bytes:
    return len(frame).to_bytes(4) + frame


def partial_tensor() -> list[bytes]:
    return [PartialTensor("float32", (4,), {0: bytes(32)}, {}).encode()]


def state(arrays: bool = False) -> bytes:
    import numpy as np

    from ledger.tensors.tensors import describe_state

    return describe_state({"a/b": np.arange(4, dtype=np.float32)} if arrays else {}).encode()


def packed_state(folder: Path) -> object:
    (folder / "tensors").mkdir()
    (folder / "tensors" / "00000").write_bytes(bytes(16))
    return read_state(folder)


def pointers() -> list[bytes]:
    return [path.read_bytes() for path in sorted((PROJECT / "artifacts").glob("*.json"))]


def zarr() -> list[bytes]:
    with tempfile.TemporaryDirectory() as folder:
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/"}, "metadata": {"shape": [8]}}
        tensorstore.open(spec, create=True, dtype="int32").result()
        return [(Path(folder) / "zarr.json").read_bytes()]


def stored() -> list[bytes]:
    with tempfile.TemporaryDirectory(prefix="marin-fuzz-") as folder:
        codec = {
            "name": "sharding_indexed",
            "configuration": {"chunk_shape": [4], "codecs": [{"name": "bytes"}, {"name": "blosc"}]},
        }
        metadata = {"shape": [8], "chunk_grid": {"name": "regular", "configuration": {"chunk_shape": [8]}}}
        spec = {"driver": "zarr3", "kvstore": {"driver": "file", "path": f"{folder}/"}}
        metadata |= {"codecs": [codec], "data_type": "int32"}
        tensorstore.open(spec | {"metadata": metadata}, create=True).result()
        return [(Path(folder) / "zarr.json").read_bytes()]


def stored_array(folder: Path) -> object:
    store = Store(MemoryStorage())
    return StoredArray(store.folder(store.put_tree(folder).digest) / "x", "int32").dtype


def zarr_array(folder: Path) -> object:
    return array_info({"driver": "file", "path": f"{folder}/"}, "x", 1 << 20)


BODIES = {kind.type: kind.body for kind in own_kinds()}


def event_bodies() -> list[bytes]:
    return [
        canonical_bytes({"type": event.type, "body": event.body})
        for event in (Event.decode(LogProof.parse(data).extra or b"") for data in golden("events/*.tlog-proof")())
        if event.type in BODIES
    ]


def event_body(data: bytes) -> object:
    value = parse_canonical(data)
    kind = BODIES.get(str(value.get("type"))) if isinstance(value, dict) else None
    return None if kind is None else events.write(events.read(kind, value.get("body"), where="fuzz"))


def keys_of(data: bytes) -> object:
    """Links between keys, as a log brings them."""
    return follow_keys(MemoryStorage({"keys/0": data}), KEYS)


def key_event(data: bytes) -> object:
    return named_keys(parse_event(data))


@cache
def stamped() -> tuple[bytes, list[Any]]:
    """An answer of `openssl ts` over "text", and the root that it is under; both kept beside this file."""
    return (CORPUS / "seeds/stamp.tsr").read_bytes(), load_authorities(CORPUS / "seeds/authority.pem")


def token_of(answer: bytes) -> bytes:
    token: bytes = decode_timestamp_response(answer).time_stamp_token()
    return token


def documents() -> list[bytes]:
    line = {"text": "a\n", "source": {"file": "a"}, "metadata": {}, "learned": [[0, 1]]}
    return [json.dumps(line).encode() + b"\n"]


def pins() -> list[bytes]:
    """What is remembered of a log that was seen in two places."""
    pin = Pin(reader().checkpoint(), tuple(KEYS), tuple(KEYS), {"/a/root": 3, "https://log.example": 5})
    return [json.dumps(pin.as_json()).encode()]


TOKENIZER_SETTINGS = (
    b'{"eos_token":"a","bos_token":{"content":"t","lstrip":true},"split_special_tokens":true,"extra_special_tokens":["c"],'
    b'"clean_up_tokenization_spaces":true,"clean_up_tokenization_spaces_for_bpe_even_though_it_will_corrupt_output":true,'
    b'"model_specific_special_tokens":{"x_token":"r"},"model_max_length":1e30}'
)


@cache
def tokenizers() -> list[bytes]:
    """A byte-level BPE of a few merges, as the pipeline's own is made."""
    from tokenizers import Tokenizer, models, pre_tokenizers, trainers

    made = Tokenizer(models.BPE())
    made.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    made.train_from_iterator(["a rat, a cat"] * 9, trainers.BpeTrainer(vocab_size=40, show_progress=False))
    return [made.to_str().encode()]


def folder_of_tokenizer(data: bytes) -> None:
    """As documents are encoded with it in runs of before."""
    with tempfile.TemporaryDirectory(prefix="marin-fuzz-") as base:
        folder = Path(base)
        (folder / "tokenizer.json").write_bytes(data)
        load_tokenizer(folder, as_recorded=True).encode("a rat")


def tokenizer_settings(name: str) -> Callable[[bytes], object]:
    """Settings beside a good tokenizer, in the file of this name."""

    def call(data: bytes) -> None:
        with tempfile.TemporaryDirectory(prefix="marin-fuzz-") as base:
            folder = Path(base)
            (folder / "tokenizer.json").write_bytes(tokenizers()[0])
            (folder / name).write_bytes(data)
            found = open_tokenizer(folder)
            found.decode(found.encode("a rat", add_special_tokens=True).ids, skip_special_tokens=True)
            found.special.id("eos_token")

    return call


def of_plugins() -> list[Parser]:
    """What each plugin's tests add: tests/plugins/NAME/parsers.py."""
    files = [file for file in sorted(PROJECT.glob("tests/plugins/*/parsers.py")) if file.parent.name not in lacking()]
    modules = [import_module(".".join(file.relative_to(PROJECT).with_suffix("").parts)) for file in files]
    return [parser for module in modules for parser in module.PARSERS]


def parsers() -> list[Parser]:
    """The table."""
    note = reader().note()
    proof = str(make_proof(reader(), 3)).encode()
    drafts = [Draft("t/v1", "s", {"n": 1}, id="a"), Draft("t/v1", "s", {}, id="b", expect_seq=3, actor="me", time=None)]
    vkey = str(SIGNER.verifier).encode()
    cosigned = (
        note
        + str(
            Cosigner("w.example", Ed25519PrivateKey.from_private_bytes(bytes(32)), clock=lambda: 9).line(
                parse_note(note).text
            )
        ).encode()
    )
    seen = str(Cosigner("w.example", Ed25519PrivateKey.from_private_bytes(bytes(32))).verifier)
    policy = f"log {vkey.decode()}\nwitness a {seen} https://w.example\ngroup g 1 a\nquorum g\n".encode()
    events = Signer("log.example/events", Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))).verifier
    certificate = make_certificate(Signer("ada@desk", Ed25519PrivateKey.from_private_bytes(bytes(range(1, 33)))))
    package = Package(254, 256, (b"one", b"two"), (bytes(32),) * 3)
    P = Parser
    return [
        P("note", same(parse_note, lambda n: str(n).encode()), given(note, cosigned), ("format.note.parse_note",)),
        P("note opened", lambda data: open_note(data, KEYS), given(note, cosigned), ("format.note.open_note",)),
        P(
            "signature line",
            text(NoteSignature.parse),
            given(note.splitlines()[-1]),
            ("format.note.NoteSignature.parse",),
        ),
        P("base64", text(partial(decode_base64, what="fuzz")), given(b"AAAA"), ("format.note.decode_base64",)),
        P("checkpoint", lambda data: open_checkpoint(data, KEYS), given(note), ("format.checkpoint.open_checkpoint",)),
        P(
            "checkpoint text",
            same(
                lambda data: LogCheckpoint.parse(data.decode("utf-8", "surrogateescape")),
                lambda c: str(c).encode("utf-8", "surrogateescape"),
            ),
            given(note.partition(b"\n\n")[0] + b"\n"),
            ("format.checkpoint.LogCheckpoint.parse",),
        ),
        P("vkey", text(VerifierKey.parse), given(vkey), ("format.note.VerifierKey.parse",)),
        P("vkey on the command line", text(parse_vkey), given(vkey), ("marin.cli.ledger.witness.parse_vkey",)),
        P(
            "tile of hashes and entries",
            same(unpack_entries, pack_entries),
            lambda: [pack_entries(entries()), pack_entries([b""] * 9), *golden("log/tile/entries/*/*")()],
            ("format.bundle.unpack_entries",),
        ),
        P("event", same(Event.decode, Event.encode), entries, ("format.event.Event.decode",)),
        P("event, parsed", parse_event, entries, ("format.event.parse_event",)),
        P("event bodies", event_body, event_bodies, ("marin.record.events.read",)),
        P("pin", on_file(read_pin), pins, ("marin.record.trust.pins.Pin.parse", "marin.record.trust.pins.read_pin")),
        P("tokenizer", partial(parse_tokenizer, where="fuzz"), tokenizers, ("marin.data.tokenizer.parse_tokenizer",)),
        P("folder of a tokenizer", folder_of_tokenizer, tokenizers, ("marin.data.tokenizer.load_tokenizer",)),
        P(
            "settings of a tokenizer",
            tokenizer_settings("tokenizer_config.json"),
            given(TOKENIZER_SETTINGS),
            ("marin.data.tokenizer.open_tokenizer",),
        ),
        P(
            "map of special tokens",
            tokenizer_settings("special_tokens_map.json"),
            given(b'{"eos_token":{"content":"a"},"pad_token":"t","additional_special_tokens":["c"]}'),
        ),
        P(
            "time",
            text(lambda t: format_time(parse_time(t))),
            given(b"2026-11-22T10:00:00.000000Z"),
            ("format.event.parse_time",),
        ),
        P("digest", text(parse_digest), given(DIGEST.encode()), ("format.digest.parse_digest",)),
        P(
            "canonical JSON",
            same(parse_canonical, canonical_bytes),
            lambda: [*entries(), b"[1.5,1e+21,-0.1]", b'{"\xc3\xa9":[]}'],
            ("format.canonical.parse_canonical",),
        ),
        P(
            "proof",
            same(LogProof.parse, lambda p: str(p).encode()),
            lambda: [proof, *golden("events/run*.tlog-proof")()],
            ("format.proof.LogProof.parse",),
        ),
        P("proof, verified", lambda data: verify_proof(LogProof.parse(data), KEYS), given(proof)),
        P("keys handed over", keys_of, golden("events/log.key*.tlog-proof"), ("log.trust.read_links",)),
        P(
            "event of keys",
            key_event,
            lambda: [LogProof.parse(data).extra or b"" for data in golden("events/log.key*.tlog-proof")()],
        ),
        P(
            "event of authors",
            author_event,
            lambda: [LogProof.parse(data).extra or b"" for data in golden("events/log.author*.tlog-proof")()],
            (
                "authors.enrolment.read_enrolment",
                "authors.enrolment.read_revocation",
                "authors.statement.read_statement",
                "authors.statement.read_signed",
            ),
        ),
        P(
            "invitation to a log",
            text(read_invitation),
            given(Joined("lab.example:7420", events, certificate).line().encode()),
            ("marin.record.trust.joined.read_invitation",),
        ),
        P(
            "address of a served root",
            text(split_address),
            given(b"lab.example:7420", b"[::1]:1"),
            ("marin.record.trust.joined.split_address",),
        ),
        P(
            "request for a file of a served root",
            decode_storage_request,
            given(encode_storage_request(["range", "log/checkpoint", 0, 10])),
            ("service.wire.decode_storage_request",),
        ),
        P("certificate of an author", read_certificate, given(certificate), ("authors.certificate.read_certificate",)),
        P(
            "request to be enrolled",
            text(read_request),
            given(b"marin-author:" + base64.b64encode(certificate)),
            ("marin.record.keys.read_request",),
        ),
        P(
            "path of a tile",
            text(lambda t: tile_path(parse_tile_path(t), "") if t.startswith("tile/0") else parse_tile_path(t)),
            given(b"tile/0/000", b"tile/3/x001/x234/067.p/8"),
            ("format.layout.parse_tile_path",),
        ),
        P("journal", journal, lambda: [Record(0, note, tuple(entries())).encode()], ("log.journal.read_records",)),
        P("witness policy", WitnessPolicy.parse, given(policy), ("witness.policy.WitnessPolicy.parse",)),
        P(
            "request to a witness",
            same(WitnessRequest.parse, WitnessRequest.encode),
            given(WitnessRequest(0, (), note).encode(), WitnessRequest(3, (bytes(32),) * 4, note).encode()),
            ("witness.witness.WitnessRequest.parse",),
        ),
        P(
            "proof of a vouched key",
            lambda data: open_vouched(data, [events]),
            lambda: [(PROJECT / "tests/golden/events/log.key-vouched.v1.tlog-proof").read_bytes()],
            ("log.vouching.keys.open_vouched",),
        ),
        P(
            "request for a subtree",
            same(SubtreeRequest.parse, SubtreeRequest.encode),
            given(SubtreeRequest(4, 6, bytes(32), (bytes(32),) * 3, cosigned).encode()),
            ("witness.subtree.SubtreeRequest.parse",),
        ),
        P("answer of a witness", signature_lines, given(cosigned.rpartition(b"\n\n")[2])),
        P(
            "entries for a mirror",
            _packages,
            given(encode_entries(EntriesHead("log.example/x", 254, 256, b"ticket"), [package])),
            ("mirror.entries.EntriesHead.read", "mirror.entries.Package.read"),
        ),
        P(
            "entries for a mirror in gzip",
            lambda data: _packages(data, "gzip"),
            given(gzip.compress(encode_entries(EntriesHead("log.example/x", 254, 256), [package]), mtime=0)),
        ),
        P("answer of a mirror", MirrorInfo.parse, given(b"700\n256\nAAAA\n"), ("mirror.entries.MirrorInfo.parse",)),
        P("time stamp", lambda data: verify_stamp(data, "text", stamped()[1]), lambda: [stamped()[0]]),
        P("time stamp token", instant_of, lambda: [token_of(stamped()[0])]),
        P(
            "authorities",
            on_file(load_authorities),
            given(b"-----BEGIN CERTIFICATE-----\nAAAA\n-----END CERTIFICATE-----\n"),
            ("witness.timestamp.load_authorities",),
        ),
        P("request to append", decode_drafts, given(encode_drafts(drafts)), ("service.wire.decode_drafts",)),
        P(
            "answer of the service",
            decode_receipts,
            lambda: [encode_receipts([]), encode_error(_an_error())],
            ("service.wire.decode_receipts",),
        ),
        P(
            "outcome of an append",
            decode_outcome,
            lambda: [encode_receipts([]), encode_error(_an_error())],
            ("service.wire.decode_outcome",),
        ),
        P("act of the service", decode_act, given(encode_member("do", "ask"), b"{}"), ("service.wire.decode_act",)),
        P("done by the service", decode_done, given(encode_done({"a": 1})), ("service.wire.decode_done",)),
        P(
            "greeting",
            greeting,
            given(framed(encode_member("token", "ab" * 32)), framed(b"{}"), b"GET / HTTP/1.1\r\n\r\n"),
            ("service.wire.decode_text",),
        ),
        P(
            "tree manifest",
            same(Manifest.parse, Manifest.encode),
            golden("store/store/trees/*/*/*"),
            ("store.trees.manifest.Manifest.parse",),
        ),
        P(
            "part hashes",
            same(PartHashes.parse, PartHashes.encode),
            lambda: [PartHashes("sha256:" + "ab" * 32, 9 << 20, (bytes(32), bytes(32))).encode()],
            ("store.parts.PartHashes.parse",),
        ),
        P(
            "lease",
            lambda data: Lease.parse(data, "x"),
            given(Lease("x", "me", "host", 1, 1.5, 2.5).encode()),
            ("store.collect.leases.Lease.parse",),
        ),
        P(
            "packed blob",
            lambda data: parse_packed(data, where="x"),
            lambda: _packed_records(),
            ("store.packs.packing.parse_packed",),
        ),
        P("packfile", tolerant_packfile, lambda: [packfile()], ("store.packs.packfile.read_index",)),
        P(
            "state manifest",
            same(StateManifest.parse, StateManifest.encode),
            lambda: [state(True), state()],
            ("tensors.tensors.StateManifest.parse",),
        ),
        P(
            "packed state",
            on_file(packed_state, "./state.json"),
            lambda: [state(True), state()],
            ("tensors.statepack.read_state",),
        ),
        P("partial tensor", PartialTensor.parse, partial_tensor, ("tensors.shards.PartialTensor.parse",)),
        P("zarr metadata", on_file(zarr_array, "x/zarr.json"), zarr),
        P("array of a stored token cache", on_file(stored_array, "x/zarr.json"), stored),
        P(
            "ledger of a token cache",
            on_file(cache_content, "./shard_ledger.json"),
            given(b'{"total_num_rows": 3, "is_finished": true}'),
        ),
        P(
            "minimal pairs",
            on_file(partial(read_pairs, limit=9)),
            given(b'{"sentence_good":"a","sentence_bad":"b","UID":"x","pairID":7}\n' * 2),
            ("marin.evaluation.evaluate.read_pairs",),
        ),
        P(
            "attestation of a bundle",
            lambda data: attested(data, [SIGNER.verifier], PREDICATE),
            _attestation,
            ("marin.record.attestation.attested",),
        ),
        P(
            "model folder",
            on_file(folder_recipe, "./config.json"),
            given(
                b'{"model_type":"llama","hidden_size":8,"num_hidden_layers":1,"num_attention_heads":2,"vocab_size":9}'
            ),
        ),
        P(
            "a source of data",
            on_file(read_source, "blimp.yaml"),
            lambda: [(PROJECT / "conf/sources/blimp.yaml").read_bytes()[:1200]],
            ("marin.data.pinned.read_source",),
            2000,
            500,
        ),
        P(
            "an address of the Hub",
            text(parse_address),
            given(b"hf:datasets/a/b@" + b"0" * 40 + b"/x.txt"),
            ("marin.data.network.hub.parse",),
        ),
        P(
            "form of a state in slices",
            same(SlicedForm.parse, SlicedForm.encode),
            lambda: [SlicedForm(2, {"a": 4}).encode()],
            ("tensors.slices.SlicedForm.parse",),
        ),
        P(
            "recipe",
            on_file(load_params, "params.yaml"),
            lambda: [(PROJECT / "params.yaml").read_bytes()],
            ("marin.recipe.params.load_params",),
            2000,
            500,
        ),
        P(
            "prices",
            on_file(load_prices),
            lambda: [(PROJECT / "conf/prices.yaml").read_bytes()],
            ("marin.recipe.cost.load_prices",),
            2000,
            500,
        ),
        P("pointer", on_file(read_pointer), pointers, ("marin.execution.pointer.read_pointer",)),
        P(
            "documents",
            on_file(lambda path: list(read_documents(path))),
            documents,
            ("marin.data.documents.read_documents",),
        ),
        P("texts", on_file(lambda path: list(read_texts(path))), documents, ("marin.data.documents.read_texts",)),
        P(
            "event on the command line",
            lambda data: parse_object(data, where="x"),
            given(b'{"a":[1,2.5,null]}'),
            ("marin.cli.ledger.append.parse_object",),
        ),
        P(
            "metric query",
            text(parse_metric),
            given(b"eval/loss=1.25", b"x"),
            ("marin.history.table.metric_query.parse",),
        ),
        P(
            "cpuinfo",
            text(lambda t: parse_cpuinfo(t, "x86_64")),
            given(b"model name\t: A\nflags\t: sse avx\n"),
            ("marin.provenance.processor.parse_cpuinfo",),
        ),
    ]


def _an_error() -> Any:
    from ledger.errors import Conflict

    return Conflict("what", where="where", expected="this", found="that", cure="do")


def _attestation() -> list[bytes]:
    from securesystemslib.dsse import Envelope
    from securesystemslib.signer import CryptoSigner

    from marin.export.envelope import public_key

    subject = [{"name": "vkey", "digest": {"sha256": "a" * 64}}]
    statement = {"_type": STATEMENT, "predicateType": PREDICATE, "subject": subject, "predicate": {}}
    envelope = Envelope(json.dumps(statement).encode(), PAYLOAD_TYPE, {})
    envelope.sign(CryptoSigner(SIGNER.key, public_key(SIGNER.verifier)))
    return [json.dumps(envelope.to_dict()).encode()]


def _packed_records() -> list[bytes]:
    from ledger.store.packs.packing import Chunks, Planes

    return [Chunks(DIGEST, 6, ((DIGEST, 6),)).encode(), Planes(DIGEST, 8, (DIGEST, DIGEST), 2, None, 0).encode()]
