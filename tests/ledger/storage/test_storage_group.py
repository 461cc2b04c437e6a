"""Many files under one sync: the promise of ensure_many, kept for a group as for one."""

import os
from pathlib import Path

import pytest

from ledger import Conflict, PosixStorage, Refused, StorageFailed
from ledger.storage import group

ITEMS = [(f"area/{n % 7}/{n}", bytes([n % 256]) * n) for n in range(200)]


def test_a_group_is_written_and_written_again(tmp_path: Path) -> None:
    storage = PosixStorage(tmp_path)
    storage.ensure_many(ITEMS)
    assert {name: storage.read(name) for name in storage.list()} == dict(ITEMS)
    inodes = {path: path.stat().st_ino for path in tmp_path.rglob("*")}
    storage.ensure_many(ITEMS)
    assert {path: path.stat().st_ino for path in tmp_path.rglob("*")} == inodes
    assert not list(tmp_path.rglob(".tmp-*"))


def test_other_bytes_are_a_conflict_and_stay(tmp_path: Path) -> None:
    storage = PosixStorage(tmp_path)
    storage.create("area/3/10", b"other")
    with pytest.raises(Conflict, match="area/3/10"):
        storage.ensure_many(ITEMS)
    assert storage.read("area/3/10") == b"other"
    assert storage.read("area/4/11") == bytes([11]) * 11, "each item stands by itself"


def test_names_are_checked_and_reading_stays_reading(tmp_path: Path) -> None:
    with pytest.raises(Refused):
        PosixStorage(tmp_path / "a").ensure_many([*ITEMS, ("area/../../escaped", b"x")])
    with pytest.raises(Refused):
        PosixStorage(tmp_path / "a", readonly=True).ensure_many(ITEMS)
    assert not list(tmp_path.rglob("escaped"))


def test_nothing_is_visible_before_it_is_synced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    seen: list[int] = []
    real = group.sync

    def looking(descriptor: int) -> None:
        seen.append(sum(1 for path in (tmp_path / "area").glob("[0-9]/*")))
        real(descriptor)

    monkeypatch.setattr(group, "sync", looking)
    PosixStorage(tmp_path).ensure_many(ITEMS)
    assert seen == [0, len(ITEMS)]


def test_a_failed_sync_is_an_error(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(descriptor: int) -> None:
        raise OSError(5, os.strerror(5))

    monkeypatch.setattr(group, "sync", fails)
    with pytest.raises(StorageFailed, match="Input/output"):
        PosixStorage(tmp_path).ensure_many(ITEMS)
    assert not list((tmp_path / "area").glob("[0-9]/*"))


def test_a_system_without_a_sync_of_all_does_it_file_by_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(group, "_syncfs", None)
    assert not group.available()
    PosixStorage(tmp_path).ensure_many(ITEMS)
    assert {name: PosixStorage(tmp_path).read(name) for name in PosixStorage(tmp_path).list()} == dict(ITEMS)
