"""Collection: what is named or young stays, and nothing that anybody could still want is gone after one run."""

import os
import time
from pathlib import Path

import pytest
from buckets import Bucket

from ledger import (
    Malformed,
    NotFound,
    PosixStorage,
    Refused,
    StorageFailed,
    Store,
    canonical_bytes,
    collect_garbage,
    lease,
    list_leases,
    list_pins,
    named_digests,
    open_storage,
    pin,
    unpin,
)
from ledger.store.collect.leases import Lease
from ledger.store.layout import INCOMING, LEASES, blob_name, parts_name, tree_name
from ledger.store.parts import PART_SIZE

DAY = 86400.0


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(PosixStorage(tmp_path / "root"))


def age(store: Store, seconds: float) -> None:
    """Make everything in the store look that old."""
    root = store.storage.local_path("store")
    assert root is not None
    then = time.time() - seconds
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def put_tree(store: Store, folder: Path, **files: bytes) -> str:
    folder.mkdir()
    for name, data in files.items():
        (folder / name).write_bytes(data)
    return store.put_tree(folder).digest


def test_what_is_named_stays_with_all_its_files(store: Store, tmp_path: Path) -> None:
    tree = put_tree(store, tmp_path / "t", a=b"a", b=b"b" * (PART_SIZE + 1))
    kept, garbage = store.put_bytes(b"kept").digest, store.put_bytes(b"garbage").digest
    age(store, 30 * DAY)
    done = collect_garbage(store, [tree, kept], min_age=7 * DAY)
    assert [(s.act, s.name) for s in done.swept] == [("set aside", blob_name(garbage))]
    assert (done.kept, done.missing, done.bytes_of("set aside")) == (4, (), 7)
    assert store.verify(tree) == []
    assert store.blobs.parts(store.manifest(tree).entry("b").digest) is not None
    assert store.read(kept) == b"kept"


def test_part_hashes_go_with_their_blob(store: Store) -> None:
    digest = store.put_bytes(b"x" * (PART_SIZE + 1)).digest
    age(store, DAY)
    done = collect_garbage(store, [], min_age=0)
    assert [s.name for s in done.swept] == [blob_name(digest), parts_name(digest)]


def test_what_is_young_stays_and_a_young_tree_keeps_its_old_files(store: Store, tmp_path: Path) -> None:
    tree = put_tree(store, tmp_path / "t", a=b"a")
    old = store.put_bytes(b"old").digest
    age(store, 2 * DAY)
    assert collect_garbage(store, [], min_age=7 * DAY).swept == ()
    path = store.storage.local_path(tree_name(tree))
    assert path is not None
    os.utime(path)
    assert [s.name for s in collect_garbage(store, [], min_age=DAY).swept] == [blob_name(old)]
    assert store.verify(tree) == []


def test_the_last_minute_is_young_even_at_no_age(store: Store) -> None:
    store.put_bytes(b"just now")
    assert collect_garbage(store, [], min_age=0).swept == ()


def test_a_dry_run_says_what_and_why_and_changes_nothing(store: Store, tmp_path: Path) -> None:
    tree = put_tree(store, tmp_path / "t", a=b"a", b=b"b")
    age(store, 30 * DAY)
    collect_garbage(store, [], min_age=DAY)
    extra = store.put_bytes(b"extra").digest
    age(store, 60 * DAY)
    root = tmp_path / "root"
    before = {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()}
    for roots, acts in (([], {"set aside", "delete"}), ([tree], {"set aside", "bring back"})):
        done = collect_garbage(store, roots, min_age=DAY, dry_run=True, now=time.time() + 2 * DAY)
        assert {s.act for s in done.swept} == acts
        assert done.missing == ()
        assert blob_name(extra) in str([str(s) for s in done.swept])
    assert {path: path.stat().st_mtime_ns for path in root.rglob("*") if path.is_file()} == before


