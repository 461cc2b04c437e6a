"""Checkout: all or nothing, verified on the way, and idle when there is nothing to do."""

import os
from pathlib import Path

import pytest

import ledger.store.trees.checkout as module
from ledger import (
    AlreadyExists,
    CheckedOut,
    Manifest,
    ManifestEntry,
    NotFound,
    PosixStorage,
    Refused,
    StorageFailed,
    Store,
    Tampered,
)
from ledger.store.layout import blob_name, tree_name
from tests.ledger.memory import MemoryStorage

FILES = {"a.txt": b"alpha", "sub/b.bin": bytes(range(256)) * 8192, "sub/deep/empty": b"", "run.sh": b"#!/bin/sh\n"}


@pytest.fixture
def store(tmp_path: Path) -> Store:
    return Store(PosixStorage(tmp_path / "root"))


@pytest.fixture
def tree(store: Store, tmp_path: Path) -> str:
    folder = tmp_path / "source"
    for path, data in FILES.items():
        (folder / path).parent.mkdir(parents=True, exist_ok=True)
        (folder / path).write_bytes(data)
    (folder / "run.sh").chmod(0o755)
    return store.put_tree(folder).digest


def contents(folder: Path) -> dict[str, bytes]:
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in folder.rglob("*") if path.is_file()}


def leftovers(folder: Path) -> list[Path]:
    return [path for path in folder.rglob("*") if path.name.startswith(".tmp-")]


def blob(store: Store, tree: str, path: str) -> Path:
    found = store.blobs.local(store.manifest(tree).entry(path).digest)
    assert found is not None
    return Path(found)


@pytest.mark.parametrize("how", ["auto", "hardlink", "copy"])
def test_a_tree_comes_out_as_it_went_in(store: Store, tree: str, tmp_path: Path, how: module.How) -> None:
    dest = tmp_path / "new" / "place"
    done = store.checkout(tree, dest, how=how)
    assert contents(dest) == FILES
    assert os.access(dest / "run.sh", os.X_OK)
    assert (dest / "a.txt").stat().st_mode & 0o111 == 0
    assert done.files == 4 == done.reflinked + done.hardlinked + done.copied
    assert leftovers(tmp_path) == []


def test_a_copy_is_writable_and_nobody_elses(store: Store, tree: str, tmp_path: Path) -> None:
    assert store.checkout(tree, tmp_path / "out", how="copy").copied == 4
    (tmp_path / "out" / "a.txt").write_bytes(b"changed")
    assert store.verify(tree) == []


def test_a_hard_link_is_read_only_and_executables_have_their_own_mode(store: Store, tree: str, tmp_path: Path) -> None:
    done = store.checkout(tree, tmp_path / "out", how="hardlink")
    assert (done.hardlinked, done.copied) == (3, 1)
    assert (tmp_path / "out" / "a.txt").samefile(blob(store, tree, "a.txt"))
    assert not (tmp_path / "out" / "a.txt").stat().st_mode & 0o222
    assert not (tmp_path / "out" / "run.sh").samefile(blob(store, tree, "run.sh"))


def test_nothing_is_a_second_name_of_a_file_in_a_store_that_is_only_read(
    store: Store, tree: str, tmp_path: Path
) -> None:
    """Anyone who may write in the store would change it after it was hashed."""
    Store(PosixStorage(tmp_path / "root", readonly=True)).checkout(tree, tmp_path / "out")
    hashed = contents(tmp_path / "out")
    blob(store, tree, "a.txt").chmod(0o644)
    blob(store, tree, "a.txt").write_bytes(b"other")
    assert contents(tmp_path / "out") == hashed == FILES


