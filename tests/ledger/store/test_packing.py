"""Packed blobs: chunks and planes give the very bytes back, share what repeats, and show damage; states restore
exactly."""

from __future__ import annotations

import hashlib
import io
import os
import time
from pathlib import Path

import ml_dtypes
import numpy as np
import pytest
from buckets import Bucket, Mirror
from http_faults import Fault
from hypothesis import given
from hypothesis import strategies as st

from ledger import (
    PART_SIZE,
    Malformed,
    PosixStorage,
    Store,
    Tampered,
    collect_garbage,
    copy_artifacts,
    describe_state,
    load_slices,
    open_storage,
    packed_size,
    put_slices,
)
from ledger.store import transfer
from ledger.store.layout import BLOBS, PACKED, blob_name, packed_name
from ledger.store.packs.packing import (
    CHUNK_MAX,
    MAX_DEPTH,
    Chunks,
    Planes,
    compress_planes,
    cut_by_content,
    parse_packed,
    restored,
)
from ledger.store.transfer import chunks_of
from tests.ledger.memory import MemoryStorage

CUTS = [
    301606,
    68657,
    373441,
    353458,
    220519,
    649040,
    373108,
    280981,
    309967,
    317761,
    357398,
    264188,
    192243,
    721655,
    305528,
    239340,
]
TEXT = b"".join(
    b"line %d of a corpus, %s\n" % (n, hashlib.sha256(b"%d" % n).hexdigest().encode()) for n in range(60_000)
)
ONE, TWO = "sha256:" + "1" * 64, "sha256:" + "2" * 64


def digest(data: bytes) -> str:
    return "sha256:" + hashlib.sha256(data).hexdigest()


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(PosixStorage(tmp_path / "root"))


def chunked(store: Store, folder: Path, data: bytes, name: str = "corpus") -> str:
    (folder / name).write_bytes(data)
    return store.put_file(folder / name, chunked=True).digest


def test_the_cuts_are_pinned() -> None:
    """Other cuts would read as well, and no corpus that was stored before would share anything with them."""
    chunks = chunks_of(digest(TEXT), io.BytesIO(TEXT), cut_by_content)
    assert [size for _, size in chunks.chunks] == CUTS
    assert b"".join(cut_by_content(io.BytesIO(TEXT))) == TEXT


def test_a_chunked_file_is_the_same_artifact(store: Store, tmp_path: Path) -> None:
    name = chunked(store, tmp_path, TEXT)
    assert name == digest(TEXT)
    assert not store.blobs.is_whole(name)
    assert (store.artifact(name).size, store.kind(name), store.read(name)) == (len(TEXT), "blob", TEXT)
    with store.open(name) as stream:
        stream.seek(1_000_000)
        assert stream.read(10) == TEXT[1_000_000:1_000_010]
    assert store.open_range(name, 5, 5) == TEXT[5:10]
    store.checkout(name, tmp_path / "out")
    assert (tmp_path / "out").read_bytes() == TEXT
    assert store.verify(name) == list(store.verify_all()) == []
    assert dict(store.digests())[name] == "blob"


def test_an_edited_file_adds_what_was_touched(store: Store, tmp_path: Path) -> None:
    chunked(store, tmp_path, TEXT)
    before = set(store.storage.list(BLOBS))
    edited = TEXT[:2_000_000] + b"a new line\n" + TEXT[2_000_100:]
    name = chunked(store, tmp_path, edited, "edited")
    new = set(store.storage.list(BLOBS)) - before
    assert len(new) <= 3
    assert sum(store.storage.size(blob) for blob in new) <= 3 * CHUNK_MAX
    assert store.read(name) == edited


def test_a_folder_is_chunked_where_files_are_large(store: Store, tmp_path: Path) -> None:
    (tmp_path / "t").mkdir()
    (tmp_path / "t" / "large").write_bytes(TEXT * 3)
    (tmp_path / "t" / "small").write_bytes(b"small")
    tree = store.put_tree(tmp_path / "t", chunked=True).digest
    assert tree == Store(MemoryStorage()).put_tree(tmp_path / "t").digest, (
        "how bytes are kept is not part of what they are"
    )
    large = store.manifest(tree).entry("large")
    assert not store.blobs.is_whole(large.digest)
    assert store.verify(tree) == []
    assert (
        store.open_range(large.digest, PART_SIZE + 5, 9, parts=large.parts)
        == (TEXT * 3)[PART_SIZE + 5 : PART_SIZE + 14]
    )