def test_two_runs_and_the_age_stand_before_the_end(store: Store) -> None:
    digest = store.put_bytes(b"garbage").digest
    age(store, 30 * DAY)
    start = time.time()
    assert [s.act for s in collect_garbage(store, [], min_age=DAY, now=start).swept] == ["set aside"]
    assert collect_garbage(store, [], min_age=DAY, now=start + DAY / 2).swept == ()
    assert [s.act for s in collect_garbage(store, [], min_age=DAY, now=start + 2 * DAY).swept] == ["delete"]
    with pytest.raises(NotFound):
        store.read(digest)
    root = store.storage.local_path("store/quarantine")
    assert root is not None
    assert list(root.iterdir()) == []


@pytest.mark.parametrize("ask", ["read", "put", "has", "verify", "tree", "checkout", "named"])
def test_what_was_set_aside_comes_back_when_it_is_wanted(store: Store, tmp_path: Path, ask: str) -> None:
    tree = put_tree(store, tmp_path / "t", a=b"wanted")
    digest = store.manifest(tree).entry("a").digest
    age(store, 30 * DAY)
    start = time.time()
    assert len(collect_garbage(store, [], min_age=DAY, now=start).swept) == 2
    if ask == "read":
        assert store.read(digest) == b"wanted"
    elif ask == "put":
        store.put_bytes(b"wanted")
    elif ask == "has":
        assert store.has(digest)
    elif ask == "verify":
        assert store.verify(digest) == []
    elif ask == "tree":
        assert store.put_tree(tmp_path / "t").digest == tree
    elif ask == "checkout":
        store.checkout(tree, tmp_path / "out")
    collect_garbage(store, [digest], min_age=DAY, now=start + 3 * DAY)
    assert store.read(digest) == b"wanted"


def test_a_put_of_an_unchanged_tree_protects_files_that_nobody_reads(store: Store, tmp_path: Path) -> None:
    tree = put_tree(store, tmp_path / "t", a=b"a", b=b"b")
    for path in (tmp_path / "t").iterdir():
        os.utime(path, (1, 1))
    age(store, 30 * DAY)
    store.put_tree(tmp_path / "t")
    assert collect_garbage(store, [], min_age=DAY).swept == ()
    assert store.verify(tree) == []


@pytest.mark.parametrize("writes", ["before", "between", "after"])
def test_a_put_that_races_a_collection_loses_nothing(
    store: Store, monkeypatch: pytest.MonkeyPatch, writes: str
) -> None:
    """The put happens at each point of the collector's step from looking at a blob to renaming it."""
    digest = store.put_bytes(b"raced").digest
    age(store, 30 * DAY)
    import ledger.store.collect.gc as gc

    real = gc.os.rename

    def racing(source: object, target: object) -> None:
        if writes == "between":
            store.put_bytes(b"raced")
        real(source, target)  # type: ignore[arg-type]
        if writes == "after":
            store.put_bytes(b"raced")

    monkeypatch.setattr(gc.os, "rename", racing)
    if writes == "before":
        store.put_bytes(b"raced")
    start = time.time()
    collect_garbage(store, [], min_age=DAY, now=start)
    monkeypatch.undo()
    # The event that names the artifact arrives after the collection: both later runs see it, or see the new time stamp.
    collect_garbage(store, [], min_age=DAY, now=start + 5)
    assert store.read(digest) == b"raced"


def test_a_clock_that_jumps_ahead_deletes_nothing_at_once(store: Store) -> None:
    digest = store.put_bytes(b"fresh").digest
    far = time.time() + 3650 * DAY
    assert [s.act for s in collect_garbage(store, [], now=far).swept] == ["set aside"]
    assert collect_garbage(store, [digest], now=time.time() + 10).swept[0].act == "bring back"
    assert store.read(digest) == b"fresh"


def test_a_lease_keeps_what_is_put_while_it_lives(store: Store) -> None:
    before = store.put_bytes(b"before").digest
    age(store, 30 * DAY)
    with lease(store.storage, "a long step") as held:
        during = store.put_bytes(b"during").digest
        later = time.time() + 20 * DAY
        assert [s.name for s in collect_garbage(store, [], min_age=DAY, now=later).swept] == [blob_name(before)]
        assert [known.holder for known in list_leases(store.storage)] == ["a long step"]
        assert held.alive(later), "its time has passed, its process runs"
    assert list(list_leases(store.storage)) == []
    assert {s.name for s in collect_garbage(store, [], min_age=DAY, now=later).swept} == {blob_name(during)}


