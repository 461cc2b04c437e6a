"""Thousands of small files by several processes: the same result as one by one, and nothing lost when a process
fails."""

import hashlib
import os
import shutil
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from ledger import Malformed, NotFound, PosixStorage, Refused, StorageFailed, Store, Tampered, open_storage
from ledger.storage import group
from ledger.store.blobs import hashing
from ledger.store.layout import BLOBS, PACKFILES, digest_of
from ledger.store.packs.packfile import read_index
from ledger.store.parts import HEADER
from ledger.store.trees import checkout as checkouts
from ledger.store.trees import intake
from ledger.store.trees.manifest import plain_files
from ledger.store.trees.paths import check_tree
from ledger.store.workers import manyfiles
from tests.ledger.memory import MemoryStorage


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
    """Fifty files, two with the same bytes, an executable, an empty, a large, one that looks like the text of a large
    blob."""
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
def packed(store: Store, folder: Path) -> str:
    """The tree of the folder, put by copying: its small files are in packfiles."""
    return store.put_tree(folder).digest


@pytest.fixture
def asked(monkeypatch: pytest.MonkeyPatch) -> list[tuple[str, int, int]]:
    """What processes were asked for: verb, records, and how many of them they did."""
    seen: list[tuple[str, int, int]] = []
    begun = manyfiles.begun

    @contextmanager
    def noted(verb: str, common: manyfiles.Record, *given: Any) -> Iterator[Callable[[], list[str]]]:
        with begun(verb, common, *given) as finish:

            def finished() -> list[str]:
                answers = finish()
                seen.append((verb, len(answers), len(answers) - answers.count(manyfiles.NOT_DONE)))
                return answers

            yield finished

    monkeypatch.setattr(manyfiles, "begun", noted)
    return seen


def test_a_copied_folder_goes_into_packfiles(store: Store, folder: Path, asked: list[tuple[str, int, int]]) -> None:
    expected = Store(MemoryStorage()).put_tree(folder)
    assert store.put_tree(folder) == expected
    # All but the large one; the text of a large blob is refused.
    assert asked == [("pack-in", 54, 53)]
    assert store.verify(expected.digest) == [] == list(store.verify_all())
    packfiles = list(store.storage.list(PACKFILES))
    assert len(packfiles) == 2, "one for each process"
    for name in packfiles:
        path = store.storage.local_path(name)
        assert path is not None
        assert not path.stat().st_mode & 0o222
    whole = [digest_of(name, BLOBS) for name in store.storage.list(BLOBS)]
    for entry in store.manifest(expected.digest):
        assert store.read(entry.digest) == (folder / entry.path).read_bytes()
        assert (
            (store.blobs.local(entry.digest) is None)
            == (entry.path not in ("large", "text"))
            == (entry.digest not in whole)
        )
    assert [
        path.name
        for path in (store.storage.local_path("store/x") or folder).parent.iterdir()
        if path.name.startswith(".tmp-")
    ] == []


def test_what_is_in_a_packfile_is_not_written_again(store: Store, folder: Path, packed: str) -> None:
    before = list(store.storage.list(PACKFILES))
    (folder / "one more").write_bytes(b"one more")
    (Path(f"{store.storage.local_path('projections')}") / "store-stat-3.sqlite").unlink()
    for name in before:
        os.utime(store.storage.local_path(name) or "", (1, 1))
    tree = Store(store.storage).put_tree(folder)
    assert tree == Store(MemoryStorage()).put_tree(folder)
    (new,) = set(store.storage.list(PACKFILES)) - set(before)
    assert len(read_index(store.storage, new)) == 1
    assert all(detail.modified > 1 for detail in store.storage.details(PACKFILES)), "young for garbage collection"


def test_a_blob_that_rotted_is_put_again(store: Store, folder: Path, packed: str) -> None:
    entry = next(entry for entry in store.manifest(packed) if "name 33" in entry.path)
    spoil(store, entry.digest)
    place = store.blobs.packfiles.find(entry.digest)
    assert place is not None
    for (finding,) in (store.verify(packed), list(store.verify_all())):
        assert finding.expected == entry.digest
        assert f"{place.packfile}, bytes {place.start} to {place.start + 279}" in finding.where
    assert Store(store.storage).put_tree(folder).digest == packed
    assert store.verify(packed) == [] == list(store.verify_all())


