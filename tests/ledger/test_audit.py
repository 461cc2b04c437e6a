"""What an audit remembers of ids: every hash that occurs twice is found, however few are in memory at once. And an audit of a
log that grows while it is read."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from itertools import count, pairwise

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from cryptography.hazmat.primitives.asymmetric.mldsa import MLDSA44PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from ledger import (
    Draft,
    Log,
    LogReader,
    Signer,
    Storage,
    StorageFailed,
    check,
    enrol_author,
    make_certificate,
    make_proof,
    retire_key,
    rotate_key,
    sign_drafts,
)
from ledger.audit import entries as audit
from ledger.format.layout import LOG, journal_path
from ledger.log.keys import signer_of
from tests.ledger.memory import MemoryStorage

HASHES = st.integers(0, 3) | st.integers(2**62, 2**62 + 2) | st.integers(2**64 - 3, 2**64 - 1)


@given(st.lists(HASHES, max_size=40), st.sampled_from([1, 2, 3, 8, 64]), st.integers(1, 5))
def test_entries_that_share_a_hash_are_found(hashes: list[int], at_once: int, piece: int) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(audit, "_IDS_AT_ONCE", at_once)
        ids = audit.EntryIds()
        for start in range(0, len(hashes), piece):
            ids.add(b"".join(one.to_bytes(8, "little") for one in hashes[start : start + piece]))
        times = Counter(hashes)
        expected = [index for index, one in enumerate(hashes) if one and times[one] > 1]
        assert ids.suspects() == expected
        assert ids.suspects() == expected


def test_no_room_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    class Full:
        def write(self, data: bytes) -> int:
            raise OSError(28, "No space left on device")

        def close(self) -> None:
            pass

    monkeypatch.setattr(tempfile, "TemporaryFile", Full)
    with pytest.raises(StorageFailed, match="TMPDIR"):
        audit.EntryIds().add(b"12345678")


def drafts(start: int, count: int) -> list[Draft]:
    return [Draft("test.made/v1", "run/1", {"number": n}, id=f"run/1-{n}") for n in range(start, start + count)]


class Growing(MemoryStorage):
    """``storage`` as an auditor reads it; before each of its questions, by name, others get a turn ("": what is there?)."""

    def __init__(self, storage: Storage, turn: Callable[[str], object]) -> None:
        super().__init__()
        self._storage, self._turn = storage, turn

    def list(self, prefix: str = "") -> Iterator[str]:
        self._turn("")
        return iter([*self._storage.list(prefix)])

    def read(self, name: str) -> bytes:
        self._turn(name)
        return self._storage.read(name)


@pytest.mark.parametrize("before", [2, 250, 300])
@pytest.mark.parametrize("more", [5, 300])
def test_what_others_append_meanwhile_is_no_finding(storage: Storage, signer: Signer, before: int, more: int) -> None:
    size = 0

    def publish() -> None:
        nonlocal size
        with Log.open(storage, signer) as log:
            log.append(drafts(size, more if size else before))
        size += more if size else before

    publish()
    assert check(Growing(storage, lambda name: name or publish()), [signer.verifier]) == []
    with ExitStack() as stack:

        def commit() -> None:
            log = stack.enter_context(Log.open(storage, signer, publish_seconds=3600))
            log.append(drafts(size, 3))

        turns = {"": publish, journal_path(LOG): commit}
        assert check(Growing(storage, lambda name: turns.pop(name, str)()), [signer.verifier]) == [], (
            "the journal goes on behind what was published"
        )
    assert check(storage, [signer.verifier]) == []


class TwoLogs(MemoryStorage):
    """``first`` for ``turn`` questions, and ``then`` another storage."""

    def __init__(self, first: Storage, then: Storage, turn: int) -> None:
        super().__init__()
        self._storages, self._turn, self.asked = (first, then), turn, 0

    def _storage(self) -> Storage:
        self.asked += 1
        return self._storages[self.asked > self._turn]

    def list(self, prefix: str = "") -> Iterator[str]:
        return iter([*self._storage().list(prefix)])

    def read(self, name: str) -> bytes:
        return self._storage().read(name)


def key(number: int, *, hybrid: bool = False) -> Signer:
    keys = [Ed25519PrivateKey.from_private_bytes(bytes([number]) * 32)]
    more = [MLDSA44PrivateKey.from_seed_bytes(bytes([number]) * 32)] if hybrid else []
    return signer_of("log.example/test", [*keys, *more], None)


def append(storage: Storage, signer: Signer, *more: Draft) -> None:
    with Log.open(storage, signer) as log:
        log.append([Draft("test.made/v1", "run/2", {}), *more])


def rotated(storage: Storage, *keys: Signer) -> None:
    for old, new in pairwise(keys):
        rotate_key(storage, old, new)


def rotated_and_appended(storage: Storage, *keys: Signer) -> None:
    for old, new in pairwise(keys):
        rotate_key(storage, old, new)
        append(storage, new)


def rotated_and_retired(storage: Storage, *keys: Signer) -> None:
    for old, new in pairwise(keys):
        rotate_key(storage, old, new)
        retire_key(storage, new, old.verifiers)
        append(storage, new)


def rotated_and_somebody_enrolled(storage: Storage, *keys: Signer) -> None:
    """Who writes, too, under a key that a later key of the log enrolled."""
    rotated_and_appended(storage, *keys)
    bob = Signer("bob@gpu", Ed25519PrivateKey.from_private_bytes(bytes([77]) * 32))
    append(storage, keys[-1], enrol_author(keys[0].name, keys[-1], bob.verifier, make_certificate(bob)))
    append(storage, keys[-1], *sign_drafts(keys[0].name, bob, [Draft("test.made/v1", "run/3", {})]))


@pytest.mark.parametrize("hybrid", [(False, False, False), (True, False, False), (False, True, False)])
@pytest.mark.parametrize("change", [rotated, rotated_and_appended, rotated_and_retired, rotated_and_somebody_enrolled])
def test_keys_that_others_change_meanwhile_are_no_finding(
    change: Callable[..., None], hybrid: tuple[bool, ...]
) -> None:
    """Between any two questions of one audit."""
    keys = [key(number, hybrid=half) for number, half in enumerate(hybrid, 1)]
    for turn in count():
        storage = MemoryStorage()
        Log.create(storage, keys[0])
        ada = Signer("ada@desk", Ed25519PrivateKey.from_private_bytes(bytes([78]) * 32))
        append(storage, keys[0], enrol_author(keys[0].name, keys[0], ada.verifier, make_certificate(ada)))
        asked: list[str] = []

        def others(name: str, turn: int = turn, storage: Storage = storage, asked: list[str] = asked) -> None:
            asked.append(name)
            if len(asked) == turn + 1:
                change(storage, *keys)

        found = check(Growing(storage, others), keys[0].verifiers)
        assert found == [], (turn, asked[turn:][:1], found)
        if len(asked) <= turn:
            break
        assert check(storage, keys[0].verifiers) == []
    assert turn > 10


FIRST, SECOND, THIRD = (key(number) for number in (1, 2, 3))


def forged(storage: MemoryStorage, what: str) -> bytes:
    """A link of keys as somebody makes it who does not have the newest key."""
    with Log.open(storage, SECOND) as log:
        index = log.append([Draft("test.made/v1", "run/2", {"vkeys": [str(THIRD.verifier)]})])[0].index
    genuine = make_proof(LogReader(storage, [FIRST.verifier]), index)
    if what == "of an event that is not of keys":
        return str(genuine).encode()
    signer = {"by the key that was retired": FIRST, "by nobody's key": key(9)}.get(what, SECOND)
    before = genuine.index + {"beyond what is published": 1000, "of an entry inside": -2}.get(what, 0)
    elsewhere = MemoryStorage()
    Log.create(elsewhere, signer)
    with Log.open(elsewhere, signer) as log:
        log.append([Draft("test.made/v1", "run/4", {}) for _ in range(before)])
    rotate_key(elsewhere, signer, THIRD)
    return elsewhere.read("keys/0")


FORGED = (
    "of an event that is not of keys",
    "by the key that was retired",
    "by nobody's key",
    "of an entry inside",
    "beyond what is published",
)


@pytest.mark.parametrize("what", FORGED)
def test_a_link_that_is_forged_meanwhile_is_one(what: str) -> None:
    storage = MemoryStorage()
    Log.create(storage, FIRST)
    append(storage, FIRST)
    rotated_and_retired(storage, FIRST, SECOND)
    assert check(storage, [FIRST.verifier]) == []
    waiting = [""]

    def others(name: str) -> None:
        if waiting and name == waiting[0]:
            waiting.pop()
            storage.create("keys/2", forged(storage, what))

    found = check(Growing(storage, others), [FIRST.verifier])
    assert not waiting and ("a link of keys is not of an event of this log", "keys/2") in [
        (f.what, f.where) for f in found
    ]


def test_what_nobody_published_is_one(storage: Storage, signer: Signer) -> None:
    with Log.open(storage, signer) as log:
        log.append(drafts(0, 300))
    storage.create("log/tile/0/001.p/60", bytes(60 * 32))
    (finding,) = check(storage, [signer.verifier])
    assert finding.what == "a file that belongs to no tile of this log" and finding.where == "log/tile/0/001.p/60"


@pytest.mark.parametrize("published", [True, False])
def test_a_server_that_shows_another_log_to_the_next_question_is_found(published: bool) -> None:
    """What one half of a hybrid key signed is audited, and then the log is shown that both halves signed."""
    both, half = key(1, hybrid=True), key(1)
    honest, forged = MemoryStorage(), MemoryStorage()
    for storage in (honest, forged):
        Log.create(storage, both)
        append(storage, both)
    append(honest, both, Draft("test.made/v1", "run/3", {"number": 1}))
    with Log.open(forged, half, publish_seconds=0 if published else 3600) as log:
        log.append([Draft("test.made/v1", "run/3", {"number": 2})])
        assert check(honest, both.verifiers) == [] != check(forged, both.verifiers)
        for turn in count(1):
            shown = TwoLogs(forged, honest, turn)
            assert check(shown, both.verifiers) != [], turn
            if shown.asked <= turn:
                break
    assert turn > 5


def test_a_broken_link_speaks_for_itself_alone() -> None:
    storage = MemoryStorage()
    Log.create(storage, FIRST)
    rotated_and_appended(storage, FIRST, SECOND, THIRD)
    assert len([*storage.list("keys/")]) == 2
    storage.replace("keys/1", b"no link")
    found = [(one.what, one.where) for one in check(storage, [FIRST.verifier, THIRD.verifier])]
    assert {where for _, where in found if where.startswith("keys/")} == {"keys/1"}
    assert [where for what, where in found if what == "an event about keys has no link"] == ["entry 2"], found
