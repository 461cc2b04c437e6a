"""A clock that jumps: the table of {how far} x {before which step}, for a store that is put to, leased, collected and
scrubbed.

Whatever the clock says, what was put stays right, what the ledger names stays there, and what was put lately and is
named late is still there to be named: two collections and the minimum age stand before a deletion.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import PosixStorage, Store, collect_garbage, lease, list_leases, scrub_store
from ledger.store.layout import blob_name

YEARS = 10 * 365 * 86400.0
JUMPS = {
    "ten years ahead": YEARS,
    "ten years back": -YEARS,
    "to 1970": -1_700_000_000.0,
    "eight days ahead": 8 * 86400.0,
}
STEPS = ("put", "lease", "collect", "put again", "collect again", "scrub", "collect a third time")


class Clock:
    """The system's clock, moved."""

    def __init__(self, monkeypatch: pytest.MonkeyPatch) -> None:
        self.ahead = 0.0
        now, now_ns = time.time, time.time_ns
        monkeypatch.setattr(time, "time", lambda: max(0.0, now() + self.ahead))
        monkeypatch.setattr(time, "time_ns", lambda: max(0, now_ns() + int(self.ahead * 1e9)))


@pytest.mark.parametrize("jump", list(JUMPS))
@pytest.mark.parametrize("before", STEPS)
def test_a_clock_that_jumps(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, jump: str, before: str) -> None:
    clock = Clock(monkeypatch)
    storage = PosixStorage(tmp_path / "root")
    store = Store(storage)
    folder = tmp_path / "folder"
    folder.mkdir()
    (folder / "one").write_bytes(b"one")
    (folder / "two").write_bytes(b"two" * 1000)
    named = store.put_tree(folder).digest
    late = store.put_bytes(b"named by an event that comes late").digest

    def put_again() -> None:
        assert store.put_tree(folder).digest == named
        (folder / "two").write_bytes(b"2" * 3000)
        changed = store.put_tree(folder).digest
        assert store.read(store.manifest(changed).entry("two").digest) == b"2" * 3000, "a stat cache is no evidence"
        (folder / "two").write_bytes(b"two" * 1000)

    def leased() -> None:
        with lease(storage, "a writer at work"):
            fresh = store.put_bytes(b"put under a lease").digest
            collect_garbage(store, [named])
            assert store.read(fresh) == b"put under a lease"
        assert list(list_leases(storage)) == []

    def collect() -> None:
        collect_garbage(store, [named])

    jobs: dict[str, Callable[[], object]] = {
        "put": lambda: store.put_bytes(b"more"),
        "lease": leased,
        "collect": collect,
        "put again": put_again,
        "collect again": collect,
        "scrub": lambda: scrub_store(store),
        "collect a third time": collect,
    }
    for step in STEPS:
        if step == before:
            clock.ahead = JUMPS[jump]
        jobs[step]()
        assert store.verify(named) == []
    assert list(store.verify_all()) == []
    assert store.has(late), "not deleted yet, and back when it is asked for"
    assert store.read(late) == b"named by an event that comes late"
    assert storage.exists(blob_name(late))
    clock.ahead = 0.0
    collect()
    assert store.verify(named) == []