def test_a_second_checkout_writes_nothing(store: Store, tree: str, tmp_path: Path) -> None:
    store.checkout(tree, tmp_path / "out")
    before = {path: path.lstat().st_ctime_ns for path in (tmp_path / "out").rglob("*")}
    assert store.checkout(tree, tmp_path / "out") == CheckedOut(files=4, unchanged=True)
    assert {path: path.lstat().st_ctime_ns for path in (tmp_path / "out").rglob("*")} == before
    one = store.put_bytes(b"one").digest
    store.checkout(one, tmp_path / "file")
    assert store.checkout(one, tmp_path / "file").unchanged


def test_a_file_edited_through_its_hard_link_is_noticed_and_the_store_heals(
    store: Store, tree: str, tmp_path: Path
) -> None:
    store.checkout(tree, tmp_path / "out", how="hardlink")
    edited = tmp_path / "out" / "a.txt"
    edited.chmod(0o644)
    edited.write_bytes(b"ALPHA")  # same length, in place: the blob has these bytes now
    edited.chmod(0o444)
    assert [finding.what for finding in store.verify(tree)] == ["a blob's bytes differ from its digest"]
    for how in ("auto", "hardlink", "copy"):
        with pytest.raises(Tampered):
            store.checkout(tree, tmp_path / f"new-{how}", how=how)  # type: ignore[arg-type]
        assert not (tmp_path / f"new-{how}").exists()
    with pytest.raises(AlreadyExists):
        store.checkout(tree, tmp_path / "out")
    store.put_bytes(b"alpha")
    store.checkout(tree, tmp_path / "out", replace=True)
    assert contents(tmp_path / "out") == FILES
    assert store.verify(tree) == []


@pytest.mark.parametrize(
    "spoil",
    [
        lambda out: (out / "extra").write_bytes(b""),
        lambda out: (out / "sub" / "b.bin").unlink(),
        lambda out: (out / "run.sh").chmod(0o644),
        lambda out: ((out / "a.txt").unlink(), (out / "a.txt").symlink_to("run.sh")),
        lambda out: ((out / "a.txt").unlink(), (out / "a.txt").mkdir()),
    ],
)
def test_what_stands_there_is_replaced_on_demand_only(store: Store, tree: str, tmp_path: Path, spoil: object) -> None:
    out = tmp_path / "out"
    store.checkout(tree, out)
    spoil(out)  # type: ignore[operator]
    before = {path: path.lstat().st_ino for path in out.rglob("*")}
    with pytest.raises(AlreadyExists, match="destination"):
        store.checkout(tree, out)
    assert {path: path.lstat().st_ino for path in out.rglob("*")} == before
    store.checkout(tree, out, replace=True)
    assert contents(out) == FILES
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize("swaps", [True, False])
def test_files_folders_and_links_give_way_to_each_other(
    store: Store, tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, swaps: bool
) -> None:
    if not swaps:
        monkeypatch.setattr(module, "_renameat2", None)
    one, place = store.put_bytes(b"one").digest, tmp_path / "place"
    store.checkout(one, place)
    store.checkout(tree, place, replace=True)
    assert contents(place) == FILES
    store.checkout(one, place, replace=True)
    assert place.read_bytes() == b"one"
    (tmp_path / "kept").mkdir()
    place.unlink()
    place.symlink_to("kept")
    store.checkout(tree, place, replace=True)
    assert not place.is_symlink()
    assert list((tmp_path / "kept").iterdir()) == []
    assert leftovers(tmp_path) == []


def test_an_empty_folder_may_be_filled(store: Store, tree: str, tmp_path: Path) -> None:
    (tmp_path / "out").mkdir()
    store.checkout(tree, tmp_path / "out")
    assert contents(tmp_path / "out") == FILES


