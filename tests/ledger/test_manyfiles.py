"""Thousands of small files by several processes: the same result as one by one, and nothing lost when a process fails."""

import hashlib
import os
from pathlib import Path

import pytest

from ledger import (
    MemoryStorage,
    PosixStorage,
    Refused,
    StorageFailed,
    Store,
    Tampered,
    hashing,
    intake,
    manyfiles,
    open_storage,
)
from ledger import checkout as checkouts
from ledger.parts import HEADER


@pytest.fixture(autouse=True)
def for_few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(manyfiles, "WORTH", 10)
    for module in (hashing, intake, checkouts):
        monkeypatch.setattr(module, "threads", lambda: 2)
    monkeypatch.setattr(checkouts, "_MANY", 10)


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(PosixStorage(tmp_path / "root"))


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Fifty files, two with the same bytes, an executable, an empty, a large, one that looks like the text of a large blob."""
    folder = tmp_path / "tree"
    for index in range(50):
        path = folder / f"{index % 7}" / f"a name {index}é\nof lines"
        path = path.with_name(path.name.replace("\n", " "))
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(f"file {index}".encode() * 40)
    (folder / "same").write_bytes(b"file 1" * 40)
    (folder / "run").write_bytes(b"#!/bin/sh\n")
    (folder / "run").chmod(0o755)
    (folder / "empty").write_bytes(b"")
    (folder / "text").write_bytes(HEADER + b"parts 8388608\n")
    (folder / "large").write_bytes(bytes(range(256)) * 8192)
    return folder


def test_a_linked_folder_is_shared_and_has_the_same_digest(store: Store, folder: Path) -> None:
    expected = Store(MemoryStorage()).put_tree(folder)
    artifact = store.put_tree(folder, link=True)
    assert artifact == expected
    assert store.verify(artifact.digest) == [] == list(store.verify_all())
    for entry in store.manifest(artifact.digest):
        blob = store.blobs.local(entry.digest)
        assert blob is not None
        assert not os.stat(blob).st_mode & 0o222
        if entry.path not in ("same", "text", "run") and "a name 1é" not in entry.path:
            assert os.path.samefile(blob, folder / entry.path), "no second copy of the bytes"
    assert store.put_tree(folder, link=True) == artifact
    assert os.access(folder / "run", os.X_OK)


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What processes were asked for: verb, records, and how many of them they did."""
    seen: list[tuple[str, int, int]] = []
    work = manyfiles.work

    def noted(verb: str, common: manyfiles.Record, records: list[manyfiles.Record], processes: int) -> list[str]:
        answers = work(verb, common, records, processes)
        seen.append((verb, len(records), len(records) - answers.count(manyfiles.NOT_DONE)))
        return answers

    monkeypatch.setattr(manyfiles, "work", noted)
    return seen


def test_a_copied_folder_is_taken_by_processes(store: Store, folder: Path, asked: list[tuple[str, int, int]]) -> None:
    expected = Store(MemoryStorage()).put_tree(folder)
    assert store.put_tree(folder) == expected
    # All but the large one; the text of a large blob is refused. Those with the same bytes are both copied.
    assert asked == [("copy-in", 54, 53), ("name", 53, 53)]
    assert store.verify(expected.digest) == [] == list(store.verify_all())
    for entry in store.manifest(expected.digest):
        blob = store.blobs.local(entry.digest)
        assert blob is not None
        assert not os.path.samefile(blob, folder / entry.path)
        assert not os.stat(blob).st_mode & 0o222
    assert Store(store.storage).put_tree(folder) == expected
    assert asked[2:] == [("copy-in", 54, 53), ("name", 0, 0)]
    assert [path.name for path in (store.storage.local_path("store/x") or folder).parent.iterdir()
            if path.name.startswith(".tmp-")] == []


def test_a_blob_that_rotted_is_put_again(store: Store, folder: Path) -> None:
    tree = store.put_tree(folder).digest
    entry = next(entry for entry in store.manifest(tree) if "name 33" in entry.path)
    blob = Path(store.blobs.local(entry.digest) or "")
    os.chmod(blob, 0o644)
    blob.write_bytes(b"another" * 40)
    assert store.verify(tree) != []
    assert Store(store.storage).put_tree(folder).digest == tree
    assert store.verify(tree) == []


