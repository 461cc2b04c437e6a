"""The bytes of the log, kept: the worked example of SPEC.md is made again, and what was released stays readable.

`tests/golden/log/` holds the example as files, as they were when the format was first written down. If this test
fails because bytes changed, the format changed: give it a new version and keep this example readable.
"""

import re
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

import ledger
from ledger import (
    Draft,
    Event,
    Log,
    LogProof,
    LogReader,
    PosixStorage,
    Signer,
    VerifierKey,
    check,
    make_proof,
    verify_proof,
)
from ledger.audit.inventory import ENTRIES, parse_tile_path
from ledger.format.layout import tile_path
from ledger.format.tlog import Tile, leaf_hash
from ledger.log.journal import Record
from tests.ledger.memory import MemoryStorage

KEPT = Path(__file__).parent / "log"
SPEC = (Path(ledger.__file__).parent / "SPEC.md").read_text()

SIGNER = Signer("log.example/spec", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
DRAFTS = [
    Draft("run.started/v1", "run/1", {"seed": "7"}, id="a", actor="ada@example", time="2026-11-21T10:00:00.000000Z"),
    Draft(
        "train.segment/v1",
        "run/1",
        {"loss": "0x1.8p+1", "steps": [0, 10]},
        id="b",
        actor="ada@example",
        time="2026-11-21T10:00:01.500000Z",
    ),
    Draft("run.started/v1", "run/2", {"seed": "8"}, id="c", actor="ada@example", time="2026-11-21T10:00:02.000000Z"),
]


def example():
    storage = MemoryStorage()
    Log.create(storage, SIGNER)
    with Log.open(storage, SIGNER) as log:
        log.append(DRAFTS)
    return storage


def shown(heading):
    """The block of code below a line of the worked example."""
    match = re.search(rf"^{re.escape(heading)}\n\n((?:    .*\n|\n(?=    ))+)", SPEC, re.MULTILINE)
    assert match, f"SPEC.md has no block below {heading!r}"
    return "".join(line[4:] if line.strip() else "\n" for line in match[1].splitlines(keepends=True))


def test_the_log_is_made_again_byte_for_byte():
    kept = {f"log/{path.relative_to(KEPT).as_posix()}": path.read_bytes() for path in KEPT.rglob("*") if path.is_file()}
    assert example().files == kept


def test_what_was_kept_audits_clean_and_opens():
    storage = PosixStorage(KEPT.parent, readonly=True)
    assert check(storage, [SIGNER.verifier]) == []
    reader = LogReader(storage, [SIGNER.verifier])
    assert [event.id for _, event in reader.events()] == ["a", "b", "c"]
    assert check(PosixStorage(KEPT, readonly=True), [SIGNER.verifier], log="", entries_are_events=False) == []


def test_the_specification_shows_the_key():
    assert shown("The verifier key:") == f"{SIGNER.verifier}\n"
    assert VerifierKey.parse(shown("The verifier key:")) == SIGNER.verifier


def test_the_specification_shows_the_entries():
    entries = shown("The entries:").splitlines()
    assert entries == [entry.decode() for _, entry in LogReader(example(), [SIGNER.verifier]).entries()]
    assert [Event.decode(entry.encode()).id for entry in entries] == ["a", "b", "c"]


def test_the_specification_shows_the_leaf_hashes():
    entries = [entry for _, entry in LogReader(example(), [SIGNER.verifier]).entries()]
    assert shown("Their leaf hashes, which are the tile `log/tile/0/000.p/3`:").split() == [
        leaf_hash(entry).hex() for entry in entries
    ]


def test_the_specification_shows_the_checkpoint():
    assert shown("The file `log/checkpoint`:").encode() == example().read("log/checkpoint")


def test_the_specification_shows_a_proof():
    text = shown("The proof that entry 1 is in it:")
    assert text == str(make_proof(LogReader(example(), [SIGNER.verifier]), 1))
    proven = verify_proof(LogProof.parse(text.encode()), [SIGNER.verifier])
    assert (proven.index, Event.decode(proven.entry).id, proven.signers) == (1, "b", ("log.example/spec",))


def test_the_specification_shows_the_journal():
    reader = LogReader(example(), [SIGNER.verifier])
    record = Record(0, reader.note(), tuple(entry for _, entry in reader.entries()))
    assert shown("The first 64 bytes of the journal's record for it:").split() == [
        record.encode()[at : at + 16].hex() for at in range(0, 64, 16)
    ]


@pytest.mark.parametrize(
    ("tile", "path"),
    [
        (Tile(0, 0), "log/tile/0/000"),
        (Tile(0, 999, 17), "log/tile/0/999.p/17"),
        (Tile(1, 1000), "log/tile/1/x001/000"),
        (Tile(63, 1234067, 255), "log/tile/63/x001/x234/067.p/255"),
        (Tile(2, 123456789), "log/tile/2/x123/x456/789"),
    ],
)
def test_paths_of_tiles(tile, path):
    assert tile_path(tile) == path
    assert parse_tile_path(path.removeprefix("log/")) == tile
    assert parse_tile_path(re.sub("tile/[0-9]+", "tile/entries", path).removeprefix("log/")).level == ENTRIES


@pytest.mark.parametrize(
    "path",
    [
        "tile/0/0",
        "tile/0/0000",
        "tile/64/000",
        "tile/00/000",
        "tile/0/x000/001",
        "tile/0/001.p/0",
        "tile/0/001.p/256",
        "tile/0/001.p/07",
        "tile/0/x01/001",
        "tile/0/001/x002",
        "tile/0/001.p",
        "checkpoint",
        "tile/0/001.p/1/2",
        "",
    ],
)
def test_what_is_no_path_of_a_tile(path):
    with pytest.raises(ledger.Malformed):
        parse_tile_path(path)
