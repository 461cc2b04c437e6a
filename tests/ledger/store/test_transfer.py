"""Push, pull and scrub between a local store and a remote that fails, truncates and lies."""

import hashlib
import io
from collections.abc import Callable, Iterable
from itertools import pairwise
from pathlib import Path
from typing import Any, BinaryIO

import pytest
from buckets import Bucket

from ledger import (
    PART_SIZE,
    NotFound,
    PosixStorage,
    Progress,
    StorageFailed,
    Store,
    Tampered,
    copy_artifacts,
    open_storage,
    scrub_store,
)
from ledger.store import transfer
from ledger.store.blobs.blobs import Blobs
from ledger.store.blobs.hashing import Hashed, hash_bytes
from ledger.store.layout import BLOBS, INCOMING, SCRUB_CURSOR, TREES, blob_name, parts_name, tree_name
from ledger.store.packs.packing import Chunks
from tests.ledger.memory import MemoryStorage

BIG = hashlib.shake_128(b"transfer").digest(PART_SIZE * 2 + 11)
FILES = {"a": b"alpha", "b": b"beta", "c": b"alpha", "big": BIG}
Spoil = Callable[[str, bytes], bytes]


class Remote(MemoryStorage):
    """A remote whose reads can be spoiled, and which counts what is asked of it."""

    def __init__(self) -> None:
        super().__init__()
        self.spoil: Spoil = lambda name, data: data
        self.reads: list[str] = []
        self.sent: list[str] = []

    def read(self, name: str) -> bytes:
        data = super().read(name)
        self.reads.append(name)
        return self.spoil(name, data)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        data = super().read(name)[start : start + length]
        self.reads.append(f"{name} {start}")
        return self.spoil(name, data)

    def open(self, name: str) -> BinaryIO:
        return io.BytesIO(self.read(name))

    def size(self, name: str) -> int:
        return len(super().read(name))

    def ensure(self, name: str, data: bytes) -> None:
        self.sent.append(name)
        super().ensure(name, data)

    def ensure_many(self, items: Iterable[tuple[str, bytes]]) -> None:
        pending = list(items)
        self.sent.extend(name for name, _ in pending)
        super().ensure_many(pending)

    def replace(self, name: str, data: bytes) -> None:
        self.sent.append(name)
        super().replace(name, data)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "t").mkdir()
    for name, data in FILES.items():
        (tmp_path / "t" / name).write_bytes(data)
    return tmp_path / "t"


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return Store(PosixStorage(tmp_path / "root"))


@pytest.fixture
def remote() -> Remote:
    return Remote()


@pytest.fixture(scope="module")
def pushed_once(tmp_path_factory: pytest.TempPathFactory) -> tuple[str, dict[str, bytes]]:
    folder = tmp_path_factory.mktemp("pushed")
    for name, data in FILES.items():
        (folder / name).write_bytes(data)
    remote = Remote()
    return Store(remote).put_tree(folder).digest, remote.files


@pytest.fixture
def pushed(remote: Remote, pushed_once: tuple[str, dict[str, bytes]]) -> str:
    digest, files = pushed_once
    remote.files.update(files)
    return digest


def pull(remote: Remote, local: Store, *digests: str, **more: object) -> object:
    pauses: list[float] = []
    return copy_artifacts(Store(remote), local, digests, workers=2, pause=pauses.append, **more)  # type: ignore[arg-type]


def test_push_and_pull_bring_everything(local: Store, remote: Remote, folder: Path, tmp_path: Path) -> None:
    tree, lone = local.put_tree(folder).digest, local.put_bytes(b"lone").digest
    done = copy_artifacts(local, Store(remote), [tree, lone, tree])
    assert (done.blobs, done.there, done.trees) == (4, 0, 1)
    assert done.size == len(BIG) + 5 + 4 + 4
    assert list(Store(remote).verify_all()) == []
    other = Store(PosixStorage(tmp_path / "other"))
    assert pull(remote, other, tree, lone) == done
    assert list(other.verify_all()) == []
    assert other.blobs.parts(other.manifest(tree).entry("big").digest) is not None
    assert dict(other.digests()) == dict(local.digests())
    assert list(other.storage.list(INCOMING)) == []


