"""Pointers: one form, and everything else refused."""

from __future__ import annotations

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from ledger import LedgerError, NotFound, StorageFailed
from marin.execution.pointer import Pointer, encode_json, read_pointer
from marin.process import files
from marin.process.files import write_whole

POINTER = Pointer(digest="sha256:" + "ab" * 32, kind="corpus", size=12)


def test_the_bytes_are_those_of_the_docstring(tmp_path: Path) -> None:
    (tmp_path / "corpus.json").write_bytes(POINTER.encode())
    assert (tmp_path / "corpus.json").read_text() == (
        '{\n  "digest": "sha256:' + "ab" * 32 + '",\n  "kind": "corpus",\n  "size": 12\n}\n'
    )
    assert read_pointer(tmp_path / "corpus.json") == POINTER


@given(at=st.integers(0, len(POINTER.encode()) - 1), bit=st.integers(0, 7))
def test_any_flipped_bit_is_refused_or_names_something_else(
    tmp_path_factory: pytest.TempPathFactory, at: int, bit: int
) -> None:
    data = bytearray(POINTER.encode())
    data[at] ^= 1 << bit
    path = tmp_path_factory.mktemp("pointer") / "corpus.json"
    path.write_bytes(bytes(data))
    try:
        assert read_pointer(path) != POINTER
    except LedgerError as error:
        assert "corpus.json" in str(error)


def test_a_missing_pointer_is_not_found(tmp_path: Path) -> None:
    with pytest.raises(NotFound, match="dvc repro"):
        read_pointer(tmp_path / "corpus.json")


def test_floats_are_written_so_that_they_read_back_equal() -> None:
    assert encode_json({"b": 0.1 + 0.2, "a": 300.0}) == b'{\n  "a": 300.0,\n  "b": 0.30000000000000004\n}\n'


def test_a_full_disk_leaves_the_old_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "file"
    write_whole(path, b"old")

    def full(descriptor: int) -> None:
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(files.os, "fsync", full)
    with pytest.raises(StorageFailed, match=r"disk full: .*file.*free some space"):
        write_whole(path, b"new")
    assert path.read_bytes() == b"old"
    assert [entry.name for entry in tmp_path.iterdir()] == ["file"]


def test_what_a_killed_write_left_is_gone_after_the_next(tmp_path: Path) -> None:
    (tmp_path / ".tmp-file").write_bytes(b"half of it and more")
    write_whole(tmp_path / "file", b"whole")
    assert {entry.name: entry.read_bytes() for entry in tmp_path.iterdir()} == {"file": b"whole"}


def test_equal_bytes_are_not_written_again(tmp_path: Path) -> None:
    write_whole(tmp_path / "file", b"same")
    before = (tmp_path / "file").stat()
    write_whole(tmp_path / "file", b"same")
    after = (tmp_path / "file").stat()
    assert (before.st_ino, before.st_mtime_ns) == (after.st_ino, after.st_mtime_ns)
