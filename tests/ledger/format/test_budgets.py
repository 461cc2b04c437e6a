"""What asks for too much ends in a sentence: no hang, no end of memory."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest

from ledger import Draft, LedgerError, Log, LogReader, Malformed, PosixStorage, check, create_key
from ledger.audit import fsck
from ledger.format.budgets import BUDGETS
from ledger.format.checkpoint import LogCheckpoint
from ledger.store.layout import PACKFILE_LIST, blob_name, packed_name, packfile_name, parts_name, tree_name


@pytest.mark.parametrize("size", [10_000_000, 1 << 33, 1 << 40, (1 << 62) + 1])
def test_a_signed_checkpoint_of_a_size_that_nobody_has(tmp_path: Path, size: int) -> None:
    storage, key = PosixStorage(tmp_path / "root"), create_key(tmp_path / "key", "x.example/log")
    Log.create(storage, key)
    with Log.open(storage, key) as log:
        log.append([Draft("a/v1", "s", {"n": number}) for number in range(300)])
    storage.replace("log/checkpoint", LogCheckpoint("x.example/log", size, b"\1" * 32).sign([key]).encode())
    found = check(storage, [key.verifier])
    assert found and len(found) <= 2 * BUDGETS.missing_files + 10
    assert any(finding.expected.startswith("at most") for finding in found), found[-1]
    with pytest.raises(LedgerError):
        list(LogReader(storage, [key.verifier]).events())


def test_a_file_of_the_log_has_an_end(tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    with (tmp_path / "log" / "checkpoint").open("wb") as sparse:
        sparse.truncate(BUDGETS.log_file + 1)
    with pytest.raises(Malformed, match=f"too large to be read: log/checkpoint: expected at most {BUDGETS.log_file}"):
        PosixStorage(tmp_path).read("log/checkpoint")


def test_a_file_that_describes_others_is_small() -> None:
    digest = "sha256:" + "ab" * 32
    small = [tree_name(digest), parts_name(digest), packed_name(digest), PACKFILE_LIST, "log/checkpoint"]
    assert all(BUDGETS.of_file(name) <= BUDGETS.fetched for name in small)
    assert [BUDGETS.of_file(name(digest)) for name in (blob_name, packfile_name)] == [BUDGETS.stored_file] * 2


def test_missing_files_are_counted_and_not_for_ever(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(fsck, "BUDGETS", replace(BUDGETS, missing_files=5))
    storage, key = PosixStorage(tmp_path / "root"), create_key(tmp_path / "key", "x.example/log")
    Log.create(storage, key)
    storage.replace("log/checkpoint", LogCheckpoint("x.example/log", 10_000, b"\1" * 32).sign([key]).encode())
    found = check(storage, [key.verifier])
    assert found[-1].what == "missing files of the log, and the rest was not looked for"
    assert (found[-1].expected, len(found)) == ("at most 5", 7)