@pytest.mark.parametrize("what", ["chunk", "record", "missing chunk"])
def test_damage_shows(store: Store, tmp_path: Path, what: str) -> None:
    name = chunked(store, tmp_path, TEXT)
    packed = store.blobs.packed(name)
    assert isinstance(packed, Chunks)
    path = store.storage.local_path(packed_name(name) if what == "record" else blob_name(packed.chunks[3][0]))
    assert path is not None
    path.chmod(0o644)
    if what == "missing chunk":
        path.unlink()
    elif what == "chunk":
        path.write_bytes(b"X" + path.read_bytes()[1:])
    else:
        swapped = (packed.chunks[1], packed.chunks[0], *packed.chunks[2:])
        path.write_bytes(Chunks(name, packed.size, swapped).encode())
    with pytest.raises((Tampered, Exception), match=r"differ|no such artifact"):
        store.read(name)
    assert any(name in finding.where for finding in store.verify_all())
    chunked(store, tmp_path, TEXT)  # the stat cache knows the file: only what is asked for is looked at
    (tmp_path / "again").write_bytes(TEXT)
    store.put_file(tmp_path / "again")
    assert store.read(name) == TEXT, "putting the right bytes heals"


@given(st.binary(max_size=300), st.integers(1, 9), st.booleans())
def test_planes_are_undone(data: bytes, width: int, against: bool) -> None:
    base = bytes(reversed(data)) if against else None
    planes = compress_planes(memoryview(data), width, io.BytesIO(base) if base is not None else None)
    if data:
        record = Planes(digest(data), len(data), ONE, width, TWO if against else None, int(against))
        back = restored(record, io.BytesIO(planes), io.BytesIO(base) if base is not None else None)
        assert b"".join(back) == data
        assert parse_packed(record.encode(), where="x") == record
        for broken in (planes[:-1], planes[:5], b"", b"\x00" + planes):
            with pytest.raises(Tampered):
                for _ in restored(record, io.BytesIO(broken), io.BytesIO(base) if base is not None else None):
                    pass


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}",
        b"[]",
        Chunks(ONE, 3, ((TWO, 3),)).encode().replace(b'"size":3', b'"size":4'),
        Planes(ONE, 3, TWO, 4).encode().replace(b'"depth":0', b'"depth":1'),
        Planes(ONE, 3, TWO, 4).encode().replace(b'"width":4', b'"width":0'),
        Planes(ONE, 3, TWO, 4, ONE, MAX_DEPTH).encode().replace(b'"depth":8', b'"depth":9'),
    ],
)
def test_records_that_are_none(data: bytes) -> None:
    with pytest.raises(Malformed):
        parse_packed(data, where="x")


def test_records_that_rest_on_each_other_end(store: Store) -> None:
    for one, two in ((ONE, TWO), (TWO, ONE)):
        planes = store.put_bytes(compress_planes(memoryview(b"abcd"), 1)).digest
        store.blobs.put_packed(Planes(one, 4, planes, 1, two, 1))
    with pytest.raises(Tampered, match="too many"):
        store.read(ONE)
    assert len(list(store.verify_all())) == 2


# States


def training(steps: int) -> list[dict[str, np.ndarray]]:
    """States as training makes them: small changes, a tensor that stays, counters."""
    rng = np.random.default_rng(7)
    weights = rng.standard_normal((300, 200)).astype(np.float32)
    half = rng.standard_normal(5000).astype(ml_dtypes.bfloat16)
    frozen = rng.standard_normal(1000)
    states = []
    for step in range(steps):
        weights = (weights * np.float32(1 - 1e-6) + np.float32(1e-7) * rng.standard_normal(weights.shape)).astype(
            np.float32
        )
        states.append(
            {
                "model/w": weights,
                "model/h": half + np.asarray(step, half.dtype) / 64,
                "frozen": frozen,
                "step": np.int32(step),
                "empty": np.zeros((0, 3), np.float32),
            }
        )
    return states


def test_states_come_back_bit_for_bit_and_small(store: Store, tmp_path: Path) -> None:
    states = training(MAX_DEPTH + 3)
    trees: list[str] = []
    for state in states:
        trees.append(put_slices(store, state, 3, pack=True, base=trees[-1] if trees else None).digest)
    for state, tree in zip(states, trees, strict=True):
        found = load_slices(store, tree)
        assert describe_state(found) == describe_state(state)
        assert all(found[path].dtype == np.asarray(state[path]).dtype for path in state)
        assert store.verify(tree) == []
    plain = sum(np.asarray(array).nbytes for array in states[0].values())
    assert packed_size(store, trees[1]) < 0.8 * plain
    depths = [
        record.depth
        for name in store.storage.list(PACKED)
        if isinstance(record := parse_packed(store.storage.read(name), where=name), Planes)
    ]
    assert max(depths) == MAX_DEPTH
    assert list(store.verify_all()) == []
    assert put_slices(store, states[3], 3, pack=True).digest == trees[3], (
        "the digest of a state does not depend on how it is kept"
    )


