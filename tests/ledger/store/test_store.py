"""The store: what goes in comes out, whatever lies about it is noticed, and nothing is written twice."""

import errno
import hashlib
import os
import shutil
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ledger import (
    PART_SIZE,
    Conflict,
    Malformed,
    Manifest,
    ManifestEntry,
    NotFound,
    PosixStorage,
    Refused,
    StorageFailed,
    Store,
    Tampered,
    describe_tree,
)
from ledger.store.blobs import hashing
from ledger.store.blobs.hashing import hash_bytes, hash_file, hash_stream
from ledger.store.layout import STAT_CACHE, blob_name, parts_name, tree_name
from ledger.store.parts import PartHashes
from tests.ledger.memory import MemoryStorage

BIG = PART_SIZE * 2 + 12345


HEADER = b"marin.blob/v1\n"


def sha256(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


def merkle(leaves: list[bytes]) -> bytes:
    """RFC 6962's tree hash over leaf hashes."""
    if len(leaves) == 1:
        return leaves[0]
    split = 1 << (len(leaves) - 1).bit_length() - 1
    return hashlib.sha256(b"\x01" + merkle(leaves[:split]) + merkle(leaves[split:])).digest()


def identity(data: bytes) -> str:
    """The digest of a blob as SPEC.md has it, by hashlib alone."""
    if len(data) <= PART_SIZE:
        return sha256(HEADER + b"bytes\n" + data if data.startswith(HEADER) else data)
    parts = [data[start : start + PART_SIZE] for start in range(0, len(data), PART_SIZE)]
    root = merkle([hashlib.sha256(b"\x00" + part).digest() for part in parts])
    return sha256(HEADER + b"parts 8388608\nsize %d\nroot %s\n" % (len(data), root.hex().encode()))


@pytest.fixture(params=["posix", "memory"])
def store(request: pytest.FixtureRequest, tmp_path: Path) -> Store:
    return Store(PosixStorage(tmp_path / "root") if request.param == "posix" else MemoryStorage())


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return Store(PosixStorage(tmp_path / "root"))


@pytest.fixture(scope="module")
def big() -> bytes:
    return hashlib.shake_128(b"big").digest(BIG)


@pytest.fixture
def folder(tmp_path: Path, big: bytes) -> Path:
    folder = tmp_path / "folder"
    (folder / "sub" / "deep").mkdir(parents=True)
    (folder / "a.txt").write_bytes(b"alpha")
    (folder / "same.txt").write_bytes(b"alpha")
    (folder / "empty").write_bytes(b"")
    (folder / "sub" / "big.bin").write_bytes(big)
    (folder / "sub" / "deep" / "run.sh").write_bytes(b"#!/bin/sh\n")
    (folder / "sub" / "deep" / "run.sh").chmod(0o755)
    return folder


def corrupt(store: Store, name: str, at: int) -> None:
    path = store.storage.local_path(name)
    if path is None:
        files = store.storage.files  # type: ignore[attr-defined]
        files[name] = files[name][:at] + bytes([files[name][at] ^ 1]) + files[name][at + 1 :]
        return
    data = bytearray(path.read_bytes())
    data[at] ^= 1
    path.chmod(0o644)
    path.write_bytes(data)
    path.chmod(0o444)


@pytest.mark.parametrize("size", [0, 1, 4096, PART_SIZE - 1, PART_SIZE, PART_SIZE + 1, BIG])
def test_bytes_and_files_come_back_under_their_digest(store: Store, tmp_path: Path, size: int) -> None:
    data = hashlib.shake_128(str(size).encode()).digest(size)
    artifact = store.put_bytes(data)
    assert (artifact.digest, artifact.size, artifact.kind) == (identity(data), size, "blob")
    (tmp_path / "file").write_bytes(data)
    assert store.put_file(tmp_path / "file") == artifact == store.artifact(artifact.digest)
    assert store.read(artifact.digest) == data
    with store.open(artifact.digest) as stream:
        assert stream.read() == data
    assert store.verify(artifact.digest) == []
    assert list(store.verify_all()) == []
    assert list(store.digests()) == [(artifact.digest, "blob")]


def test_a_tree_is_its_manifest(store: Store, folder: Path, big: bytes) -> None:
    artifact = store.put_tree(folder)
    manifest = store.manifest(artifact.digest)
    assert artifact.digest == sha256(manifest.encode()) == sha256(store.read(artifact.digest))
    assert artifact.kind == store.kind(artifact.digest) == "tree"
    assert [e.path for e in manifest] == ["a.txt", "empty", "same.txt", "sub/big.bin", "sub/deep/run.sh"]
    assert [e.executable for e in manifest] == [False] * 4 + [True]
    assert manifest.entry("sub/big.bin").digest == identity(big)
    assert artifact.size == manifest.size == 5 + 5 + len(big) + 10
    assert store.put_tree(folder) == artifact
    assert store.verify(artifact.digest) == [] == list(store.verify_all())
    with store.open_file(artifact.digest, "sub/big.bin") as stream:
        stream.seek(-5, os.SEEK_END)
        assert stream.read() == big[-5:]


def test_both_drivers_give_the_same_digests(folder: Path, tmp_path: Path) -> None:
    assert Store(MemoryStorage()).put_tree(folder) == Store(PosixStorage(tmp_path / "r")).put_tree(folder)


@settings(max_examples=40)
@given(st.integers(0, BIG + 10), st.integers(0, PART_SIZE + 100))
def test_ranges_are_those_of_the_bytes(big: bytes, start: int, length: int) -> None:
    store = _shared_store(big)
    digest = identity(big)
    root = store.blobs.parts(digest)
    assert root is not None
    assert store.open_range(digest, start, length) == big[start : start + length]
    assert store.open_range(digest, start, length, parts=root.root) == big[start : start + length]


_SHARED: dict[int, Store] = {}


def _shared_store(big: bytes) -> Store:
    if not _SHARED:
        _SHARED[0] = Store(MemoryStorage())
        _SHARED[0].put_bytes(big)
    return _SHARED[0]


@pytest.mark.parametrize("part", [0, 1, 2])
def test_a_flipped_byte_is_named_with_its_part_and_other_parts_stay_readable(
    store: Store, folder: Path, big: bytes, part: int
) -> None:
    tree = store.put_tree(folder)
    entry = store.manifest(tree.digest).entry("sub/big.bin")
    at = part * PART_SIZE + 77
    corrupt(store, blob_name(entry.digest), at)
    for findings in (store.verify(tree.digest), list(store.verify_all())):
        assert len(findings) == 1
        assert f"part {part} (bytes {part * PART_SIZE} to" in findings[0].where
        assert findings[0].expected == entry.digest != findings[0].found
    assert "sub/big.bin" in store.verify(tree.digest)[0].where
    for whole in (
        lambda: store.read(entry.digest),
        lambda: store.open(entry.digest).read(),
        lambda: store.blobs.verified(entry.digest),
    ):
        with pytest.raises(Tampered, match=f"part {part} "):
            whole()
    for index in range(3):
        start = index * PART_SIZE + 70
        if index == part:
            with pytest.raises(Tampered, match=f"part {part} "):
                store.open_range(entry.digest, start, 10, parts=entry.parts)
        else:
            assert store.open_range(entry.digest, start, 10, parts=entry.parts) == big[start : start + 10]
    with store.open_file(tree.digest, "sub/big.bin") as stream, pytest.raises(Tampered):
        stream.seek(at - 10)
        stream.read(20)


def test_every_flipped_byte_is_found_and_none_stops_the_search(store: Store, folder: Path) -> None:
    tree = store.put_tree(folder)
    manifest = store.manifest(tree.digest)
    for path in ("a.txt", "sub/big.bin", "sub/deep/run.sh"):
        corrupt(store, blob_name(manifest.entry(path).digest), 2)
    store.storage.remove(blob_name(manifest.entry("empty").digest))
    found = " ".join(str(finding) for finding in store.verify(tree.digest))
    assert all(f"file {path}" in found for path in ("a.txt", "empty", "sub/big.bin", "sub/deep/run.sh"))
    assert len(store.verify(tree.digest)) == 5  # same.txt has the bytes of a.txt, and was asked for under both names
    corrupt(store, tree_name(tree.digest), 3)
    assert [finding.what for finding in store.verify(tree.digest)] == ["a manifest's bytes differ from its digest"]


def test_what_does_not_belong_in_the_store_is_found(store: Store) -> None:
    store.put_bytes(b"fine")
    for name in ("store/blobs/sha256/ab/short", "store/blobs/sha256/README", f"store/trees/sha256/AB/{'c' * 62}"):
        store.storage.create(name, b"x")
    assert [finding.what for finding in store.verify_all()] == ["name in the store"] * 3
    assert list(store.digests()) == [(sha256(b"fine"), "blob")]


def test_a_forged_record_of_parts_does_not_pass_for_the_manifest(store: Store, big: bytes) -> None:
    digest = store.put_bytes(big).digest
    honest = store.blobs.parts(digest)
    assert honest is not None
    corrupt(store, blob_name(digest), PART_SIZE + 5)
    forged = store.blobs.hash(digest).parts
    assert forged is not None
    store.storage.replace(parts_name(digest), PartHashes(digest, forged.size, forged.leaves).encode())
    with pytest.raises(Tampered, match="part hashes"):
        store.open_range(digest, PART_SIZE, 10, parts=honest.root)
    assert len(store.verify(digest)) == 1


def test_a_damaged_record_of_parts_is_found_and_a_missing_one_costs_only_time(store: Store, big: bytes) -> None:
    digest = store.put_bytes(big).digest
    root = store.blobs.parts(digest)
    assert root is not None
    store.storage.remove(parts_name(digest))
    assert store.open_range(digest, PART_SIZE - 1, 3, parts=root.root) == big[PART_SIZE - 1 : PART_SIZE + 2]
    assert store.verify(digest) == []
    store.put_bytes(big)
    assert store.blobs.parts(digest) == root
    corrupt(store, parts_name(digest), 30)
    assert len(store.verify(digest)) == 1
    store.put_bytes(big)
    assert store.verify(digest) == []


@pytest.mark.parametrize("size", [3, BIG])
@pytest.mark.parametrize("way", ["bytes", "file", "tree"])
def test_putting_again_heals_what_rotted(store: Store, tmp_path: Path, size: int, way: str) -> None:
    data = hashlib.shake_128(b"heal").digest(size)
    (tmp_path / "in").mkdir()
    (tmp_path / "in" / "file").write_bytes(data)
    digest = store.put_bytes(data).digest
    corrupt(store, blob_name(digest), size // 2)
    with pytest.raises(Tampered):
        store.read(digest)
    if way == "bytes":
        store.put_bytes(data)
    elif way == "file":
        store.put_file(tmp_path / "in" / "file")
    else:
        store.put_tree(tmp_path / "in")
    assert store.read(digest) == data


@pytest.mark.parametrize(
    "digest", ["", "sha256:", "md5:" + "0" * 64, "sha256:" + "G" * 64, "sha256:" + "a" * 63, "sha256:../" + "a" * 61]
)
def test_what_is_no_digest_is_malformed(store: Store, digest: str) -> None:
    for ask in (store.read, store.open, store.verify, store.manifest, store.has, store.artifact):
        with pytest.raises(Malformed):
            ask(digest)


def test_what_is_not_there_is_said_with_its_digest(store: Store, tmp_path: Path) -> None:
    absent = sha256(b"absent")
    assert not store.has(absent)
    for ask in (store.read, store.open, store.manifest, store.kind, store.artifact):
        with pytest.raises(NotFound, match=absent):
            ask(absent)
    with pytest.raises(NotFound, match=absent):
        store.checkout(absent, tmp_path / "out")
    assert [finding.what for finding in store.verify(absent)] == ["no such artifact"]
    assert not (tmp_path / "out").exists()


def test_a_manifest_is_not_published_before_its_blobs(store: Store) -> None:
    held = store.put_bytes(b"held")
    whole = Manifest.of([ManifestEntry("held", 4, held.digest)])
    assert store.put_manifest(whole).digest == whole.digest
    with pytest.raises(NotFound, match="lost"):
        store.put_manifest(Manifest.of([ManifestEntry("held", 4, held.digest), ManifestEntry("lost", 1, sha256(b"x"))]))


def test_sizes_and_parts_that_a_manifest_claims_are_checked(store: Store, big: bytes) -> None:
    small, large = store.put_bytes(b"four"), store.put_bytes(big)
    lies = Manifest.of([ManifestEntry("a", 5, small.digest), ManifestEntry("b", BIG, large.digest, parts="00" * 32)])
    found = [finding.what for finding in store.verify(store.put_manifest(lies).digest)]
    assert found == ["size of a file", "root of a file's parts"]


@pytest.mark.table
@pytest.mark.parametrize("length", [100, BIG])
@pytest.mark.parametrize("off", [-16, 16])
def test_a_file_that_is_not_as_long_as_its_manifest_says_is_not_read(store: Store, length: int, off: int) -> None:
    content = bytes(index % 251 for index in range(length))
    blob = store.put_bytes(content)
    parts = hash_bytes(content).parts
    root = None if parts is None else parts.root
    for size in (length, length + off):
        tree = store.put_manifest(Manifest.of([ManifestEntry("a", size, blob.digest, parts=root)]))
        if size == length:
            assert store.folder(tree.digest).read("a", size - 16) == content[-16:]
            continue
        with pytest.raises(Tampered, match=f"expected {size} bytes, found {length}"):
            store.folder(tree.digest).read("a", size - 16)
        with pytest.raises(Tampered, match=f"expected {size} bytes, found {length}"):
            store.open_file(tree.digest, "a")


def test_a_file_with_the_bytes_of_a_manifest_stays_a_file(store: Store, folder: Path) -> None:
    listing = store.put_bytes(Manifest.of([]).encode())
    assert store.kind(listing.digest) == "blob"


def test_nothing_but_files_goes_into_a_tree(local: Store, tmp_path: Path) -> None:
    folder = tmp_path / "odd"
    (folder / "in").mkdir(parents=True)
    (folder / "in" / "file").write_bytes(b"x")
    (tmp_path / "outside").write_bytes(b"secret")
    link = folder / "link"
    for target, word in (
        (tmp_path / "outside", "leaves"),
        (Path("../outside"), "leaves"),
        (Path("in"), "no file"),
        (Path("gone"), "no file"),
        (Path("link"), "no file"),
    ):
        link.symlink_to(target)
        with pytest.raises(Refused, match=word):
            local.put_tree(folder)
        link.unlink()
    os.mkfifo(folder / "pipe")
    with pytest.raises(Refused, match="neither"):
        local.put_tree(folder)
    (folder / "pipe").unlink()
    Path(os.fsdecode(os.fsencode(folder) + b"/\xff")).write_bytes(b"")
    with pytest.raises(Refused, match="UTF-8"):
        local.put_tree(folder)
    assert list(local.digests()) == [], "what was refused left nothing behind"


def test_a_link_inside_the_tree_is_the_file_it_points_to(local: Store, tmp_path: Path) -> None:
    (tmp_path / "t" / "sub").mkdir(parents=True)
    (tmp_path / "t" / "file").write_bytes(b"x")
    (tmp_path / "t" / "sub" / "link").symlink_to("../file")
    manifest = local.manifest(local.put_tree(tmp_path / "t").digest)
    assert manifest.entry("sub/link").digest == manifest.entry("file").digest


def test_what_cannot_be_put_is_said(local: Store, tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="gone"):
        local.put_file(tmp_path / "gone")
    with pytest.raises(NotFound, match="gone"):
        local.put_tree(tmp_path / "gone")
    with pytest.raises(Refused, match="regular file"):
        local.put_file(tmp_path)


def test_putting_the_same_again_writes_no_file(local: Store, folder: Path, tmp_path: Path) -> None:
    artifact = local.put_tree(folder)
    before = {path: path.stat().st_ino for path in (tmp_path / "root" / "store").rglob("*")}
    assert local.put_tree(folder) == artifact
    assert (
        local.put_file(folder / "sub" / "big.bin").digest == local.manifest(artifact.digest).entry("sub/big.bin").digest
    )
    assert {path: path.stat().st_ino for path in (tmp_path / "root" / "store").rglob("*")} == before


def test_putting_makes_young_again(local: Store, folder: Path) -> None:
    tree = local.put_tree(folder)
    names = [tree_name(tree.digest), *(blob_name(entry.digest) for entry in local.manifest(tree.digest))]
    paths = [local.storage.local_path(name) for name in names]
    for path in paths:
        assert path is not None
        os.utime(path, (1, 1))
    assert local.storage.local_path(STAT_CACHE).exists()  # type: ignore[union-attr]
    local.storage.local_path(STAT_CACHE).unlink()  # type: ignore[union-attr]
    local.put_tree(folder)
    assert all(path is not None and path.stat().st_mtime > 1 for path in paths)


def test_a_linked_file_is_shared_and_an_edit_of_it_is_noticed(local: Store, tmp_path: Path, big: bytes) -> None:
    source = tmp_path / "source"
    source.write_bytes(big)
    digest = local.put_file(source, link=True).digest
    blob = local.blobs.local(digest)
    assert blob is not None
    assert Path(blob).samefile(source)
    assert not Path(blob).stat().st_mode & 0o222
    source.chmod(0o644)
    with open(source, "r+b") as stream:
        stream.seek(PART_SIZE)
        stream.write(b"edited in place")
    with pytest.raises(Tampered, match="part 1 "):
        local.read(digest)
    other = tmp_path / "other"
    other.write_bytes(big)
    local.put_file(other)
    assert local.read(digest) == big
    assert source.read_bytes() != big, "the edited file is left to its owner"


@pytest.mark.parametrize("chunked", [False, True])
def test_the_disk_that_is_full_is_the_stores_own(
    local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, chunked: bool
) -> None:
    """A write tells no name of its file, and the file that is put may lie on another disk."""
    source = tmp_path / "elsewhere"
    source.write_bytes(b"results")
    import ledger.store.blobs.chunking as chunking
    import ledger.store.blobs.staging as staging

    def full(*_: object, **__: object) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(staging, "hash_file", full)
    monkeypatch.setattr(chunking, "hash_stream", full)
    with pytest.raises(StorageFailed, match="the disk is full") as caught:
        local.put_file(source, chunked=chunked)
    assert caught.value.where == f"the store in {local.blobs.where}, for {source}"
    assert Path(local.blobs.where).is_dir()


def test_a_file_that_changes_while_it_is_put_is_refused(
    local: Store, tmp_path: Path, big: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    source = tmp_path / "source"
    source.write_bytes(big)
    import ledger.store.blobs.staging as staging

    def slow(stream, into=None, plain=False):
        hashed = hash_file(stream, into=into, plain=plain)
        source.write_bytes(big + b"more")
        return hashed

    monkeypatch.setattr(staging, "hash_file", slow)
    for link in (False, True):
        with pytest.raises(Conflict, match="changed while"):
            local.put_file(source, link=link)
    assert list(local.digests()) == []


@pytest.mark.table
@pytest.mark.parametrize("count", [1, 2, 5])
@pytest.mark.parametrize("size", [0, 1, PART_SIZE - 1, PART_SIZE, PART_SIZE + 1, 2 * PART_SIZE, BIG])
def test_every_way_of_hashing_gives_the_same(
    tmp_path: Path, big: bytes, size: int, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(hashing, "threads", lambda: count)
    data, path, seen = big[:size], tmp_path / "data", bytearray()
    path.write_bytes(data)
    for plain in (False, True):
        expected = hash_bytes(data, plain=plain)
        assert (expected.digest, expected.size) == (identity(data), size)
        assert expected.plain == (sha256(data) if plain and size > PART_SIZE else None)
        with open(path, "rb") as stream, open(tmp_path / "copy", "w+b") as copy:
            assert hash_file(stream, plain=plain) == expected
            assert hash_file(stream, into=copy, plain=plain) == expected
            copy.flush()
            assert (tmp_path / "copy").read_bytes() == data
        seen.clear()
        with open(path, "rb", buffering=0) as raw:
            assert hash_stream(raw, seen.extend, plain=plain) == expected  # type: ignore[arg-type]
        assert seen == data


def test_no_small_blob_has_the_digest_of_a_large_one(store: Store, big: bytes) -> None:
    """The text that is hashed in place of a large blob, and the text of that text, are blobs of their own."""
    large = store.put_bytes(big)
    root = store.blobs.parts(large.digest)
    assert root is not None
    text = HEADER + f"parts {PART_SIZE}\nsize {BIG}\nroot {root.root}\n".encode()
    assert sha256(text) == large.digest
    for data in (text, HEADER, HEADER + b"bytes\n", HEADER + b"bytes\n" + text):
        small = store.put_bytes(data)
        assert small.digest == identity(data) not in (large.digest, sha256(data))
        assert store.read(small.digest) == data
    assert store.read(large.digest) == big
    assert list(store.verify_all()) == []
    store.storage.remove(blob_name(large.digest), parts_name(large.digest))
    store.storage.create(blob_name(large.digest), text)
    with pytest.raises(Tampered):
        store.read(large.digest)
    assert len(store.verify(large.digest)) == 1


def test_a_large_blob_that_begins_as_a_text_has_no_plain_name(store: Store) -> None:
    data = HEADER + b"bytes\n" + b"x" * PART_SIZE
    store.storage.create(blob_name(sha256(data)), data)
    assert len(store.verify(sha256(data))) == 1, "it would be the name of a small blob"
    assert store.put_bytes(data[len(HEADER) + 6 :]).digest == sha256(data[len(HEADER) + 6 :])


def test_a_large_file_is_found_by_its_plain_sha256_if_that_is_asked_for(
    store: Store, tmp_path: Path, big: bytes
) -> None:
    (tmp_path / "big").write_bytes(big)
    assert not store.has(sha256(big))
    artifact = store.put_file(tmp_path / "big", plain=True)
    assert artifact.digest == identity(big)
    assert store.artifact(sha256(big)).size == BIG
    for digest in (artifact.digest, sha256(big)):
        assert store.read(digest) == big
        assert store.open_range(digest, PART_SIZE - 1, 3) == big[PART_SIZE - 1 : PART_SIZE + 2]
        with store.open(digest) as stream:
            assert stream.read() == big
        store.checkout(digest, tmp_path / digest[7:])
        assert (tmp_path / digest[7:]).read_bytes() == big
        assert store.blobs.plain_sha256(digest) == sha256(big)
    assert list(store.verify_all()) == []
    assert sum(store.storage.size(name) for name in store.storage.list("store/")) < BIG + 2000, "kept once"
    corrupt(store, blob_name(artifact.digest), PART_SIZE + 5)
    with pytest.raises(Tampered, match="part 1"):
        store.read(artifact.digest)
    with pytest.raises(Tampered):
        store.read(sha256(big))


def test_a_read_only_store_reads_and_writes_nothing(local: Store, folder: Path, tmp_path: Path) -> None:
    tree = local.put_tree(folder)
    reader = Store(PosixStorage(tmp_path / "root", readonly=True))
    before = sorted(str(path) for path in (tmp_path / "root").rglob("*"))
    assert reader.verify(tree.digest) == []
    reader.checkout(tree.digest, tmp_path / "out")
    for put in (
        lambda: reader.put_bytes(b"new"),
        lambda: reader.put_file(folder / "sub" / "big.bin"),
        lambda: reader.put_tree(folder),
    ):
        with pytest.raises(Refused):
            put()
    assert sorted(str(path) for path in (tmp_path / "root").rglob("*")) == before


def test_a_folder_can_be_described_without_being_put(local: Store, folder: Path) -> None:
    described = describe_tree(folder)
    assert list(local.digests()) == []
    assert described.digest == local.put_tree(folder).digest


def test_trees_that_are_there_join_a_folder_and_nothing_else_is_stored(
    store: Store, folder: Path, tmp_path: Path
) -> None:
    (tmp_path / "made").mkdir()
    (tmp_path / "made" / "zz.json").write_bytes(b"{}")
    inner = store.put_tree(folder).digest
    before = set(store.digests())
    whole = tmp_path / "whole"
    shutil.copytree(folder, whole / "state")
    shutil.copy(tmp_path / "made" / "zz.json", whole)
    joined = store.put_tree(tmp_path / "made", trees={"state": inner})
    assert set(store.digests()) - before == {(joined.digest, "tree"), (sha256(b"{}"), "blob")}
    described = describe_tree(whole)
    assert (joined.digest, joined.size) == (described.digest, described.size)
    with pytest.raises(NotFound):
        store.put_tree(tmp_path / "made", trees={"state": sha256(b"absent")})
    (tmp_path / "made" / "state").mkdir()
    (tmp_path / "made" / "state" / "same").write_bytes(b"1")
    with pytest.raises(Refused, match="state/same"):
        store.put_tree(tmp_path / "made", trees={"state": store.put_tree(tmp_path / "made" / "state").digest})