def test_two_local_stores_share_no_file(local: Store, folder: Path, tmp_path: Path) -> None:
    tree = local.put_tree(folder).digest
    other = Store(PosixStorage(tmp_path / "other"))
    copy_artifacts(local, other, [tree])
    big = local.manifest(tree).entry("big").digest
    one, two = local.blobs.local(big), other.blobs.local(big)
    assert one is not None
    assert two is not None
    assert not Path(one).samefile(two)
    assert other.verify(tree) == []


def test_what_is_there_is_asked_for_and_not_sent(local: Store, remote: Remote, folder: Path) -> None:
    store = Store(remote)
    tree = local.put_tree(folder).digest
    store.put_bytes(BIG)
    remote.sent.clear()
    done = copy_artifacts(local, store, [tree])
    assert (done.blobs, done.there) == (2, 1)
    remote.sent.clear()
    done = copy_artifacts(local, store, [tree])
    assert (done.blobs, done.size, done.there) == (0, 0, 3)
    assert remote.sent == [tree_name(tree)]


def test_the_manifest_comes_last(local: Store, remote: Remote, folder: Path) -> None:
    tree = local.put_tree(folder).digest
    copy_artifacts(local, Store(remote), [tree])
    assert set(remote.sent) == set(remote.list()), "all that came was seen on its way"
    assert remote.sent[-1] == tree_name(tree)
    assert remote.sent.count(tree_name(tree)) == 1


def test_progress_ends_at_the_whole(remote: Remote, local: Store, pushed: str) -> None:
    seen: list[Progress] = []
    pull(remote, local, pushed, progress=seen.append)
    assert seen[-1] == Progress(3, 3, len(BIG) + 9, len(BIG) + 9)
    assert all(one.size <= two.size for one, two in pairwise(seen))


def failing(times: int, error: Exception) -> Spoil:
    left = [times]

    def spoil(name: str, data: bytes) -> bytes:
        if left[0]:
            left[0] -= 1
            raise error
        return data

    return spoil


