"""Packfiles: read by any storage, told from damage, collected and repaired. Written here by a few lines of their
own."""

import hashlib
import http.server
import os
import struct
import threading
import time
from collections.abc import Iterator
from functools import partial
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import (
    PART_SIZE,
    LedgerError,
    Manifest,
    ManifestEntry,
    NotFound,
    PosixStorage,
    Store,
    Tampered,
    collect_garbage,
    copy_artifacts,
    open_storage,
    scrub_store,
)
from ledger.storage.port import Storage
from ledger.store.blobs.presence import presence
from ledger.store.layout import PACKFILE_LIST, PACKFILES, blob_name
from ledger.store.packs.packfile import Index, read_index
from ledger.store.packs.packing import Chunks
from ledger.store.parts import HEADER
from ledger.store.workers import fileworker, manyfiles
from ledger.store.workers.fileworker import PackWriter
from tests.ledger.memory import MemoryStorage

DAY = 86400.0
BLOBS = [f"blob {number}".encode() * (number + 1) for number in range(20)] + [b""]


def digest(data: bytes) -> str:
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def packfile(blobs: list[bytes]) -> tuple[str, bytes]:
    """The name and the bytes of a packfile, as SPEC.md describes them."""
    body, entries = b"marin.packfile/1", []
    for blob in blobs:
        entries.append((hashlib.sha256(blob).digest(), len(body), len(blob)))
        body += blob
    index = b"".join(name + struct.pack(">Q", start) + struct.pack(">I", size) for name, start, size in sorted(entries))
    index += struct.pack(">Q", len(entries)) + b"marin.packfile/1"
    return f"store/packfiles/{hashlib.sha256(index).hexdigest()}", body + index


def with_packfile(storage: Storage, blobs: list[bytes] = BLOBS) -> tuple[Store, str, str]:
    """A store whose small blobs are in one packfile, that packfile, and the tree of them all."""
    name, data = packfile(blobs)
    storage.ensure(name, data)
    store = Store(storage)
    store.blobs.packfiles.publish()
    manifest = Manifest.of(ManifestEntry(f"{number:02d}", len(blob), digest(blob)) for number, blob in enumerate(blobs))
    return store, name, store.put_manifest(manifest).digest


@pytest.fixture
def root(tmp_path: Path) -> Path:
    return tmp_path / "root"


def path_of(store: Store, name: str) -> Path:
    path = store.storage.local_path(name)
    assert path is not None
    return path


def age(store: Store, seconds: float = 30 * DAY) -> None:
    then = time.time() - seconds
    for path in path_of(store, "store").rglob("*"):
        if path.is_file():
            os.utime(path, (then, then))


def test_what_is_written_has_the_bytes_that_the_text_describes(tmp_path: Path) -> None:
    writer = PackWriter(str(tmp_path))
    for blob in (*BLOBS, BLOBS[3]):
        writer.add(hashlib.sha256(blob).digest(), blob)
    name = writer.finish()
    assert (PACKFILES + name, (tmp_path / name).read_bytes()) == packfile(BLOBS)
    assert [path.name for path in tmp_path.iterdir()] == [name]


@given(st.lists(st.binary(max_size=40), unique=True, max_size=30), st.binary(max_size=40))
def test_every_blob_is_found_and_no_other(blobs: list[bytes], other: bytes) -> None:
    storage = MemoryStorage()
    name, data = packfile(blobs)
    storage.ensure(name, data)
    index = read_index(storage, name)
    for blob in blobs:
        place = index.find(hashlib.sha256(blob).digest())
        assert place is not None
        assert data[place.start : place.start + place.size] == blob
    assert (index.find(hashlib.sha256(other).digest()) is None) == (other not in blobs)
    assert dict(index) == {digest(blob): index.find(hashlib.sha256(blob).digest()) for blob in blobs}
    assert index.digests() == {hashlib.sha256(blob).digest() for blob in blobs}


