"""Pins: a key signs one log, an origin has one key, and a log that was seen never becomes another or, in its place,
shorter."""

from __future__ import annotations

import json
import shutil
from pathlib import Path

import pytest

from ledger import Draft, Log, LogReader, Signer, Tampered, Unavailable, Unverified, create_key, retire_key, rotate_key
from marin.record.trust import pins as pins_module
from marin.record.trust.pins import Pins
from tests.ledger.memory import MemoryStorage

ORIGIN = "test.example/log"


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return create_key(tmp_path / "key", ORIGIN)


@pytest.fixture
def pins(tmp_path: Path) -> Pins:
    return Pins(tmp_path / "pins")


def log_of(signer: Signer, words: str) -> MemoryStorage:
    storage = MemoryStorage()
    Log.create(storage, signer)
    grow(storage, signer, words)
    return storage


def grow(storage: MemoryStorage, signer: Signer, words: str) -> None:
    with Log.open(storage, signer) as log:
        log.append([Draft("test.word/v1", "words", {"word": word}, id=word) for word in words])


def copy(storage: MemoryStorage) -> MemoryStorage:
    again = MemoryStorage()
    again.files.update(storage.files)
    return again


def check(pins: Pins, storage: MemoryStorage, signer: Signer, place: str = "/a", *, move: bool = True) -> str:
    return pins.check(LogReader(storage, signer.verifiers), storage, place, move=move)


def test_a_pin_moves_forward_and_another_history_is_refused(pins: Pins, signer: Signer) -> None:
    log = log_of(signer, "ab")
    assert "first time" in check(pins, log, signer)
    assert "size 2" in check(pins, log, signer)
    grow(log, signer, "c")
    assert "size 2" in check(pins, log, signer)
    for fork in ("xyz", "wxyz"):
        with pytest.raises(Tampered, match="another history"):
            check(pins, log_of(signer, fork), signer)


def test_a_copy_elsewhere_may_be_older_and_the_same_place_may_not(pins: Pins, signer: Signer) -> None:
    original = log_of(signer, "abc")
    longer = copy(original)
    grow(longer, signer, "d")  # the verdict that was recorded in the copy
    check(pins, longer, signer, "/copy")
    assert "older copy: 1 event fewer than the 4 seen in /copy" in check(pins, original, signer, "/original")
    with pytest.raises(Tampered, match="rolled back"):
        check(pins, original, signer, "/copy")
    with pytest.raises(Tampered, match="rolled back"):
        check(pins, log_of(signer, "ab"), signer, "/original")


def test_a_shorter_fork_elsewhere_is_no_older_copy(pins: Pins, signer: Signer) -> None:
    check(pins, log_of(signer, "abcdefg"), signer, "/a")
    with pytest.raises(Tampered, match="another history"):
        check(pins, log_of(signer, "abx"), signer, "/b")


@pytest.mark.parametrize("leaves", [None, b"", b"x" * 96, b"x" * 31])
def test_leaf_hashes_that_are_not_the_pinned_ones_prove_nothing(
    pins: Pins, signer: Signer, leaves: bytes | None
) -> None:
    check(pins, log_of(signer, "abc"), signer, "/a")
    kept = pins.path(ORIGIN).with_suffix(".leaves")
    kept.unlink()
    if leaves is not None:
        kept.write_bytes(leaves)
    with pytest.raises(Unavailable, match="cannot be compared"):
        check(pins, log_of(signer, "ab"), signer, "/b")


def test_of_a_long_log_no_leaves_are_kept(pins: Pins, signer: Signer, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pins_module, "MOST_LEAVES", 2)
    check(pins, log_of(signer, "abc"), signer, "/a")
    assert pins.path(ORIGIN).with_suffix(".leaves").read_bytes() == b""


def test_nothing_is_left_behind_unless_asked(pins: Pins, signer: Signer) -> None:
    log = log_of(signer, "ab")
    first = "first time that this log is seen here: "
    said = check(pins, log, signer, move=False)
    assert said == f"{first}nothing was compared with it, and nothing is pinned" and not pins.folder.exists()
    assert check(pins, log, signer) == f"{first}its key and log checkpoint are pinned now"
    before = {path.name: path.read_bytes() for path in pins.folder.iterdir()}
    grow(log, signer, "c")
    check(pins, log, signer, move=False)
    assert {path.name: path.read_bytes() for path in pins.folder.iterdir()} == before


