"""Logs that somebody else's software wrote: audited clean, and a changed byte in them is found.

One writer is independent code in this repository (`foreign_log`), made from the specifications' text. Another log is
what Tessera (Go) keeps as its test data: not ours to copy, so it is read where MARIN_FOREIGN_LOG names its folder.

    git clone https://github.com/transparency-dev/tessera
    MARIN_FOREIGN_LOG=tessera/testdata/log pytest tests/ledger/log/test_foreign.py
"""

import os
import random
import shutil

import foreign_log
import pytest

from ledger import LedgerError, LogReader, PosixStorage, VerifierKey, check

FOREIGN = os.environ.get("MARIN_FOREIGN_LOG", "")
FOREIGN_KEY = os.environ.get(
    "MARIN_FOREIGN_VKEY", "example.com/log/testdata+33d7b496+AeHTu4Q3hEIMHNqc6fASMsq3rKNx280NI+oO5xCFkkSx"
)


def audit(folder, vkey):
    storage = PosixStorage(folder, readonly=True)
    return check(storage, [VerifierKey.parse(vkey)], log="", entries_are_events=False)


@pytest.mark.parametrize("size", [0, 1, 2, 255, 256, 257, 700])
def test_an_independent_writers_log(tmp_path, size):
    entries = [f"entry {n}".encode() * (n % 7) for n in range(size)]
    foreign_log.write_log(tmp_path, entries)
    (tmp_path / ".state").mkdir()
    (tmp_path / ".state" / "tree").write_text("other software keeps other files")
    assert audit(tmp_path, foreign_log.vkey()) == []
    reader = LogReader(PosixStorage(tmp_path, readonly=True), [VerifierKey.parse(foreign_log.vkey())], log="")
    assert [entry for _, entry in reader.entries()] == entries


def test_every_byte_of_an_independent_writers_log(tmp_path):
    foreign_log.write_log(tmp_path, [f"entry {n}".encode() for n in range(12)])
    for path in sorted(p for p in tmp_path.rglob("*") if p.is_file()):
        data = path.read_bytes()
        for at in range(len(data)):
            path.write_bytes(data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :])
            assert audit(tmp_path, foreign_log.vkey()) != [], (path, at)
        path.write_bytes(data)
    assert audit(tmp_path, foreign_log.vkey()) == []


@pytest.mark.skipif(not FOREIGN, reason="MARIN_FOREIGN_LOG names no log of other software")
def test_a_log_of_other_software(tmp_path):
    shutil.copytree(FOREIGN, tmp_path / "log")
    folder = tmp_path / "log"
    assert audit(folder, FOREIGN_KEY) == []
    reader = LogReader(PosixStorage(folder, readonly=True), [VerifierKey.parse(FOREIGN_KEY)], log="")
    size = reader.checkpoint().size
    assert size == sum(1 for _ in reader.entries()) > 0
    chosen = random.Random(0)
    files = [p for p in (folder / "tile").rglob("*") if p.is_file()] + [folder / "checkpoint"]
    for path in files:
        data = path.read_bytes()
        places = range(len(data)) if len(data) < 600 else chosen.sample(range(len(data)), 100)
        for at in places:
            path.write_bytes(data[:at] + bytes([data[at] ^ (1 << chosen.randrange(8))]) + data[at + 1 :])
            assert audit(folder, FOREIGN_KEY) != [], (path, at)
        path.write_bytes(data)
    assert audit(folder, FOREIGN_KEY) == []


def test_a_foreign_log_is_not_believed_without_its_key(tmp_path):
    foreign_log.write_log(tmp_path, [b"entry"])
    other = VerifierKey.parse(FOREIGN_KEY)
    assert check(PosixStorage(tmp_path, readonly=True), [other], log="", entries_are_events=False) != []
    with pytest.raises(LedgerError):
        LogReader(PosixStorage(tmp_path, readonly=True), [other], log="").checkpoint()