@pytest.mark.parametrize("driver", ["memory", "posix", "read only"])
def test_blobs_of_a_packfile_are_blobs(root: Path, tmp_path: Path, driver: str) -> None:
    storage: Storage = MemoryStorage() if driver == "memory" else PosixStorage(root)
    store, _, tree = with_packfile(storage)
    if driver == "read only":
        store = Store(PosixStorage(root, readonly=True))
    assert store.verify(tree) == [] == list(store.verify_all())
    present = presence(store.blobs)
    for blob in BLOBS:
        one = digest(blob)
        assert store.read(one) == blob == store.open(one).read()
        assert store.open_range(one, 1, 5) == blob[1:6]
        assert (store.has(one), present(one), store.artifact(one).size) == (True, True, len(blob))
        assert store.blobs.local(one) is None
        assert not store.blobs.is_whole(one)
        assert store.blobs.plain_sha256(one) == one
    assert not present(digest(b"other"))
    assert not store.has(digest(b"other"))
    assert dict(store.digests()) == {tree: "tree"} | {digest(blob): "blob" for blob in BLOBS}
    assert store.checkout(tree, tmp_path / "out").files == len(BLOBS)
    assert [path.read_bytes() for path in sorted((tmp_path / "out").iterdir())] == BLOBS
    assert store.checkout(digest(BLOBS[4]), tmp_path / "file", how="copy").copied == 1
    other = Store(MemoryStorage())
    copy_artifacts(store, other, [tree])
    assert other.verify(tree) == []
    with pytest.raises(NotFound):
        store.read(digest(b"other"))


@pytest.fixture
def address(root: Path) -> Iterator[str]:
    """A plain server of files over the root."""
    handler = partial(http.server.SimpleHTTPRequestHandler, directory=str(root))
    handler.log_message = lambda *arguments: None  # type: ignore[attr-defined]
    with http.server.ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
        thread.start()
        yield f"http://127.0.0.1:{server.server_address[1]}"
        server.shutdown()
        thread.join()


def test_a_published_store_gives_what_is_in_its_packfiles(root: Path, address: str, tmp_path: Path) -> None:
    """A plain server lists nothing: the list of packfiles does."""
    _, _, tree = with_packfile(PosixStorage(root))
    remote, mine = Store(open_storage(address)), Store(PosixStorage(tmp_path / "mine"))
    assert copy_artifacts(remote, mine, [tree]).blobs == len(BLOBS)
    assert mine.verify(tree) == []
    (root / PACKFILE_LIST).write_text("../../etc/passwd\n\nxyz\n")
    assert not Store(open_storage(address)).has(digest(BLOBS[0]))


def test_what_a_target_has_in_a_packfile_is_not_sent(root: Path, tmp_path: Path) -> None:
    for storage in (PosixStorage(root), MemoryStorage()):
        store, _, tree = with_packfile(storage)
        source = Store(MemoryStorage())
        copy_artifacts(store, source, [tree])
        extra = source.put_bytes(b"extra").digest
        assert copy_artifacts(source, store, [tree, extra]).blobs == 1


def test_no_byte_of_a_packfile_can_change_unseen(root: Path) -> None:
    blobs = [b"alpha", b"beta"]
    store, name, tree = with_packfile(PosixStorage(root), blobs)
    path, (_, data) = path_of(store, name), packfile(blobs)
    for at in range(len("marin.packfile/1"), len(data)):
        path.write_bytes(data[:at] + bytes([data[at] ^ 0x40]) + data[at + 1 :])
        damaged = Store(store.storage)
        assert [finding for finding in damaged.verify_all() if "store/packfiles/" in f"{finding}"] != [], at
        assert damaged.verify(tree) != []
        for blob in blobs:
            try:
                assert damaged.read(digest(blob)) == blob
            except LedgerError as error:
                assert digest(blob) in str(error)
    for length in range(len(data)):
        path.write_bytes(data[:length])
        assert Store(store.storage).verify(tree) != []
        assert list(Store(store.storage).verify_all()) != []
    path.write_bytes(data)
    assert list(Store(store.storage).verify_all()) == []


def test_of_two_copies_the_good_one_is_read(root: Path) -> None:
    store, name, tree = with_packfile(PosixStorage(root))
    other, data = packfile([BLOBS[5], b"more"])
    store.storage.ensure(other, data)
    path, place = path_of(store, name), read_index(store.storage, name).find(hashlib.sha256(BLOBS[5]).digest())
    assert place is not None
    whole = path.read_bytes()
    path.write_bytes(whole[: place.start] + b"rotten" + whole[place.start + 6 :])
    store = Store(store.storage)
    assert store.read(digest(BLOBS[5])) == BLOBS[5]
    assert store.verify(tree) == [] == list(store.verify_all())
    store.storage.remove(other)
    store = Store(store.storage)
    assert [finding.expected for finding in store.verify_all()] == [digest(BLOBS[5])]
    store.put_bytes(BLOBS[5])
    assert store.read(digest(BLOBS[5])) == BLOBS[5]
    assert store.verify(tree) == [] == list(store.verify_all()), "what is kept whole is read from there"