LIES: dict[str, Callable[[bytes], bytes]] = {
    "truncates": lambda data: data[: len(data) // 2],
    "says nothing": lambda data: b"",
    "flips a bit": lambda data: bytes([data[0] ^ 1]) + data[1:],
    "adds": lambda data: data + b"!",
    "swaps": lambda data: data[::-1],
}


@pytest.mark.parametrize("error", ["500 from the server", "timed out"])
def test_a_remote_that_recovers_is_asked_again(remote: Remote, local: Store, pushed: str, error: str) -> None:
    remote.spoil = failing(3, StorageFailed(error))
    pull(remote, local, pushed)
    assert local.verify(pushed) == []


def test_a_remote_that_stays_down_is_one_clear_error(remote: Remote, local: Store, pushed: str) -> None:
    remote.spoil = failing(10**9, StorageFailed("the server failed", where="bucket", found="503"))
    with pytest.raises(StorageFailed, match="bucket"):
        pull(remote, local, pushed)
    assert not local.has(pushed)
    assert list(local.digests()) == []


@pytest.mark.parametrize("lie", LIES)
@pytest.mark.parametrize("about", ["a", "big", "tree", "everything"])
def test_a_remote_that_lies_is_not_believed(remote: Remote, local: Store, pushed: str, lie: str, about: str) -> None:
    names = {"tree": tree_name(pushed)} | {e.path: blob_name(e.digest) for e in Store(remote).manifest(pushed)}
    remote.spoil = lambda name, data: LIES[lie](data) if about == "everything" or name == names[about] else data
    with pytest.raises(Tampered):
        pull(remote, local, pushed)
    assert not local.has(pushed), "no tree without all of its files"
    assert list(local.verify_all()) == [], "and nothing is kept that is not what its name says"
    remote.spoil = lambda name, data: data
    pull(remote, local, pushed)
    assert local.verify(pushed) == []


@pytest.mark.parametrize("lie", LIES)
def test_a_remote_that_lies_once_is_asked_again(remote: Remote, local: Store, pushed: str, lie: str) -> None:
    lied: set[str] = set()

    def spoil(name: str, data: bytes) -> bytes:
        if name in lied or name.startswith("store/parts"):
            return data
        lied.add(name)
        return LIES[lie](data)

    remote.spoil = spoil
    pull(remote, local, pushed)
    assert local.verify(pushed) == []


def test_forged_part_hashes_do_not_pass(remote: Remote, local: Store) -> None:
    """A remote with other bytes and part hashes that fit them: only the whole digest tells, and it does."""
    from ledger.store.parts import PartHashes

    digest = Store(remote).put_bytes(BIG).digest
    forged = b"X" + BIG[1:]
    leaves = hash_bytes(forged).parts
    assert leaves is not None
    remote.files[blob_name(digest)] = forged
    remote.files[parts_name(digest)] = PartHashes(digest, len(BIG), leaves.leaves).encode()
    with pytest.raises(Tampered, match="other bytes"):
        pull(remote, local, digest)
    assert not local.has(digest)
    remote.files[blob_name(digest)] = BIG
    remote.files[parts_name(digest)] = b"{}"
    pull(remote, local, digest)  # part hashes that cannot be read are not needed: the whole is hashed
    assert local.read(digest) == BIG


@pytest.mark.parametrize("size", [5, PART_SIZE + 5])
def test_a_forged_record_of_a_packed_blob_does_not_stay(remote: Remote, local: Store, size: int) -> None:
    """Good pieces of another blob, under this one's name: the pieces are what they say, and the whole is not."""
    wanted, other = b"w" * size, b"o" * size
    digest, piece = hash_bytes(wanted).digest, Store(remote).put_bytes(other).digest
    Store(remote).blobs.put_packed(Chunks(digest, size, ((piece, size),)))
    with pytest.raises(Tampered):
        pull(remote, local, digest)
    assert not local.has(digest)
    Store(remote).put_bytes(wanted)
    pull(remote, local, digest)
    assert local.read(digest) == wanted


def test_a_folder_that_changes_after_it_was_hashed_is_not_believed(
    tmp_path: Path, local: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    published = Store(PosixStorage(tmp_path / "published"))
    digest = published.put_bytes(BIG).digest
    path = Path(published.blobs.local(digest) or "")
    verified = Blobs.verified

    def changing(self: Blobs, *arguments: Any) -> Hashed:
        hashed = verified(self, *arguments)
        path.chmod(0o644)
        path.write_bytes(b"X" + BIG[1:])
        return hashed

    monkeypatch.setattr(Blobs, "verified", changing)
    copy_artifacts(published, local, [digest])
    monkeypatch.undo()
    assert local.verify(digest) == []
    path.chmod(0o644)
    path.write_bytes(b"X" + BIG[1:])
    with pytest.raises(Tampered, match="other bytes"):
        copy_artifacts(published, Store(PosixStorage(tmp_path / "empty")), [digest])
    assert not Store(PosixStorage(tmp_path / "empty")).has(digest)


def test_a_broken_transfer_goes_on_where_it_stopped(remote: Remote, local: Store) -> None:
    digest = Store(remote).put_bytes(BIG).digest

    def breaks(name: str, data: bytes) -> bytes:
        if name == blob_name(digest) and sum(f"{name} " in read for read in remote.reads) > 1:
            raise StorageFailed("the line broke")
        return data

    remote.spoil = breaks
    with pytest.raises(StorageFailed, match="line broke"):
        pull(remote, local, digest)
    assert not local.has(digest)
    assert list(local.storage.list(INCOMING)) == [INCOMING + digest.removeprefix("sha256:")]
    remote.spoil = lambda name, data: data
    remote.reads.clear()
    pull(remote, local, digest)
    assert [read for read in remote.reads if read.startswith(BLOBS)] == [
        f"{blob_name(digest)} {index * PART_SIZE}" for index in (1, 2)
    ]
    assert local.read(digest) == BIG
    assert list(local.storage.list(INCOMING)) == []


def test_what_a_break_left_is_hashed_and_not_trusted(remote: Remote, local: Store) -> None:
    digest = Store(remote).put_bytes(BIG).digest
    left = local.storage.local_path(INCOMING + digest.removeprefix("sha256:"))
    assert left is not None
    left.parent.mkdir(parents=True)
    left.write_bytes(BIG[: PART_SIZE + 5] + b"garbage" * PART_SIZE)
    pull(remote, local, digest)
    assert local.read(digest) == BIG
    assert not left.exists()


def test_a_file_that_became_a_blob_is_not_written_to(remote: Remote, local: Store) -> None:
    """A kill between linking and removing leaves a second name of the blob where transfers are kept."""
    digest = Store(remote).put_bytes(BIG).digest
    pull(remote, local, digest)
    blob = local.blobs.local(digest)
    left = local.storage.local_path(INCOMING + digest.removeprefix("sha256:"))
    assert blob is not None
    assert left is not None
    left.hardlink_to(blob)
    pull(remote, local, digest, even_if_there=True)
    assert local.read(digest) == BIG


def test_what_no_side_has_is_said(remote: Remote, local: Store) -> None:
    with pytest.raises(NotFound, match="abab"):
        pull(remote, local, "sha256:" + "ab" * 32)


class Lossy(MemoryStorage):
    """A remote that keeps other bytes than it was sent, ``times`` times under each name of an area."""

    def __init__(self, area: str, times: int) -> None:
        super().__init__()
        self.area, self.left = area, times

    def _spoil(self, name: str) -> None:
        if name.startswith(self.area) and self.left:
            self.left -= 1
            self.files[name] = bytes([self.files[name][0] ^ 1]) + self.files[name][1:]

    def local_path(self, name: str) -> None:
        return None

    def ensure(self, name: str, data: bytes) -> None:
        super().ensure(name, data)
        self._spoil(name)

    def replace(self, name: str, data: bytes) -> None:
        super().replace(name, data)
        self._spoil(name)

    def ensure_many(self, items: Iterable[tuple[str, bytes]]) -> None:
        for name, data in items:
            self.ensure(name, data)

    def adopt(self, name: str, path: Path, *, link: bool = False) -> None:
        super().adopt(name, path, link=link)
        self._spoil(name)


@pytest.mark.parametrize("area", ["store/blobs/", "store/trees/"])
def test_what_is_pushed_is_hashed_where_it_arrived(local: Store, folder: Path, area: str) -> None:
    tree = local.put_tree(folder).digest
    remote = Store(Lossy(area, 2))
    copy_artifacts(local, remote, [tree], pause=lambda seconds: None, workers=1)
    assert remote.storage.left == 0  # type: ignore[attr-defined]
    assert remote.verify(tree) == [], "what arrived damaged was sent again"
    broken = Store(Lossy(area, 1000))
    with pytest.raises(Tampered):
        copy_artifacts(local, broken, [tree], pause=lambda seconds: None, workers=1)
    assert not broken.has(tree)


@pytest.mark.parametrize("resumable", [PART_SIZE, 100 * PART_SIZE])
def test_a_file_with_two_names_travels_under_both(
    local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, resumable: int
) -> None:
    """By its plain sha256 alone: in parts, or as the whole and its other name; and back."""
    monkeypatch.setattr(transfer, "RESUMABLE", resumable)
    (tmp_path / "file").write_bytes(BIG)
    digest, plain = local.put_file(tmp_path / "file", plain=True).digest, f"sha256:{hashlib.sha256(BIG).hexdigest()}"
    remote, back = Store(Lossy("", 0)), Store(PosixStorage(tmp_path / "back"))
    copy_artifacts(local, remote, [plain])
    assert remote.verify(plain) == [] == list(remote.verify_all())
    assert remote.has(digest) == (resumable > len(BIG))
    copy_artifacts(remote, back, [plain])
    assert back.read(plain) == BIG
    copy_artifacts(local, remote, [digest])
    assert remote.read(digest) == BIG
    assert list(back.verify_all()) == []


def test_a_service_that_hashes_what_it_got_is_not_read_back(local: Store, folder: Path, bucket: Bucket) -> None:
    """Both give the MD5 of what arrived in one request; of what arrived in parts only S3 gives something, so GCS is
    read."""
    tree = local.put_tree(folder).digest
    remote = Store(open_storage(bucket.url))
    bucket.service.requests.clear()
    copy_artifacts(local, remote, [tree])
    entries = local.manifest(tree)
    read = [entry.path for entry in entries if bucket.service.asked("GET", blob_name(entry.digest))]
    assert read == ([] if bucket.url.startswith("s3") else ["big"])
    assert bucket.service.asked("GET", tree_name(tree)) == []
    assert remote.verify(tree) == []


def test_a_corrupt_local_blob_is_not_pushed(local: Store, remote: Remote, folder: Path) -> None:
    tree = local.put_tree(folder).digest
    path = local.blobs.local(local.manifest(tree).entry("big").digest)
    assert path is not None
    Path(path).chmod(0o644)
    Path(path).write_bytes(BIG[:-1] + b"~")
    with pytest.raises(Tampered):
        copy_artifacts(local, Store(remote), [tree])
    assert not any(name.startswith(TREES) for name in remote.files)
    assert list(Store(remote).verify_all()) == []


def spoil_blob(store: Store, digest: str) -> None:
    path = store.storage.local_path(blob_name(digest))
    assert path is not None
    path.chmod(0o644)
    path.write_bytes(b"~" + path.read_bytes()[1:])


def test_a_scrub_goes_on_where_it_stopped(local: Store) -> None:
    digests = sorted(local.put_bytes(f"blob {n}".encode()).digest for n in range(10))
    spoil_blob(local, digests[2])
    spoil_blob(local, digests[7])
    first = scrub_store(local, most_bytes=25)
    assert (first.checked, first.finished, len(first.findings)) == (5, False, 1)
    second = scrub_store(local)
    assert (second.checked, second.finished, len(second.findings)) == (5, True, 1)
    assert digests[2] in str(first.findings[0])
    assert digests[7] in str(second.findings[0])
    assert scrub_store(local).checked == 10, "the next one starts at the beginning"
    scrub_store(local, most_bytes=1)
    assert scrub_store(local, restart=True).checked == 10


@pytest.mark.parametrize("cursor", [b"", b"[]", b'{"after":1}', b"\xff"])
def test_a_scrub_with_an_unreadable_cursor_starts_over(local: Store, cursor: bytes) -> None:
    local.put_bytes(b"x")
    local.storage.replace(SCRUB_CURSOR, cursor)
    assert scrub_store(local).checked == 1


def test_a_scrub_repairs_from_a_remote(local: Store, remote: Remote, folder: Path) -> None:
    tree = local.put_tree(folder).digest
    copy_artifacts(local, Store(remote), [tree])
    for entry in local.manifest(tree):
        if entry.path != "c":
            spoil_blob(local, entry.digest)
    local.storage.replace(tree_name(tree), b"{}")
    assert len(local.verify(tree)) == 1
    done = scrub_store(local, remote=Store(remote))
    assert len(done.findings) == 4 == len(done.repaired)
    assert local.verify(tree) == []
    assert scrub_store(local).findings == ()


def test_a_scrub_says_what_no_remote_could_repair(local: Store, remote: Remote) -> None:
    digest = local.put_bytes(b"only here").digest
    spoil_blob(local, digest)
    done = scrub_store(local, remote=Store(remote))
    assert (len(done.findings), done.repaired) == (1, ())


def test_a_scrub_keeps_its_pace(local: Store) -> None:
    for n in range(4):
        local.put_bytes(bytes([n]) * 1000)
    waited: list[float] = []
    scrub_store(local, bytes_per_second=100, pause=waited.append)
    # Nothing is slept here, so each pause asked for is what the bytes so far should have taken, but for the run itself.
    assert [round(seconds, -1) for seconds in waited] == [10, 20, 30, 40]