def test_a_lease_outlives_nobody(store: Store) -> None:
    now = time.time()
    elsewhere = Lease("n", "h", "another host", 1, now, now + 60)
    dead = Lease("n", "h", os.uname().nodename, 2**22, now, now + 60)
    assert elsewhere.alive(now)
    assert dead.alive(now)
    assert not elsewhere.alive(now + 61)
    assert not dead.alive(now + 61)


@pytest.mark.parametrize("data", [b"", b"{}", b"[1]", b'{"kind":"lease"}', b'{"began":"x"}'])
def test_a_lease_that_cannot_be_read_stops_collection(store: Store, data: bytes) -> None:
    store.put_bytes(b"x")
    age(store, 30 * DAY)
    store.storage.create(f"{LEASES}odd.json", data)
    with pytest.raises(Malformed, match="lease"):
        collect_garbage(store, [], min_age=0)
    assert store.read(store.put_bytes(b"x").digest) == b"x"


@pytest.mark.parametrize("pid", [0, -1, -(2**31), 2**22 + 1, 2**31, 2**53 - 1, "1", "x", None, True, [1]])
def test_a_lease_of_a_process_that_no_system_has_stops_collection_with_a_line(store: Store, pid: object) -> None:
    """0 and -1 name groups of processes, of which one always lives; a large number is not one to the system."""
    fields = {
        "began": "1.0",
        "expires": "2.0",
        "holder": "h",
        "host": os.uname().nodename,
        "kind": "lease",
        "version": 1,
    }
    store.storage.create(f"{LEASES}odd.json", canonical_bytes({**fields, "pid": pid}))
    with pytest.raises(Malformed, match=r"a lease cannot be read: store/leases/odd\.json"):
        collect_garbage(store, [], min_age=0)


@pytest.mark.parametrize("time", ["nan", "inf", "-inf"])
def test_a_lease_until_a_time_that_is_none_stops_collection(store: Store, time: str) -> None:
    fields = {"began": time, "expires": time, "holder": "h", "host": "there", "kind": "lease", "pid": 1, "version": 1}
    store.storage.create(f"{LEASES}odd.json", canonical_bytes(fields))
    with pytest.raises(Malformed, match="not a time"):
        collect_garbage(store, [], min_age=0)


def test_a_kept_manifest_that_cannot_be_read_stops_collection(store: Store, tmp_path: Path) -> None:
    tree = put_tree(store, tmp_path / "t", a=b"a")
    store.put_bytes(b"garbage")
    store.storage.replace(tree_name(tree), b"{}")
    age(store, 30 * DAY)
    before = sorted(str(path) for path in (tmp_path / "root").rglob("*"))
    with pytest.raises(StorageFailed, match="nothing was collected"):
        collect_garbage(store, [tree], min_age=0)
    after = sorted(str(path) for path in (tmp_path / "root").rglob("*") if path.name != "gc.lock")
    assert after == before


def test_roots_that_are_not_here_are_named(store: Store) -> None:
    absent = "sha256:" + "ab" * 32
    assert collect_garbage(store, [absent]).missing == (absent,)


def test_unfinished_transfers_are_cleared_when_they_are_old(store: Store) -> None:
    store.storage.create(INCOMING + "ab" * 32, b"half")
    assert collect_garbage(store, [], min_age=0).swept == ()
    age(store, DAY)
    assert [s.act for s in collect_garbage(store, [], min_age=0).swept] == ["delete"]
    assert list(store.storage.list(INCOMING)) == []


class Clock:
    """Time for a bucket, whose own cannot be set: everything there was written this long ago."""

    def __init__(self) -> None:
        self.ahead = 0.0

    def now(self) -> float:
        return time.time() + self.ahead