def test_a_kept_state_keeps_what_it_rests_on(store: Store) -> None:
    states = training(3)
    first = put_slices(store, states[0], 3, pack=True).digest
    second = put_slices(store, states[1], 3, pack=True, base=first).digest
    third = put_slices(store, states[2], 3, pack=True, base=second).digest
    root = store.storage.local_path("store")
    assert root is not None
    for path in root.rglob("*"):
        if path.is_file():
            os.utime(path, (time.time() - 1e6,) * 2)
    swept = collect_garbage(store, [third], min_age=0)
    assert {item.name.split("/")[1] for item in swept.swept} >= {"trees"}
    assert describe_state(load_slices(store, third)) == describe_state(states[2])
    assert store.verify(third) == []


def test_a_chain_travels_as_it_is(store: Store, tmp_path: Path) -> None:
    states = training(3)
    trees: list[str] = []
    for state in states:
        trees.append(put_slices(store, state, 3, pack=True, base=trees[-1] if trees else None).digest)
    remote, back = Store(MemoryStorage()), Store(PosixStorage(tmp_path / "back"))
    copy_artifacts(store, remote, [trees[2]])
    assert sum(map(len, remote.storage.files.values())) < 0.8 * 3 * sum(
        np.asarray(a).nbytes for a in states[0].values()
    )  # type: ignore[attr-defined]
    copy_artifacts(remote, back, [trees[2]])
    assert describe_state(load_slices(back, trees[2])) == describe_state(states[2])
    assert list(back.verify_all()) == []


# On the way to buckets


def test_an_edited_corpus_sends_what_changed(store: Store, tmp_path: Path, gcs: Bucket) -> None:
    remote = Store(open_storage(gcs.url))
    first = store.put_bytes(TEXT).digest
    assert copy_artifacts(store, remote, [first], cut="content").size == len(TEXT)
    edited = b"a new beginning\n" + TEXT
    second = store.put_bytes(edited).digest
    sent = copy_artifacts(store, remote, [second], cut="content")
    assert (sent.blobs, sent.size) == (1, sent.size)
    assert sent.size <= CHUNK_MAX
    assert remote.verify(second) == []
    back = Store(PosixStorage(tmp_path / "back"))
    copy_artifacts(remote, back, [first, second])
    assert (back.read(first), back.read(second)) == (TEXT, edited)


def test_an_upload_that_broke_off_goes_on(store: Store, gcs: Bucket, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(transfer, "RESUMABLE", 2 * PART_SIZE)
    data = hashlib.shake_128(b"upload").digest(3 * PART_SIZE + 5)
    name = store.put_bytes(data).digest
    remote = Store(open_storage(gcs.url))
    gcs.service.faults.add(
        Fault.STATUS, method="PUT", path=blob_name(digest(data[PART_SIZE : 2 * PART_SIZE])), status=400
    )
    with pytest.raises(Exception, match="could not write"):
        copy_artifacts(store, remote, [name], workers=1, pause=lambda seconds: None)
    assert not remote.has(name)
    gcs.service.faults.clear()
    gcs.service.requests.clear()
    sent = copy_artifacts(store, remote, [name], workers=1)
    assert sent.size < len(data)
    assert remote.verify(name) == []
    assert remote.read(name) == data
    gcs.service.requests.clear()
    assert remote.open_range(name, PART_SIZE + 7, 5) == data[PART_SIZE + 7 : PART_SIZE + 12]
    assert len(gcs.service.asked("GET", "blobs/")) == 1, "one part is read, and verified"


def test_packed_blobs_are_read_from_a_published_store(tmp_path: Path, mirror: Mirror) -> None:
    """A plain file server cannot be listed: what is packed there arrives as what it makes."""
    published, mine = Store(PosixStorage(mirror.folder)), Store(PosixStorage(tmp_path / "mine"))
    corpus = chunked(published, tmp_path, TEXT)
    first, second = training(2)
    base = put_slices(published, first, 3, pack=True).digest
    state = put_slices(published, second, 3, pack=True, base=base).digest
    remote = Store(open_storage(mirror.url))
    assert remote.read(corpus) == TEXT
    copy_artifacts(remote, mine, [corpus, state])
    assert mine.read(corpus) == TEXT
    assert describe_state(load_slices(mine, state)) == describe_state(second)
    assert list(mine.verify_all()) == []
    assert not mine.has(base), "the state before it was needed to read it there, not here"
