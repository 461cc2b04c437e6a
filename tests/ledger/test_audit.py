"""What an audit remembers of ids: every hash that occurs twice is found, however few are in memory at once. And an audit of a
log that grows while it is read."""

import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import Draft, Log, MemoryStorage, Signer, Storage, StorageFailed, check
from ledger.audit import entries as audit
from ledger.format.layout import LOG, journal_path

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


def once(append: Callable[[], None]) -> Callable[[], None]:
    waiting = [append]
    return lambda: waiting.pop()() if waiting else None


class Growing(MemoryStorage):
    """``storage`` as an auditor reads it, while others append between two of its questions."""

    def __init__(self, storage: Storage, listed: Callable[[], None], journal: Callable[[], None]) -> None:
        super().__init__()
        self._storage, self._listed, self._journal = storage, listed, journal

    def list(self, prefix: str = "") -> Iterator[str]:
        self._listed()
        return iter([*self._storage.list(prefix)])

    def read(self, name: str) -> bytes:
        if name == journal_path(LOG):
            self._journal()
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
    assert check(Growing(storage, publish, lambda: None), [signer.verifier]) == []
    with ExitStack() as stack:

        def commit() -> None:
            log = stack.enter_context(Log.open(storage, signer, publish_seconds=3600))
            log.append(drafts(size, 3))

        assert check(Growing(storage, once(publish), once(commit)), [signer.verifier]) == [], (
            "the journal goes on behind what was published"
        )
    assert check(storage, [signer.verifier]) == []


def test_what_nobody_published_is_one(storage: Storage, signer: Signer) -> None:
    with Log.open(storage, signer) as log:
        log.append(drafts(0, 300))
    storage.create("log/tile/0/001.p/60", bytes(60 * 32))
    (finding,) = check(storage, [signer.verifier])
    assert finding.what == "a file that belongs to no tile of this log" and finding.where == "log/tile/0/001.p/60"