def test_one_key_signs_one_origin(pins: Pins, signer: Signer) -> None:
    check(pins, log_of(signer, "ab"), signer)
    other = Signer("other.example/log", signer.key)
    with pytest.raises(Tampered, match="the key signs another log") as refused:
        check(pins, log_of(other, "ab"), other, "/b")
    assert ORIGIN in refused.value.expected
    assert refused.value.found == "other.example/log"


def test_one_origin_has_one_key(pins: Pins, signer: Signer, tmp_path: Path) -> None:
    check(pins, log_of(signer, "ab"), signer)
    impostor = create_key(tmp_path / "impostor", ORIGIN)
    with pytest.raises(Tampered, match="another key signs this log"):
        check(pins, log_of(impostor, "ab"), impostor)


def test_a_key_that_the_log_handed_over_to_is_the_same_log(pins: Pins, signer: Signer, tmp_path: Path) -> None:
    log = log_of(signer, "ab")
    check(pins, log, signer)
    new = create_key(tmp_path / "new", ORIGIN)
    rotate_key(log, signer, new)
    retire_key(log, new, signer.verifiers)
    grow(log, new, "c")
    assert "consistent" in check(pins, log, new)
    # Without the proof that the key before signed, the new key is anybody's.
    fresh = Pins(tmp_path / "fresh")
    check(fresh, log_of(signer, "ab"), signer)
    bare = copy(log)
    for name in [name for name in bare.files if name.startswith("keys/")]:
        del bare.files[name]
    with pytest.raises(Tampered, match="another key"):
        check(fresh, bare, new)


def test_half_of_a_hybrid_signature_is_missing(pins: Pins, tmp_path: Path) -> None:
    hybrid = create_key(tmp_path / "hybrid", ORIGIN, hybrid=True)
    log = log_of(hybrid, "ab")
    check(pins, log, hybrid)
    grow(log, Signer(ORIGIN, hybrid.key), "c")  # Ed25519 alone, as anyone who broke that one would sign
    with pytest.raises(Unverified, match="hybrid"):
        pins.check(LogReader(log, [hybrid.verifier]), log, "/a")


@pytest.mark.parametrize(
    "data", [b"", b"{", b"[]", b"{}", b"\xff", b'{"origin": 1, "size": "x", "root": "zz"}', b"[" * 9999]
)
def test_a_corrupt_pin_says_where_it_is_and_what_to_do(pins: Pins, signer: Signer, data: bytes) -> None:
    log = log_of(signer, "ab")
    check(pins, log, signer)
    path = pins.path(ORIGIN)
    path.write_bytes(data)
    with pytest.raises(Unavailable, match="cannot be read") as refused:
        check(pins, log, signer)
    assert refused.value.where == str(path)
    assert refused.value.cure
    assert refused.value.exit_code == 3


def test_a_pin_of_before_places_is_still_read(pins: Pins, signer: Signer) -> None:
    log = log_of(signer, "abc")
    checkpoint = LogReader(log, signer.verifiers).checkpoint()
    pins.folder.mkdir()
    old = {"origin": ORIGIN, "root": checkpoint.root.hex(), "size": 3}
    pins.path(ORIGIN).write_text(json.dumps(old))
    with pytest.raises(Tampered, match="rolled back"):
        check(pins, log_of(signer, "ab"), signer)
    assert "size 3" in check(pins, log, signer)
    shutil.rmtree(pins.folder)
    assert "first time" in check(pins, log_of(signer, "xy"), signer)


def test_a_key_that_only_a_root_named_gives_way_to_the_verifiers(pins: Pins, signer: Signer, tmp_path: Path) -> None:
    """Who publishes a root under a known origin with another key must not shut out the real log."""
    impostor = create_key(tmp_path / "impostor", ORIGIN)
    forged = log_of(impostor, "xyz")
    pins.check(LogReader(forged, impostor.verifiers), forged, "/b", named=False)
    real = log_of(signer, "a")
    with pytest.raises(Tampered, match="another key"):
        pins.check(LogReader(real, signer.verifiers), real, "/a", named=False)
    assert "first time" in check(pins, real, signer)
    for named in (False, True):
        with pytest.raises(Tampered, match="another key"):
            pins.check(LogReader(forged, impostor.verifiers), forged, "/b", named=named)