def test_a_range_of_a_blob_in_chunks_may_lie_in_a_packfile(root: Path, tmp_path: Path) -> None:
    store = Store(PosixStorage(root))
    large = hashlib.shake_128(b"chunks").digest(PART_SIZE + 70_000)
    (tmp_path / "large").write_bytes(large)
    one = store.put_file(tmp_path / "large", chunked=True).digest
    record = store.blobs.packed(one)
    assert isinstance(record, Chunks)
    last, size = record.chunks[-1]
    store.storage.remove(blob_name(last))
    with_packfile(store.storage, [large[-size:], b"other"])
    store = Store(store.storage)
    assert store.verify(one) == []
    assert store.open_range(one, len(large) - 5, 5) == large[-5:]
    assert store.open(one).read() == large


@pytest.mark.parametrize("start", [2**63 + 5, 0, 10**6])
def test_an_index_that_points_outside_is_a_finding_and_stops_nothing(root: Path, start: int) -> None:
    blob = hashlib.sha256(b"hello").digest()
    index = blob + struct.pack(">Q", start) + struct.pack(">I", 5) + struct.pack(">Q", 1) + b"marin.packfile/1"
    name = f"store/packfiles/{hashlib.sha256(index).hexdigest()}"
    storage = PosixStorage(root)
    storage.create(name, b"marin.packfile/1hello" + index)
    store, _, tree = with_packfile(storage)
    assert [finding.where for finding in store.verify_all()] == [name]
    assert len(scrub_store(store).findings) == 1
    with pytest.raises(NotFound):
        store.read(digest(b"hello"))
    assert store.verify(tree) == []
    age(store)
    collect_garbage(store, [tree, digest(b"hello")], min_age=DAY)
    assert store.verify(tree) == []