def test_in_a_bucket(bucket: Bucket, tmp_path: Path) -> None:
    clock = Clock()
    store = Store(open_storage(f"{bucket.url}/root"))
    tree = put_tree(store, tmp_path / "t", a=b"a", b=b"b")
    named, pinned, garbage = (store.put_bytes(word).digest for word in (b"named", b"pinned", b"garbage"))
    pin(store.storage, pinned, "for the test")
    assert collect_garbage(store, [], now=clock.now()).swept == ()
    clock.ahead += 8 * DAY
    planned = collect_garbage(store, [tree, named], now=clock.now(), dry_run=True)
    assert [(s.act, s.name, s.size) for s in planned.swept] == [("set aside", blob_name(garbage), 7)]
    assert "nothing names it" in planned.swept[0].why
    bucket.service.requests.clear()
    assert collect_garbage(store, [tree, named], now=clock.now()).swept == planned.swept
    for digest in (tree, named, pinned):
        assert store.verify(digest) == []
    other = Store(open_storage(f"{bucket.url}/root"))
    assert other.read(garbage) == b"garbage", "asked for, it comes back"
    assert collect_garbage(store, [tree, named], now=clock.now()).bytes_of("set aside") == 7
    assert collect_garbage(store, [tree, named, garbage], now=clock.now()).bytes_of("bring back") == 7
    unpin(store.storage, pinned)
    assert collect_garbage(store, [tree, named], now=clock.now()).bytes_of("set aside") == 13
    clock.ahead += 8 * DAY
    assert collect_garbage(store, [tree, named], now=clock.now()).bytes_of("delete") == 13
    assert not Store(open_storage(f"{bucket.url}/root")).has(garbage)
    assert store.verify(tree) == []


def test_a_put_in_a_bucket_that_races_a_collection(gcs: Bucket) -> None:
    """The writer finds its blob there, the collector sets it aside, the event names it: nothing is lost."""
    clock = Clock()
    writer, collector = (Store(open_storage(gcs.url)) for _ in range(2))
    digest = writer.put_bytes(b"old").digest
    clock.ahead += 8 * DAY
    assert writer.put_bytes(b"old").digest == digest
    assert collect_garbage(collector, [], now=clock.now()).bytes_of("set aside") == 3
    clock.ahead += 1 * DAY
    assert collect_garbage(collector, [digest], now=clock.now()).bytes_of("bring back") == 3
    assert collector.read(digest) == b"old"


def test_a_lease_in_a_bucket(gcs: Bucket) -> None:
    store = Store(open_storage(gcs.url))
    with lease(store.storage, "a writer", seconds=30 * DAY):
        store.put_bytes(b"under a lease")
        assert collect_garbage(store, [], now=time.time() + 20 * DAY, min_age=DAY).swept == ()
    assert len(collect_garbage(store, [], now=time.time() + 20 * DAY, min_age=DAY).swept) == 1


def test_pins(store: Store) -> None:
    kept, garbage = store.put_bytes(b"kept").digest, store.put_bytes(b"garbage").digest
    pin(store.storage, kept, "a reason")
    pin(store.storage, kept, "a better one")
    assert [(found.digest, found.why) for found in list_pins(store.storage)] == [(kept, "a better one")]
    age(store, 30 * DAY)
    assert [s.name for s in collect_garbage(store, []).swept] == [blob_name(garbage)]
    unpin(store.storage, kept)
    with pytest.raises(NotFound, match="no such pin"):
        unpin(store.storage, kept)
    store.storage.replace("store/pins/x.json", b"{}")
    with pytest.raises(Malformed, match="pin cannot be read"):
        collect_garbage(store, [])


def test_a_sane_age(store: Store) -> None:
    with pytest.raises(Refused, match="minimum age"):
        collect_garbage(store, [], min_age=-1)


def test_digests_are_found_wherever_a_document_names_them() -> None:
    one, two, three = (f"sha256:{digit * 64}" for digit in "123")
    document = {"a": [one, {"b": two, three: None}], "c": "sha256:short", "d": 1.5, "e": f"see {one}"}
    assert sorted(named_digests(document)) == [one, two, three]