def test_an_insisted_means_that_does_not_exist_is_an_error(
    store: Store, tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(module, "clone", lambda source, target: False)
    with pytest.raises(StorageFailed, match="cannot reflink"):
        store.checkout(tree, tmp_path / "out", how="reflink")
    assert leftovers(tmp_path) == []
    assert store.checkout(tree, tmp_path / "out").reflinked == 0


def test_a_reflink_is_taken_where_there_is_one(
    store: Store, tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def cloning(source, target):
        target.write(source.read())
        target.seek(0)
        return True

    monkeypatch.setattr(module, "clone", cloning)
    assert store.checkout(tree, tmp_path / "out") == CheckedOut(files=4, reflinked=4)
    assert contents(tmp_path / "out") == FILES


def test_a_blob_with_too_many_names_is_copied(
    store: Store, tree: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def full(*names: object, **options: object) -> None:
        raise OSError(31, os.strerror(31))

    monkeypatch.setattr(module.os, "link", full)
    assert store.checkout(tree, tmp_path / "out", how="hardlink").copied == 4


@pytest.mark.parametrize("how", ["auto", "hardlink", "copy"])
@pytest.mark.parametrize("path", ["a.txt", "sub/b.bin", "run.sh"])
def test_a_corrupt_or_missing_blob_leaves_nothing_behind(
    store: Store, tree: str, tmp_path: Path, path: str, how: module.How
) -> None:
    target = blob(store, tree, path)
    data = target.read_bytes()
    target.chmod(0o644)
    target.write_bytes(data[:-1] + b"~")
    with pytest.raises(Tampered, match=blob_name(store.manifest(tree).entry(path).digest)):
        store.checkout(tree, tmp_path / "out", how=how)
    target.unlink()
    with pytest.raises(NotFound):
        store.checkout(tree, tmp_path / "out", how=how)
    assert not (tmp_path / "out").exists()
    assert leftovers(tmp_path) == []


def test_a_store_without_a_disk_copies(tmp_path: Path, tree: str) -> None:
    memory = Store(MemoryStorage())
    digest = memory.put_tree(tmp_path / "source").digest
    assert digest == tree
    assert memory.checkout(digest, tmp_path / "out") == CheckedOut(files=4, copied=4)
    assert contents(tmp_path / "out") == FILES


HOSTILE = [
    "../escaped",
    "/tmp/escaped",
    "a/../../escaped",
    "a\\\\..\\\\escaped",
    ".git/hooks/pre-commit",
    "NUL",
    "a//b",
    "a\\u0000b",
]


@pytest.mark.parametrize("path", HOSTILE)
def test_a_hostile_manifest_is_refused_and_writes_nothing(store: Store, tmp_path: Path, path: str) -> None:
    digest = store.put_bytes(b"payload").digest
    line = f'{{"digest":"{digest}","executable":false,"path":"{path}","size":7}}'
    _refused_where_it_lies(store, f'{{"entries":[{line}],"kind":"tree","version":1}}'.encode(), tmp_path)


def test_a_manifest_whose_paths_meet_is_refused(store: Store, tmp_path: Path) -> None:
    digest = store.put_bytes(b"payload").digest
    line = '{"digest":"%s","executable":false,"path":"%s","size":7}'
    lines = ",".join(line % (digest, path) for path in ("A", "a"))
    _refused_where_it_lies(store, f'{{"entries":[{lines}],"kind":"tree","version":1}}'.encode(), tmp_path)


def _refused_where_it_lies(store: Store, data: bytes, tmp_path: Path) -> None:
    """Put bytes where a manifest lies, as a hostile remote would, and see that nothing comes of it."""
    from ledger.format.digest import digest_bytes

    digest = digest_bytes(data)
    store.storage.create(tree_name(digest), data)
    before = sorted(tmp_path.iterdir())
    with pytest.raises(Refused):
        store.checkout(digest, tmp_path / "out")
    assert store.verify(digest) != []
    assert sorted(tmp_path.iterdir()) == before


def test_a_claimed_size_does_not_cut_a_file(store: Store, tmp_path: Path) -> None:
    artifact = store.put_bytes(b"x" * (2 << 20))
    lying = store.put_manifest(Manifest.of([ManifestEntry("f", 1, artifact.digest)]))
    store.checkout(lying.digest, tmp_path / "out", how="copy")
    assert (tmp_path / "out" / "f").stat().st_size == 2 << 20