@pytest.mark.parametrize("verb", ["copy-in", "name", "link-in"])
def test_a_put_that_stops_midway_shows_nothing_in_part(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    work = manyfiles.work

    def stopped(asked: str, common: manyfiles.Record, records: list[manyfiles.Record], processes: int) -> list[str]:
        done = work(asked, common, records[: len(records) // 2] if asked == verb else records, processes)
        if asked == verb:
            raise KeyboardInterrupt
        return done

    with monkeypatch.context() as patch:
        patch.setattr(manyfiles, "work", stopped)
        with pytest.raises(KeyboardInterrupt):
            store.put_tree(folder, link=verb == "link-in")
    assert list(store.verify_all()) == []
    assert [path for path in (folder.parent / "root" / "store").iterdir() if path.name.startswith(".tmp-")] == []
    assert store.put_tree(folder) == Store(MemoryStorage()).put_tree(folder)
    assert list(store.verify_all()) == []


def test_a_disk_that_is_full_is_said_once(store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(intake.group, "sync", full)
    with pytest.raises(StorageFailed, match="No space left"):
        store.put_tree(folder)
    assert list(store.digests()) == []


def test_a_store_for_reading_takes_nothing(store: Store, folder: Path) -> None:
    store.put_bytes(b"one")
    with pytest.raises(Refused, match="reading only"):
        Store(open_storage(folder.parent / "root", readonly=True)).put_tree(folder)


@pytest.mark.parametrize("how", ["auto", "copy"])
def test_a_checkout_places_every_file(
    store: Store, folder: Path, tmp_path: Path, asked: list[tuple[str, int, int]], how: checkouts.How
) -> None:
    tree = store.put_tree(folder).digest
    asked.clear()
    done = store.checkout(tree, tmp_path / "out", how=how)
    assert done.files == len(store.manifest(tree)) == done.reflinked + done.hardlinked + done.copied
    if how == "copy":
        assert [verb for verb, _, _ in asked] == ["copy-out"]
        assert all(os.stat(tmp_path / "out" / e.path).st_mode & 0o777 == (0o755 if e.executable else 0o644)
                   for e in store.manifest(tree))
    assert store.checkout(tree, tmp_path / "out").unchanged
    for path in folder.rglob("*"):
        if path.is_file():
            assert (tmp_path / "out" / path.relative_to(folder)).read_bytes() == path.read_bytes()


def test_damage_is_found_and_nothing_is_left(store: Store, folder: Path, tmp_path: Path) -> None:
    tree = store.put_tree(folder).digest
    entry = next(entry for entry in store.manifest(tree) if "name 33" in entry.path)
    blob = store.blobs.local(entry.digest)
    assert blob is not None
    os.chmod(blob, 0o644)
    Path(blob).write_bytes(b"another" * 40)
    with pytest.raises(Tampered, match=entry.digest):
        store.checkout(tree, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".tmp-")] == []


@pytest.mark.parametrize("program", ["/nonexistent", "/bin/false", "/bin/cat"])
def test_processes_that_fail_leave_the_work_to_the_caller(
    store: Store, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str
) -> None:
    monkeypatch.setattr(manyfiles.sys, "executable", program)
    artifact = store.put_tree(folder, link=True)
    assert artifact == Store(MemoryStorage()).put_tree(folder)
    store.checkout(artifact.digest, tmp_path / "out")
    assert store.verify(artifact.digest) == []
    assert store.checkout(artifact.digest, tmp_path / "out").unchanged


def which(path: Path) -> str:
    status = path.stat()
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def take(tmp_path: Path, seen: str) -> str:
    common = (f"{tmp_path}/blobs/", HEADER.decode().strip(), "")
    (answer,) = manyfiles.work("link-in", common, [(str(tmp_path / "file"), seen)], 1)
    return answer


def test_a_file_that_is_another_when_it_is_linked_is_not_taken(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"one")
    seen = which(tmp_path / "file")
    (tmp_path / "other").write_bytes(b"two")
    (tmp_path / "other").rename(tmp_path / "file")
    assert take(tmp_path, seen) == "-"
    assert not (tmp_path / "blobs").exists()


def test_a_blob_that_is_there_is_believed_for_its_bytes_alone(tmp_path: Path) -> None:
    (tmp_path / "file").write_bytes(b"one")
    digest = hashlib.sha256(b"one").hexdigest()
    blob = tmp_path / "blobs" / digest[:2] / digest[2:]
    blob.parent.mkdir(parents=True)
    blob.write_bytes(b"here before")
    assert take(tmp_path, which(tmp_path / "file")) == "-"
    assert blob.read_bytes() == b"here before"
    blob.write_bytes(b"one")
    os.utime(blob, (1, 1))
    assert take(tmp_path, which(tmp_path / "file")) == digest
    assert not os.path.samefile(blob, tmp_path / "file")
    assert not blob.stat().st_mode & 0o222
    assert blob.stat().st_mtime > 1, "young for garbage collection"
