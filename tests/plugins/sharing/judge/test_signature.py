"""The judge in node on logs: what was signed passes; every kind of damage, by whom has no key and by whom has it, is refused with
its place. Logs are written here by hand, for no writer of ours would write them."""

from __future__ import annotations

import json
import shutil
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import (
    Cosigner,
    Draft,
    Log,
    LogCheckpoint,
    NoteSignature,
    PosixStorage,
    Signer,
    add_signatures,
    canonical_bytes,
    retire_key,
    root_of,
    rotate_key,
)
from ledger.format.bundle import pack_entries
from ledger.format.layout import entries_path, tile_path
from ledger.format.tlog import Tile, TileEdge, all_tiles, leaf_hash
from tests.plugins.sharing.judge.node import checked, needs_node

pytestmark = needs_node

ORIGIN = "log.example/spec"
SIGNER = Signer(ORIGIN, Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
OTHER = Signer(ORIGIN, Ed25519PrivateKey.from_private_bytes(bytes(32)))
KEPT = Path(__file__).parents[3] / "golden" / "log"
SIZE = 300


def entry(number: int, **changes: Any) -> bytes:
    event = {
        "actor": "ada@example",
        "body": {"n": str(number)},
        "id": f"e{number}",
        "seq": number,
        "stream": "notes",
        "time": "2026-11-21T10:00:00.000000Z",
        "type": "note.written/v1",
    }
    return canonical_bytes(event | changes)


HONEST = [entry(number) for number in range(SIZE)]


def written(folder: Path, entries: Sequence[bytes], signer: Signer = SIGNER, origin: str = ORIGIN) -> Path:
    """A log of any entries whatever, signed."""
    leaves = [leaf_hash(one) for one in entries]
    edge, tiles = TileEdge(), {}
    for leaf in leaves:
        tiles |= dict(edge.append(leaf))
    tiles |= dict(edge.partial())
    assert tiles.keys() == set(all_tiles(len(entries)))
    for tile, data in tiles.items():
        put(folder / tile_path(tile), data)
    for first in range(0, len(entries), 256):
        some = entries[first : first + 256]
        put(folder / entries_path(Tile(0, first // 256, len(some))), pack_entries(some))
    put(folder / "log/checkpoint", LogCheckpoint(origin, len(entries), root_of(leaves)).sign([signer]).encode())
    return folder


def put(path: Path, data: bytes) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)


@pytest.fixture(scope="module")
def honest(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return written(tmp_path_factory.mktemp("honest"), HONEST)


def test_honest_logs_pass(honest: Path) -> None:
    found = checked(honest, SIGNER.verifier)
    assert found.outcome("signature") == "PASS"
    assert found.report["size"] == SIZE
    assert (found.status, found.outcome("record")) == (3, "UNAVAILABLE"), "it has no run"
    assert checked(KEPT.parent, SIGNER.verifier).outcome("signature") == "PASS", "the released bytes"


FIRST, LAST = "log/tile/entries/000", "log/tile/entries/001.p/44"


def flipped(name: str, at: int = -5) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        data = bytearray((folder / name).read_bytes())
        data[at] ^= 1
        (folder / name).write_bytes(data)

    return damage


def changed(name: str, change: Callable[[bytes], bytes]) -> Callable[[Path], None]:
    def damage(folder: Path) -> None:
        (folder / name).write_bytes(change((folder / name).read_bytes()))

    return damage


def removed(name: str) -> Callable[[Path], None]:
    return lambda folder: (folder / name).unlink()


def of_other(folder: Path) -> None:
    written(folder, HONEST, OTHER)


def linked(folder: Path) -> None:
    (folder / FIRST).rename(folder / "aside")
    (folder / FIRST).symlink_to(folder / "aside")


def signed_twice(folder: Path) -> None:
    """The second line under the same key is of another text."""
    other = LogCheckpoint(ORIGIN, 7, bytes(32))
    line = NoteSignature(ORIGIN, OTHER.verifier.key_id, OTHER.sign(str(other)))
    path = folder / "log/checkpoint"
    note = path.read_text()
    path.write_text(note + str(line))


DAMAGED: dict[str, tuple[Callable[[Path], object], str, str]] = {
    "an entry": (flipped(FIRST), "FAIL", "log/tile/entries/000, entry 255"),
    "the last entry": (flipped(LAST), "FAIL", "log/tile/entries/001.p/44, entry 299"),
    "a tile": (flipped("log/tile/0/000", 40), "FAIL", "log/tile/0/000"),
    "the partial tile": (flipped("log/tile/0/001.p/44", 40), "FAIL", "log/tile/0/001.p/44"),
    "a tile above": (flipped("log/tile/1/000.p/1"), "FAIL", "log/tile/1/000.p/1"),
    "a tile that is short": (changed("log/tile/0/000", lambda data: data[:-32]), "FAIL", "log/tile/0/000"),
    "a bundle that is short": (changed(FIRST, lambda data: data[:-1]), "FAIL", "cut short"),
    "a bundle with an entry more": (changed(LAST, lambda data: data + pack_entries([b"{}"])), "FAIL", LAST),
    "an entry and its leaf": (
        lambda folder: (flipped(LAST)(folder), _relabel(folder)),
        "FAIL",
        "the entries do not give the signed root",
    ),
    "the size": (changed("log/checkpoint", lambda data: data.replace(b"\n300\n", b"\n299\n")), "FAIL", "does not hold"),
    "the origin": (
        changed("log/checkpoint", lambda data: data.replace(b"log.ex", b"log.fx", 1)),
        "FAIL",
        "does not hold",
    ),
    "the root": (changed("log/checkpoint", lambda data: data.replace(b"=\n\n", b"A\n\n", 1)), "FAIL", "log/checkpoint"),
    "the signature": (
        changed("log/checkpoint", lambda data: data[:-12] + b"AAAA" + data[-8:]),
        "FAIL",
        "log/checkpoint",
    ),
    "no signature": (
        changed("log/checkpoint", lambda data: data.partition(b"\n\n")[0] + b"\n\n"),
        "FAIL",
        "log/checkpoint",
    ),
    "a checkpoint of another key": (of_other, "FAIL", "no key that you gave signed this log"),
    "a checkpoint that is no text": (changed("log/checkpoint", lambda data: b"\xff" + data), "FAIL", "log/checkpoint"),
    "a link in place of a bundle": (linked, "FAIL", FIRST),
    "no checkpoint": (removed("log/checkpoint"), "UNAVAILABLE", "log/checkpoint"),
    "no bundle": (removed(FIRST), "UNAVAILABLE", FIRST),
    "no tile": (removed("log/tile/1/000.p/1"), "UNAVAILABLE", "log/tile/1/000.p/1"),
}


def _relabel(folder: Path) -> None:
    """The tile says what the changed entry hashes to."""
    from ledger.format.bundle import unpack_entries

    leaves = [leaf_hash(one) for one in unpack_entries((folder / LAST).read_bytes())]
    (folder / "log/tile/0/001.p/44").write_bytes(b"".join(leaves))


@pytest.mark.table
@pytest.mark.parametrize("name", DAMAGED)
def test_what_a_publisher_changes_is_refused(honest: Path, tmp_path: Path, name: str) -> None:
    damage, outcome, place = DAMAGED[name]
    folder = Path(shutil.copytree(honest, tmp_path / "copy"))
    damage(folder)
    found = checked(folder, SIGNER.verifier)
    assert found.outcomes == [outcome, "NOT_RUN", "NOT_RUN"]
    assert place in found.said
    assert found.status == {"FAIL": 1, "UNAVAILABLE": 3}[outcome]


TEXT = entry(1).decode()
BROKEN: dict[str, tuple[bytes, str]] = {
    "white space": (TEXT.replace(",", ", ", 1).encode(), "entry 1"),
    "another order": (json.dumps(dict(reversed(json.loads(TEXT).items())), separators=(",", ":")).encode(), "entry 1"),
    "a member twice": (TEXT.replace('"id":"e1"', '"id":"x","id":"e1"').encode(), "entry 1"),
    "a member more": (entry(1, note="x"), "the members"),
    "a member less": (canonical_bytes({k: v for k, v in json.loads(TEXT).items() if k != "actor"}), "the members"),
    "a member __proto__": (TEXT.replace('"actor":"ada@example"', '"__proto__":{}').encode(), "the members"),
    "a fraction that is whole": (TEXT.replace('"seq":1', '"seq":1.0').encode(), "entry 1"),
    "a number beyond 53 bits": (TEXT.replace('"seq":1', '"seq":9007199254740993').encode(), "entry 1"),
    "a negative number": (entry(1, seq=-1), "seq"),
    "a number that is a text": (entry(1, seq="1"), "seq"),
    "no number at all": (TEXT.replace('"seq":1', '"seq":1e400').encode(), "entry 1"),
    "half of a surrogate pair": (TEXT.replace('"n":"1"', r'"n":"\ud800"').encode(), "entry 1"),
    "another escape": (TEXT.replace('"n":"1"', r'"n":"\u0031"').encode(), "entry 1"),
    "a byte order mark": (b"\xef\xbb\xbf" + TEXT.encode(), "entry 1"),
    "no UTF-8": (TEXT.encode().replace(b"ada", b"\xff\xfea"), "entry 1"),
    "no JSON": (b"{", "entry 1"),
    "a list": (b"[]", "an entry is no event"),
    "nothing": (b"", "entry 1"),
    "a body that is a list": (entry(1, body=[]), "body"),
    "a stream with an empty part": (entry(1, stream="a//b"), "stream"),
    "a stream of letters that look alike": (entry(1, stream="n\u043etes"), "stream"),
    "an actor with a control character": (entry(1, actor="ada\u001b[2J"), "actor"),
    "an id with a space": (entry(1, id="a b"), "id"),
    "a time without its fraction": (entry(1, time="2026-11-21T10:00:00Z"), "time"),
    "a type without a version": (entry(1, type="note.written"), "type"),
    "an id twice": (entry(1, id="e0"), "an id occurs twice"),
    "a gap in a stream": (entry(1, seq=2), "a gap or a repetition"),
    "a number twice": (entry(1, seq=0), "a gap or a repetition"),
    "nesting without end": (b"[" * 30_000 + b"]" * 30_000, "entry 1"),
}


@pytest.mark.table
@pytest.mark.parametrize("name", BROKEN)
def test_what_an_operator_signs_and_is_no_event_is_named_and_left_out(tmp_path: Path, name: str) -> None:
    """It is in the log as it was signed; what it names is judged with it (tests/adversary/test_browser_judge.py)."""
    broken, place = BROKEN[name]
    found = checked(written(tmp_path, [entry(0), broken, entry(2)]), SIGNER.verifier)
    assert found.outcomes == ["PASS", "UNAVAILABLE", "NOT_RUN"], "the log has no run"
    lines = [
        line for line in found.report["verdicts"]["signature"]["lines"] if line.startswith("beside the events, and")
    ]
    assert place in lines[0] and lines[0].isprintable(), "and what comes after it in its stream"


@pytest.mark.parametrize("name", ["no JSON", "an id twice", "a gap in a stream"])
def test_what_might_be_of_the_logs_keys_and_is_no_event_is_refused(tmp_path: Path, name: str) -> None:
    broken = BROKEN[name][0] + b"log.key-retired/v1"
    found = checked(written(tmp_path, [entry(0), broken, entry(2)]), SIGNER.verifier)
    assert found.outcomes == ["FAIL", "NOT_RUN", "NOT_RUN"]


def test_a_complete_tile_stands_in_for_a_partial_one(tmp_path: Path) -> None:
    """A log that grows takes partial tiles away; who has an older checkpoint reads the beginning of the complete ones."""
    written(tmp_path, HONEST[:200])
    note = (tmp_path / "log/checkpoint").read_bytes()
    shutil.rmtree(tmp_path / "log")
    written(tmp_path, HONEST)
    (tmp_path / "log/checkpoint").write_bytes(note)
    found = checked(tmp_path, SIGNER.verifier)
    assert (found.outcome("signature"), found.report["size"]) == ("PASS", 200)


WITNESS = Cosigner("witness.example/w", Ed25519PrivateKey.from_private_bytes(bytes(31) + b"1"))


def test_witnesses_are_asked_where_the_reader_names_them(honest: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(honest, tmp_path / "copy"))
    assert checked(folder, SIGNER.verifier, witnesses=(WITNESS.verifier,)).outcome("signature") == "UNAVAILABLE"
    path = folder / "log/checkpoint"
    note = path.read_bytes()
    text = note.decode().partition("\n\n")[0] + "\n"
    line = NoteSignature(WITNESS.verifier.name, WITNESS.verifier.key_id, WITNESS.sign(text))
    path.write_bytes(add_signatures(note, [line]))
    found = checked(folder, SIGNER.verifier, witnesses=(WITNESS.verifier,))
    assert found.outcome("signature") == "PASS"
    assert any("saw the first 300 events" in one for one in found.report["verdicts"]["signature"]["lines"])
    wrong = NoteSignature(WITNESS.verifier.name, WITNESS.verifier.key_id, WITNESS.sign(text.replace("300", "301")))
    path.write_bytes(add_signatures(note, [wrong]))
    found = checked(folder, SIGNER.verifier, witnesses=(WITNESS.verifier,))
    assert (found.outcome("signature"), found.status) == ("FAIL", 1)


def test_another_history_than_a_witness_saw(honest: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(honest, tmp_path / "copy"))
    seen = LogCheckpoint(ORIGIN, 200, bytes(32))
    (folder / "witnessed").write_text(seen.sign([SIGNER, WITNESS]))
    found = checked(folder, SIGNER.verifier, witnesses=(WITNESS.verifier,))
    assert found.outcome("signature") == "FAIL" and "another history" in found.said
    (folder / "witnessed").write_text(LogCheckpoint(ORIGIN, 400, bytes(32)).sign([SIGNER, WITNESS]))
    assert "a longer log" in checked(folder, SIGNER.verifier, witnesses=(WITNESS.verifier,)).said


@pytest.fixture
def rotated(tmp_path: Path) -> Path:
    storage = PosixStorage(tmp_path)
    Log.create(storage, SIGNER)
    with Log.open(storage, SIGNER) as log:
        log.append([Draft("note.written/v1", "notes", {"n": "0"})])
    rotate_key(storage, SIGNER, OTHER)
    retire_key(storage, OTHER, [SIGNER.verifier])
    with Log.open(storage, OTHER) as log:
        log.append([Draft("note.written/v1", "notes", {"n": "1"})])
    return tmp_path


def test_keys_that_took_over_are_followed(rotated: Path) -> None:
    for key in (SIGNER.verifier, OTHER.verifier):
        assert checked(rotated, key).outcome("signature") == "PASS"
    third = Signer(ORIGIN, Ed25519PrivateKey.from_private_bytes(bytes(31) + b"3"))
    assert checked(rotated, third.verifier).outcome("signature") == "FAIL"


def test_links_of_keys_are_all_there_and_of_this_log(rotated: Path) -> None:
    link = (rotated / "keys/1").read_bytes()
    (rotated / "keys/1").unlink()
    assert "an event about keys has no link" in checked(rotated, OTHER.verifier).said
    (rotated / "keys/1").write_bytes(link.replace(b"index 2", b"index 1"))
    assert "keys/1" in checked(rotated, OTHER.verifier).said


def test_a_retired_key_signs_no_more(rotated: Path) -> None:
    path = rotated / "log/checkpoint"
    text = path.read_text().partition("\n\n")[0] + "\n"
    origin, size, _ = text.splitlines()
    path.write_text(f"{text}\n{NoteSignature(origin, SIGNER.verifier.key_id, SIGNER.sign(text))}")
    found = checked(rotated, SIGNER.verifier)
    assert "retired" in found.said and found.outcome("signature") == "FAIL", size


@pytest.mark.parametrize(
    ("keys", "says"),
    [
        ((), "give the log's verifier key"),
        (("log.example/spec+ad210b1d",), "not a verifier key"),
        ((str(SIGNER.verifier).replace("+ad", "+bd"),), "copy it whole"),
        ((str(WITNESS.verifier),), "the key of a witness"),
    ],
)
def test_a_question_that_is_none(honest: Path, keys: tuple[str, ...], says: str) -> None:
    found = checked(honest, *keys)
    assert found.status == 2 and says in found.error


def test_the_key_beside_the_log_is_not_asked(honest: Path, tmp_path: Path) -> None:
    folder = Path(shutil.copytree(honest, tmp_path / "copy"))
    written(folder, HONEST, OTHER)
    (folder / "vkey").write_text(str(OTHER.verifier))
    assert checked(folder, SIGNER.verifier).outcome("signature") == "FAIL"
    assert "spec" in checked(folder, run="x").error or checked(folder).status == 2