def test_the_text_of_a_large_blob_is_no_blob(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    text = HEADER + b"parts 8388608\nsize 9000000\n"
    assert fileworker.LARGE == HEADER
    store, _, tree = with_packfile(PosixStorage(root), [text, *BLOBS])
    assert len(store.verify(tree)) == 1
    for worth in (2, 1000):
        monkeypatch.setattr(manyfiles, "WORTH", worth)
        with pytest.raises(Tampered):
            store.checkout(tree, tmp_path / "out")


def test_a_packfile_is_healed_at_once(root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Anyone who is killed while good bytes take the place of bad ones has not lost the others."""
    store, name, tree = with_packfile(PosixStorage(root))
    path, data = path_of(store, name), packfile(BLOBS)[1]
    path.write_bytes(data[:16] + b"?" + data[17:])
    (tmp_path / name.removeprefix(PACKFILES)).write_bytes(data)

    def killed(*given: object) -> None:
        raise KeyboardInterrupt

    with monkeypatch.context() as patch:
        patch.setattr(store.storage, "replace", killed)
        with pytest.raises(KeyboardInterrupt):
            store.blobs.take_packfiles(tmp_path)
    assert len(Store(store.storage).verify(tree)) == 1
    store.blobs.take_packfiles(tmp_path)
    assert Store(store.storage).verify(tree) == []


# Far away


def test_a_reader_far_away_sees_what_others_do(monkeypatch: pytest.MonkeyPatch) -> None:
    """What was listed before is believed for a while, and looked at again before anything is said to be missing."""
    monkeypatch.setattr("ledger.store.packs.packfile._AGAIN_SECONDS", 0.0)
    storage = MemoryStorage()
    reader = Store(storage)
    assert not reader.has(digest(BLOBS[0]))
    store, name, tree = with_packfile(storage)
    assert reader.verify(tree) == []
    aside = f"store/quarantine/1700000000/{name.removeprefix('store/')}"
    storage.rename(name, aside)
    assert reader.read(digest(BLOBS[3])) == BLOBS[3]
    assert list(storage.list(PACKFILES)) == [name]
    store.put_bytes(BLOBS[4])
    storage.remove(name)
    assert reader.read(digest(BLOBS[4])) == BLOBS[4]
    other = Store(MemoryStorage())
    copy_artifacts(reader, other, [digest(BLOBS[4])])
    assert other.read(digest(BLOBS[4])) == BLOBS[4]


def test_threads_bring_a_packfile_back_together() -> None:
    storage = MemoryStorage()
    _, name, tree = with_packfile(storage)
    rename, first = storage.rename, threading.Event()

    def slowly(old: str, new: str) -> None:
        first.set()
        rename(old, new)

    storage.rename(name, f"store/quarantine/1700000000/{name.removeprefix('store/')}")
    storage.rename = slowly  # type: ignore[method-assign]
    reader, mine = Store(storage), Store(MemoryStorage())
    copy_artifacts(reader, mine, [tree, *map(digest, BLOBS)], workers=8)
    assert first.is_set()
    assert mine.verify(tree) == []


# Collection


def test_a_packfile_is_kept_with_one_of_its_blobs(root: Path) -> None:
    store, name, tree = with_packfile(PosixStorage(root))
    age(store)
    for roots in ([tree], [digest(BLOBS[-2]), digest(BLOBS[-3]), *map(digest, BLOBS[10:-3])]):
        assert [s.name for s in collect_garbage(store, roots, min_age=DAY).swept] == (
            [] if tree in roots else ["/".join(("store/trees/sha256", tree[7:9], tree[9:]))]
        )
    assert collect_garbage(store, [digest(BLOBS[-2])], min_age=DAY, dry_run=True).missing == ()
    assert collect_garbage(store, [digest(b"other")], min_age=DAY, dry_run=True).missing == (digest(b"other"),)
    assert list(store.storage.list(PACKFILES)) == [name]


def test_a_young_packfile_stays_and_a_put_makes_it_young(root: Path, tmp_path: Path) -> None:
    store, name, _ = with_packfile(PosixStorage(root))
    assert collect_garbage(store, [], min_age=DAY).swept == ()
    age(store)
    assert store.blobs.renew(digest(BLOBS[2]))
    assert name not in {s.name for s in collect_garbage(store, [], min_age=DAY).swept}


@pytest.mark.parametrize("ask", ["read", "has", "renew", "verify", "present", "size", "named"])
def test_what_was_set_aside_comes_back_for_whoever_asks(root: Path, ask: str) -> None:
    store, name, tree = with_packfile(PosixStorage(root))
    age(store)
    assert name in {s.name for s in collect_garbage(store, [], min_age=DAY).swept}
    assert list(store.storage.list(PACKFILES)) == []
    assert (root / PACKFILE_LIST).read_bytes() == b""
    one, store = digest(BLOBS[7]), Store(store.storage)
    if ask == "named":
        assert (("bring back", name)) in {(s.act, s.name) for s in collect_garbage(store, [tree], min_age=DAY).swept}
    else:
        answers = {
            "read": lambda: store.read(one) == BLOBS[7],
            "has": lambda: store.has(one),
            "renew": lambda: store.blobs.renew(one),
            "verify": lambda: store.verify(one) == [],
            "present": lambda: presence(store.blobs)(one),
            "size": lambda: store.blobs.size(one) == len(BLOBS[7]),
        }
        assert answers[ask]()
    assert list(store.storage.list(PACKFILES)) == [name]
    assert PACKFILES + (root / PACKFILE_LIST).read_text().strip() == name
    assert not store.has(digest(b"other"))


def test_a_packfile_that_is_not_asked_for_is_deleted_by_a_later_run(root: Path) -> None:
    store, name, _ = with_packfile(PosixStorage(root))
    age(store)
    now = time.time()
    collect_garbage(store, [], min_age=DAY, now=now)
    done = collect_garbage(store, [], min_age=DAY, now=now + 2 * DAY)
    assert ("delete", name) in {(s.act, s.name) for s in done.swept}
    with pytest.raises(NotFound):
        Store(store.storage).read(digest(BLOBS[0]))


@pytest.mark.parametrize("dry_run", [True, False])
def test_the_few_that_are_kept_are_taken_out(root: Path, dry_run: bool) -> None:
    store, name, _ = with_packfile(PosixStorage(root))
    age(store)
    roots = [digest(BLOBS[3]), digest(BLOBS[4])]
    done = collect_garbage(store, roots, min_age=DAY, dry_run=dry_run)
    (swept,) = [s for s in done.swept if s.name == name]
    assert (swept.act, swept.why) == ("set aside", "2 of its 21 blobs are named, which are kept by themselves")
    assert [store.blobs.is_whole(one) for one in roots] == [not dry_run] * 2
    assert Store(store.storage).read(roots[0]) == BLOBS[3]
    if not dry_run:
        path_of(store, blob_name(roots[0])).unlink()
        assert Store(store.storage).read(roots[0]) == BLOBS[3], "until it is deleted it serves"


@pytest.mark.parametrize("driver", ["memory", "posix"])
def test_what_was_taken_out_does_not_bring_its_packfile_back(root: Path, driver: str) -> None:
    store, name, _ = with_packfile(MemoryStorage() if driver == "memory" else PosixStorage(root))
    now, acts = time.time(), []
    for run in range(5):
        done = collect_garbage(store, [digest(BLOBS[3])], min_age=DAY, now=now + (run + 2) * 8 * DAY)
        acts += [s.act for s in done.swept if s.name == name]
    assert acts == ["set aside", "delete"]
    assert Store(store.storage).read(digest(BLOBS[3])) == BLOBS[3]


def test_nothing_is_taken_out_of_a_packfile_that_rotted(root: Path) -> None:
    store, name, _ = with_packfile(PosixStorage(root))
    path, place = path_of(store, name), store.blobs.packfiles.find(digest(BLOBS[3]))
    assert place is not None
    whole = path.read_bytes()
    path.write_bytes(whole[: place.start] + b"!" + whole[place.start + 1 :])
    age(store)
    assert name not in {s.name for s in collect_garbage(store, [digest(BLOBS[3])], min_age=DAY).swept}


def test_a_packfile_without_an_index_stays(root: Path, caplog: pytest.LogCaptureFixture) -> None:
    store, name, _ = with_packfile(PosixStorage(root))
    path = path_of(store, name)
    os.truncate(path, path.stat().st_size - 1)
    age(store)
    assert name not in {s.name for s in collect_garbage(Store(store.storage), [], min_age=DAY).swept}
    assert "index at its end" in caplog.text


# Repair


@pytest.mark.parametrize("damage", ["a blob", "the index"])
def test_a_scrub_mends_a_packfile(root: Path, damage: str) -> None:
    store, name, tree = with_packfile(PosixStorage(root))
    remote = Store(MemoryStorage())
    copy_artifacts(store, remote, [tree])
    path, data = path_of(store, name), packfile(BLOBS)[1]
    path.write_bytes(data[:20] + b"!!!" + data[23:] if damage == "a blob" else data[:-5])
    store = Store(store.storage)
    assert scrub_store(store).findings != ()
    done = scrub_store(store, remote=remote, restart=True)
    assert done.repaired == (name,)
    store = Store(store.storage)
    assert store.verify(tree) == [] == list(store.verify_all())
    assert scrub_store(store, restart=True).findings == ()


def test_a_scrub_mends_what_the_remote_has(root: Path) -> None:
    store, name, _ = with_packfile(PosixStorage(root))
    remote = Store(MemoryStorage())
    remote.put_bytes(BLOBS[2])
    path, data = path_of(store, name), bytearray(packfile(BLOBS)[1])
    for blob in BLOBS[2:4]:
        place = store.blobs.packfiles.find(digest(blob))
        assert place is not None
        data[place.start] ^= 1
    path.write_bytes(data)
    store = Store(store.storage)
    done = scrub_store(store, remote=remote)
    assert (len(done.findings), done.repaired) == (2, ())
    assert store.read(digest(BLOBS[2])) == BLOBS[2]
    with pytest.raises(Tampered):
        store.read(digest(BLOBS[3]))


def test_a_scrub_says_what_a_remote_cannot_mend(root: Path) -> None:
    store, name, _ = with_packfile(PosixStorage(root))
    path = path_of(store, name)
    os.truncate(path, path.stat().st_size - 1)
    done = scrub_store(Store(store.storage), remote=Store(MemoryStorage()))
    assert (done.repaired, len(done.findings)) == ((), 1)
    assert path.exists()


def test_indexes_are_seen_as_they_come_and_go(root: Path) -> None:
    store, name, _ = with_packfile(PosixStorage(root))
    assert [index.packfile for index in store.blobs.packfiles.indexes()] == [name]
    other, data = packfile([b"late"])
    Store(store.storage).storage.ensure(other, data)
    assert store.read(digest(b"late")) == b"late"
    store.storage.remove(other)
    with pytest.raises(NotFound):
        store.read(digest(b"late"))
    latest = store.blobs.packfiles.latest(most_bytes=44 * len(BLOBS))
    assert [index.packfile for index in latest] == [name]
    assert store.blobs.packfiles.latest(most_bytes=44 * len(BLOBS) - 1) == []
    assert isinstance(latest[0], Index)
    assert len(latest[0]) == len(BLOBS)
