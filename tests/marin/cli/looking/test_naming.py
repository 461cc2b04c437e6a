"""Digests by their beginning, as in Git, wherever a digest is taken; a file that is no key is said to be none."""

from __future__ import annotations

import os
from pathlib import Path
from typing import Any

import pytest

from ledger import digest_bytes
from marin.record.root import open_root

Marin = Any
MODEL = digest_bytes(b"model")
"""What the run's steps stored (conftest.py)."""


def test_a_digest_is_known_by_its_beginning(marin: Marin, run: str, tmp_path: Path) -> None:
    whole = marin("show", MODEL, "--json").data
    for name in (MODEL[:13], MODEL[7:13], MODEL[7:]):
        assert marin("show", name, "--json").data == whole, name
        assert marin("store", "verify", name).status == 0
        assert marin("lineage", name, "--json").data == marin("lineage", MODEL, "--json").data
    assert marin("store", "get", MODEL[7:15]).data == b"model"
    assert marin("store", "pin", MODEL[:14], "--why", "x").status == 0
    assert [line["digest"] for line in marin("store", "pins", "--json").lines] == [MODEL]
    assert marin("store", "unpin", MODEL[:14]).status == 0 and marin("store", "pins", "--json").lines == []


def test_what_the_store_alone_has_is_known_too(marin: Marin, run: str) -> None:
    other = open_root().store().put_bytes(b"nobody names it").digest
    assert marin("store", "get", other[7:14]).data == b"nobody names it"


@pytest.mark.parametrize(
    ("name", "told"),
    [
        ("sha256:12", "the first 6 or more of them"),
        ("sha256:" + "Z" * 64, "not a digest"),
        ("sha256:" + "5" * 8, "no digest begins so"),
        ("deadbeef", "no digest begins so"),
    ],
)
def test_what_is_no_digest_is_wrong_usage(marin: Marin, run: str, name: str, told: str) -> None:
    for command in (("store", "get"), ("store", "verify"), ("store", "pin"), ("store", "unpin"), ("store", "ls")):
        refused = marin(*command, name)
        assert refused.status == 2 and told in refused.err, command


def test_several_that_begin_so_are_named(marin: Marin, run: str) -> None:
    store, known = open_root().store(), dict[str, str]()
    for number in range(100_000):
        digest = digest_bytes(b"%d" % number)
        if (first := known.setdefault(digest[:13], str(number))) != str(number):
            break
    else:
        pytest.fail("no two digests begin alike")
    both = [store.put_bytes(text.encode()).digest for text in (first, str(number))]
    refused = marin("store", "get", digest[:13])
    assert refused.status == 2 and "several digests begin so" in refused.err
    assert all(one in refused.err for one in both)


def test_what_is_needed_and_missing_ends_with_3(marin: Marin, run: str) -> None:
    assert marin("store", "get", "sha256:" + "5" * 64).status == 3
    assert marin("show", "event:nobody").status == 3


def test_a_file_that_is_no_key_is_said_to_be_none_whatever_its_mode(
    marin: Marin, run: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    other = tmp_path / "notes.txt"
    other.write_text("no key\n")
    os.mkfifo(tmp_path / "fifo")
    for path, mode in ((other, 0o644), (other, 0o600), (tmp_path, 0o755), (tmp_path / "fifo", 0o600)):
        path.chmod(mode)
        monkeypatch.setenv("MARIN_KEY", str(path))
        refused = marin("run", run, "tag", "a=1")
        assert refused.status == 2 and "not a key file" in refused.err and "chmod" not in refused.err, path
        for command in (("init",), ("ls",), ("verify", run, "--only", "ledger")):  # nor is its owner a stranger
            told = marin(*command)
            assert told.status == 2 and "not a key file" in told.err and "trust add" not in told.err, (path, command)
    assert marin("trust", "add", "--vkey", "bad").status == 2
