"""Every stored byte and file of a small log, changed: the audit finds it, and anyone who reads everything is stopped.

The log has complete and partial tiles on two levels. Small entries keep the walk over all bytes exhaustive and quick;
the audit of entries as events is tried on a log of its own.
"""

import hashlib

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Draft, LedgerError, Log, LogCheckpoint, LogReader, Signer, check
from ledger.format.bundle import pack_entries, unpack_entries
from ledger.format.layout import entries_path, tile_path
from ledger.format.tlog import TileEdge, all_tiles, leaf_hash
from tests.ledger.memory import MemoryStorage

SIGNER = Signer("log.example/test", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
KEYS = [SIGNER.verifier]


def tiny_log(size):
    """A foreign log: entries of one or two bytes."""
    entries = [b"%d" % (n % 17) for n in range(size)]
    edge, tiles = TileEdge(), {}
    for entry in entries:
        tiles.update(edge.append(leaf_hash(entry)))
    tiles.update(edge.partial())
    files = {tile_path(tile): data for tile, data in tiles.items()}
    for tile in all_tiles(size):
        if tile.level == 0:
            first = tile.index * 256
            files[entries_path(tile)] = pack_entries(entries[first : first + tile.width])
    root = edge.frontier().root()
    files["log/checkpoint"] = LogCheckpoint(SIGNER.name, size, root).sign([SIGNER]).encode()
    return files


TINY = tiny_log(5)
SMALL = tiny_log(300)


def audit(files):
    return check(MemoryStorage(files), KEYS, entries_are_events=False)


def read_everything(files):
    reader = LogReader(MemoryStorage(files), KEYS)
    list(reader.entries())
    for index in range(0, reader.checkpoint().size, 50):
        reader.inclusion_proof(index)
    reader.consistency_proof(1)


def read_fails(files):
    try:
        read_everything(files)
    except LedgerError as error:
        return str(error)
    return ""


def test_untouched_logs_are_whole():
    assert audit(TINY) == audit(SMALL) == []
    assert not read_fails(TINY)
    assert not read_fails(SMALL)


def test_every_bit_of_every_byte_of_a_tiny_log(tenth):
    for name, data in TINY.items():
        for at in tenth(range(len(data))):
            for bit in range(8):
                changed = data[:at] + bytes([data[at] ^ 1 << bit]) + data[at + 1 :]
                files = TINY | {name: changed}
                assert audit(files), (name, at, bit)
                assert read_fails(files), (name, at, bit)


@pytest.mark.parametrize("name", sorted(SMALL))
def test_every_byte_of_a_small_log(name):
    data = SMALL[name]
    step = max(1, len(data) // 60)
    for at in sorted({*range(0, len(data), step), len(data) - 1}):
        files = SMALL | {name: data[:at] + bytes([data[at] ^ 0x10]) + data[at + 1 :]}
        findings = audit(files)
        assert findings, at
        assert any(name in finding.where for finding in findings), [str(finding) for finding in findings]
        assert read_fails(files), at


@pytest.mark.parametrize("files", [TINY, SMALL], ids=["tiny", "small"])
def test_deleted_truncated_and_extended_files(files):
    for name, data in files.items():
        gone = {other: bytes_ for other, bytes_ in files.items() if other != name}
        assert any(name in finding.where for finding in audit(gone)), name
        assert name in read_fails(gone) or name == "log/checkpoint"
        for changed in (b"", data[:-1], data[: len(data) // 2], data + b"\x00", data + data, data[1:]):
            assert audit(files | {name: changed}), (name, len(changed))
            assert read_fails(files | {name: changed}), (name, len(changed))


def test_swapped_files():
    names = sorted(SMALL)
    for one in names:
        for two in names:
            if SMALL[one] != SMALL[two]:
                assert audit(SMALL | {one: SMALL[two], two: SMALL[one]}), (one, two)


def test_files_that_belong_to_no_tile_are_found():
    for name, data in (
        ("log/tile/0/002", SMALL["log/tile/0/000"]),
        ("log/tile/0/001.p/45", SMALL["log/tile/0/001.p/44"] + bytes(32)),
        ("log/tile/entries/007.p/3", b""),
        ("log/tile/5/000.p/1", bytes(32)),
        ("log/tile/0/000.p/256", b""),
        ("log/extra", b""),
    ):
        (finding,) = audit(SMALL | {name: data})
        assert name in finding.where


def test_older_partial_tiles_may_stay_if_they_agree():
    for at in (1, 43):
        tile, bundle = SMALL["log/tile/0/001.p/44"], unpack_entries(SMALL["log/tile/entries/001.p/44"])
        older = {f"log/tile/0/001.p/{at}": tile[: at * 32], f"log/tile/entries/001.p/{at}": pack_entries(bundle[:at])}
        assert audit(SMALL | older) == []
        for name, data in older.items():
            (finding,) = audit(SMALL | older | {name: data[:-1] + b"?"})
            assert finding.where == name


def blamed(files):
    return [finding.where.split(",")[0] for finding in audit(files)]


def test_the_right_file_is_blamed():
    tile, bundle = "log/tile/0/000", "log/tile/entries/000"
    changed_tile = bytes([SMALL[tile][0] ^ 1]) + SMALL[tile][1:]
    entries = unpack_entries(SMALL[bundle])
    changed_bundle = pack_entries([b"forged", *entries[1:]])
    assert blamed(SMALL | {tile: changed_tile}) == [tile]
    assert blamed(SMALL | {bundle: changed_bundle}) == [bundle]
    # An entry changed together with its leaf hash: the tile above knows better.
    both = leaf_hash(b"forged") + SMALL[tile][32:]
    assert blamed(SMALL | {bundle: changed_bundle, tile: both}) == ["log/tile/0/000"]
    # The same at the right edge, where only the signed root knows better.
    tile, bundle = "log/tile/0/001.p/44", "log/tile/entries/001.p/44"
    entries = unpack_entries(SMALL[bundle])
    changed_bundle = pack_entries([*entries[:-1], b"forged"])
    assert blamed(SMALL | {bundle: changed_bundle}) == [bundle]
    both = SMALL[tile][:-32] + leaf_hash(b"forged")
    assert blamed(SMALL | {bundle: changed_bundle, tile: both}) == ["log/checkpoint"]


def test_a_rewritten_log_needs_the_key():
    """Everything derived again around a forged entry, but signed by somebody else."""
    stranger = Signer(SIGNER.name, Ed25519PrivateKey.from_private_bytes(hashlib.sha256(b"x").digest()))
    forged = tiny_log(301)
    forged["log/checkpoint"] = LogCheckpoint(SIGNER.name, 301, bytes(32)).sign([stranger]).encode()
    assert "no trusted key signed" in {finding.what for finding in audit(forged)}


def test_several_processes_find_the_same(monkeypatch):
    monkeypatch.setattr("ledger.audit.fsck._WORTH_WORKERS", 0)
    name = "log/tile/entries/000"
    data = SMALL[name]
    for files in (SMALL, SMALL | {name: data[:50] + b"?" + data[51:]}, SMALL | {name: data[:-1]}):
        storage = MemoryStorage(files)
        alone = [str(finding) for finding in check(storage, KEYS)]
        assert [str(finding) for finding in check(storage, KEYS, workers=2)] == alone
        assert len(alone) > 40  # none of the entries is an event, and in one case the first bundle cannot be read


# Entries as events


def event_log(change=None):
    """Twelve events in two streams, with one entry put in another's place before the tree is made."""
    storage = MemoryStorage()
    Log.create(storage, SIGNER)
    with Log.open(storage, SIGNER) as log:
        log.append([Draft("t/v1", f"s/{n % 2}", {"n": n}, id=f"id-{n}") for n in range(12)])
    entries = unpack_entries(storage.files["log/tile/entries/000.p/12"])
    if change is not None:
        entries[7] = change(entries)
    edge = TileEdge()
    for entry in entries:
        edge.append(leaf_hash(entry))
    checkpoint = LogCheckpoint(SIGNER.name, 12, edge.frontier().root())
    return MemoryStorage(
        {
            "log/checkpoint": checkpoint.sign([SIGNER]).encode(),
            "log/tile/0/000.p/12": edge.partial()[0][1],
            "log/tile/entries/000.p/12": pack_entries(entries),
        }
    )


@pytest.mark.parametrize(
    ("change", "what"),
    [
        (None, None),
        (lambda entries: entries[7].replace(b'"id-7"', b'"id-5"'), "an id occurs twice"),
        (lambda entries: entries[7].replace(b'"seq":3', b'"seq":4'), "a stream has a gap or a repetition"),
        (lambda entries: entries[7].replace(b'"seq":3', b'"seq":2'), "a stream has a gap or a repetition"),
        (lambda entries: entries[7].replace(b'"seq":3', b'"seq": 3'), "JSON is not canonical (RFC 8785)"),
        (lambda entries: b"{}", "not an event"),
        (lambda entries: b"\xff", "not JSON"),
        (
            lambda entries: entries[7].replace(b'{"n":7}', b'{"artifact":"sha256:' + b"0" * 64 + b'"}'),
            "an artifact is missing",
        ),
    ],
)
def test_a_validly_signed_log_of_bad_events_is_found_out(change, what):
    storage = event_log(change)
    findings = check(storage, KEYS)
    assert ({finding.what for finding in findings} == {what}) if what else findings == []
    assert check(storage, KEYS, entries_are_events=False) == []


def test_deep_hashes_the_store_too():
    from ledger import Store

    storage = MemoryStorage()
    Log.create(storage, SIGNER)
    artifact = Store(storage).put_bytes(b"content")
    with Log.open(storage, SIGNER) as log:
        log.append([Draft("t/v1", "s", {"outputs": [{"artifact": artifact.digest}]})])
    assert check(storage, KEYS) == check(storage, KEYS, deep=True) == []
    (blob,) = [name for name in storage.files if name.startswith("store/") and storage.files[name] == b"content"]
    storage.files[blob] = b"contend"
    assert check(storage, KEYS) == []
    assert check(storage, KEYS, deep=True) != []
    del storage.files[blob]
    assert [finding.what for finding in check(storage, KEYS)] == ["an artifact is missing"]
