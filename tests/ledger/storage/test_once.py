"""What is fetched once is the storage's own answer, under several readers, a small budget and a full disk."""

from __future__ import annotations

import errno
from collections import Counter
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import SETTLED, NotFound, Once, Refused
from tests.ledger.memory import MemoryStorage

BLOBS = [f"store/blobs/sha256/{number:02x}/{'0' * 62}" for number in range(8)]


class Counted(MemoryStorage):
    """Counts what it is asked for."""

    def __init__(self) -> None:
        super().__init__()
        self.asked: Counter[str] = Counter()

    def read(self, name: str) -> bytes:
        self.asked[name] += 1
        return super().read(name)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        self.asked[f"{name} {start}"] += 1
        return super().read_range(name, start, length)


@pytest.fixture
def far() -> Counted:
    storage = Counted()
    for number, name in enumerate(BLOBS):
        storage.create(name, bytes([number]) * 1000)
    storage.create("log/checkpoint", b"one")
    return storage


def test_a_blob_is_asked_for_once_and_what_may_change_each_time(far: Counted, tmp_path: Path) -> None:
    once = Once(far, tmp_path, SETTLED)
    with ThreadPoolExecutor(8) as readers:
        read = list(readers.map(once.read, BLOBS * 10))
    assert read == [bytes([number]) * 1000 for _ in range(10) for number in range(8)]
    assert set(far.asked.values()) == {1}
    assert once.read_range(BLOBS[1], 3, 5) == once.read_range(BLOBS[1], 3, 5) == b"\1" * 5
    assert far.asked[f"{BLOBS[1]} 3"] == 1
    assert once.read("log/checkpoint") == b"one"
    far.replace("log/checkpoint", b"two")
    assert once.read("log/checkpoint") == b"two"
    assert (once.size(BLOBS[2]), once.exists(BLOBS[2]), once.exists("store/blobs/sha256/aa/bb")) == (1000, True, False)


@given(st.lists(st.integers(0, 7), max_size=40), st.integers(0, 40_000))
def test_a_budget_is_kept_and_changes_no_answer(order: list[int], budget: int) -> None:
    from tempfile import TemporaryDirectory

    with TemporaryDirectory() as folder:
        far = MemoryStorage()
        for number, name in enumerate(BLOBS):
            far.create(name, bytes([number]) * (100 * number))
        once = Once(far, Path(folder), SETTLED, budget)
        for number in order:
            assert once.read(BLOBS[number]) == bytes([number]) * (100 * number)
            assert sum(file.stat().st_size for file in Path(folder).iterdir()) <= budget


def test_what_is_missing_is_asked_for_again(far: Counted, tmp_path: Path) -> None:
    once, late = Once(far, tmp_path, SETTLED), f"store/trees/sha256/ab/{'0' * 62}"
    with pytest.raises(NotFound):
        once.read(late)
    far.create(late, b"here now")
    assert once.read(late) == b"here now"


def test_a_full_disk_keeps_nothing_and_hides_nothing(
    far: Counted, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(self: Path, data: bytes) -> int:
        raise OSError(errno.ENOSPC, "No space left on device")

    monkeypatch.setattr(Path, "write_bytes", full)
    once = Once(far, tmp_path, SETTLED)
    assert once.read(BLOBS[3]) == once.read(BLOBS[3]) == b"\3" * 1000
    assert far.asked[BLOBS[3]] == 2


def test_nothing_is_written_through_it(far: Counted, tmp_path: Path) -> None:
    with pytest.raises(Refused):
        Once(far, tmp_path, SETTLED).create("store/x", b"")


def test_many_at_once_stay_within_the_budget_together(far: Counted, tmp_path: Path) -> None:
    most: list[int] = []

    class Watched(Counted):
        def read(self, name: str) -> bytes:
            most.append(sum(1 for _ in tmp_path.iterdir()))
            return super().read(name)

    watched = Watched()
    for name in BLOBS:
        watched.create(name, name.encode() * 50)
    once = Once(watched, tmp_path, SETTLED, 2 * 4096)
    with ThreadPoolExecutor(8) as readers:
        assert list(readers.map(once.read, BLOBS * 20)) == [name.encode() * 50 for name in BLOBS] * 20
    most.append(sum(1 for _ in tmp_path.iterdir()))
    assert max(most) <= 2, "files of a block each, and room for two"