def test_a_linked_blob_that_was_edited_is_put_again_from_a_copy(store: Store, folder: Path, tmp_path: Path) -> None:
    shutil.copytree(folder, tmp_path / "pristine")
    tree = store.put_tree(folder, link=True).digest
    edited = folder / "3" / "a name 3é of lines"
    edited.chmod(0o644)
    edited.write_bytes(b"edited 3" * 40)
    assert store.verify(tree) != []
    assert store.put_tree(tmp_path / "pristine").digest == tree
    assert store.verify(tree) == [] == list(store.verify_all())
    assert list(store.storage.list(PACKFILES)) == [], "what is kept whole is not packed"


def test_a_packfile_that_is_collected_meanwhile_does_not_count(
    store: Store, folder: Path, packed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    (store.storage.local_path("projections/store-stat-3.sqlite") or folder).unlink()
    work = manyfiles.work

    def collected(*given: Any) -> list[str]:
        answers = work(*given)
        store.storage.remove(*store.storage.list(PACKFILES))
        return answers

    monkeypatch.setattr(manyfiles, "work", collected)
    assert Store(store.storage).put_tree(folder).digest == packed
    assert Store(store.storage).verify(packed) == []


def spoil(store: Store, digest: str) -> None:
    """Change a byte of a blob where it lies in its packfile."""
    place = store.blobs.packfiles.find(digest)
    assert place is not None
    path = store.storage.local_path(place.packfile)
    assert path is not None
    os.chmod(path, 0o644)
    with open(path, "r+b") as packfile:
        packfile.seek(place.start + place.size // 2)
        byte = packfile.read(1)[0]
        packfile.seek(-1, os.SEEK_CUR)
        packfile.write(bytes([byte ^ 1]))


@pytest.mark.parametrize("verb", ["pack-in", "link-in"])
def test_a_put_that_stops_midway_shows_nothing_in_part(
    store: Store, folder: Path, monkeypatch: pytest.MonkeyPatch, verb: str
) -> None:
    work = manyfiles.work

    def stopped(asked: str, common: manyfiles.Record, items: list[Any], *given: Any) -> list[str]:
        work(asked, common, items[: len(items) // 2], *given)
        raise KeyboardInterrupt

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

    monkeypatch.setattr(group, "sync", full)
    with pytest.raises(StorageFailed, match="No space left"):
        store.put_tree(folder, link=True)
    assert list(store.digests()) == []


def test_a_process_that_cannot_write_leaves_nothing_and_no_answer(tmp_path: Path) -> None:
    paths = [tmp_path / f"{number}" for number in range(20)]
    for path in paths:
        path.write_bytes(b"x")
    records = [(str(path), which(path)) for path in paths]
    common = (str(tmp_path / "blobs/"), str(tmp_path / "missing"))
    assert manyfiles.work("pack-in", common, records, 2, tuple) == ["-"] * 20


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
    assert done.copied >= 52, "what is in packfiles is copied"
    assert done.files == len(store.manifest(tree)) == done.reflinked + done.hardlinked + done.copied
    if how == "copy":
        assert [verb for verb, _, _ in asked] == ["copy-out"], "these names are not seen at the first look"
        assert [given - done for _, given, done in asked] == [1], (
            "all but the text that looks like that of a large blob"
        )
        assert all(
            os.stat(tmp_path / "out" / e.path).st_mode & 0o777 == (0o755 if e.executable else 0o644)
            for e in store.manifest(tree)
        )
    assert store.checkout(tree, tmp_path / "out").unchanged
    for path in folder.rglob("*"):
        if path.is_file():
            assert (tmp_path / "out" / path.relative_to(folder)).read_bytes() == path.read_bytes()


def test_a_checkout_links_what_was_linked(
    store: Store, folder: Path, tmp_path: Path, asked: list[tuple[str, int, int]]
) -> None:
    tree = store.put_tree(folder, link=True).digest
    asked.clear()
    done = store.checkout(tree, tmp_path / "out", how="hardlink")
    assert [verb for verb, _, _ in asked] == ["link-out"]
    assert (done.hardlinked, done.copied) == (len(store.manifest(tree)) - 1, 1), "the executable is copied"
    assert store.checkout(tree, tmp_path / "out").unchanged


@pytest.mark.parametrize("lost", ["a blob", "the index", "all of it"])
def test_damage_is_found_and_nothing_is_left(store: Store, packed: str, tmp_path: Path, lost: str) -> None:
    entry = next(entry for entry in store.manifest(packed) if "name 33" in entry.path)
    place = store.blobs.packfiles.find(entry.digest)
    assert place is not None
    path = store.storage.local_path(place.packfile)
    assert path is not None
    os.chmod(path, 0o644)
    if lost == "a blob":
        spoil(store, entry.digest)
    else:
        os.truncate(path, path.stat().st_size - 1 if lost == "the index" else 0)
    fresh = Store(store.storage)
    with pytest.raises(Tampered if lost == "a blob" else NotFound, match=r"sha256:"):
        fresh.checkout(packed, tmp_path / "out")
    assert not (tmp_path / "out").exists()
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".tmp-")] == []
    assert any(place.packfile in str(finding) for finding in fresh.verify_all())
    (folder,) = [path for path in tmp_path.iterdir() if path.name == "tree"]
    assert Store(store.storage).put_tree(folder).digest == packed
    assert Store(store.storage).verify(packed) == []
    Store(store.storage).checkout(packed, tmp_path / "out")


@pytest.fixture
def plain(tmp_path: Path) -> Path:
    """Thirty files of plain names."""
    folder = tmp_path / "plain"
    for number in range(30):
        (folder / f"{number % 4}").mkdir(parents=True, exist_ok=True)
        (folder / f"{number % 4}" / f"{number}.txt").write_bytes(f"{number}".encode())
    return folder


def test_plain_names_are_placed_while_the_manifest_is_parsed(
    store: Store, plain: Path, tmp_path: Path, asked: list[tuple[str, int, int]], monkeypatch: pytest.MonkeyPatch
) -> None:
    tree = store.put_tree(plain).digest
    asked.clear()
    assert store.checkout(tree, tmp_path / "out").copied == 30
    assert asked == [("slice-out", 29, 29)], "the first one finds out what the file system can"
    assert store.put_tree(tmp_path / "out").digest == tree
    # What was seen at the first look and is not in the manifest does not stay.
    monkeypatch.setattr(
        checkouts, "plain_files", lambda text: [*plain_files(text), (plain_files(text)[0][0], "2/more")]
    )
    assert store.checkout(tree, tmp_path / "again").copied == 31
    assert store.put_tree(tmp_path / "again").digest == tree


def test_what_was_placed_stays_when_the_next_cannot_be_placed_at_once(
    store: Store, plain: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names that are seen at the first look, and as many that are not; the first of these fails once."""
    for number in range(30):
        (plain / f"a name {number}").write_bytes(b"other %d" % number)
    tree = store.put_tree(plain).digest
    place, failed = checkouts.Placer.place, []

    def once(placer: checkouts.Placer, digest: str, target: str, **given: Any) -> None:
        if "a name" in target and not failed:
            failed.append(target)
            raise StorageFailed("for a moment", where=target)
        place(placer, digest, target, **given)

    monkeypatch.setattr(checkouts.Placer, "place", once)
    assert store.checkout(tree, tmp_path / "out").files == 60
    assert len(failed) == 1
    assert Store(MemoryStorage()).put_tree(tmp_path / "out").digest == tree


def test_a_manifest_that_is_refused_leaves_nothing(store: Store, plain: Path, tmp_path: Path) -> None:
    """Processes begin before the manifest is parsed: with plain files only, in a folder that never gets a name."""
    text = store.read(store.put_tree(plain).digest)
    files = plain_files(text)
    assert len(files) == 30
    files = plain_files(text)
    assert len(files) >= 10
    check_tree(path for _, path in files)
    for other in (text[:-1], text.replace(b"0/0.txt", b"../0.txt"), text.replace(b"1/1.txt", b"0/0.TXT")):
        assert other != text
        with pytest.raises((Malformed, Refused)):
            checkouts.tree(store.blobs, other, tmp_path / "out" / "in", where="here")
        assert list((tmp_path / "out").iterdir()) == []


@pytest.mark.parametrize("link", [True, False])
@pytest.mark.parametrize("program", ["/nonexistent", "/bin/false", "/bin/cat"])
def test_processes_that_fail_leave_the_work_to_the_caller(
    store: Store, folder: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, program: str, link: bool
) -> None:
    monkeypatch.setattr(sys, "executable", program)
    artifact = store.put_tree(folder, link=link)
    assert artifact == Store(MemoryStorage()).put_tree(folder)
    store.checkout(artifact.digest, tmp_path / "out")
    assert store.verify(artifact.digest) == []
    assert store.checkout(artifact.digest, tmp_path / "out").unchanged


def which(path: Path) -> str:
    status = path.stat()
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def take(tmp_path: Path, seen: str) -> str:
    common = (f"{tmp_path}/blobs/",)
    (answer,) = manyfiles.work("link-in", common, [(str(tmp_path / "file"), seen)], 1, tuple)
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
