"""`marin store push` and `pull`: to and from buckets, folders and what is published over http."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from buckets import Bucket, Mirror
from http_faults import Fault

from ledger import Draft, digest_bytes
from marin.record.creation import create_root
from marin.record.root import open_root

Marin = Any


@pytest.fixture
def named(root: Path, tmp_path: Path) -> str:
    """A tree that the ledger names, beside bytes that it does not."""
    (tmp_path / "folder" / "deep").mkdir(parents=True)
    (tmp_path / "folder" / "a").write_bytes(b"first\n")
    (tmp_path / "folder" / "deep" / "b").write_bytes(b"second\n")
    opened = open_root()
    digest = opened.store().put_tree(tmp_path / "folder").digest
    opened.store().put_bytes(b"named by nobody")
    opened.append([Draft("test.named/v1", "run/abc", {"artifact": digest, "state": digest_bytes(b"no artifact")})])
    return digest


def test_all_that_the_ledger_names_goes_to_a_bucket_and_comes_back(
    marin: Marin, named: str, bucket: Bucket, tmp_path: Path
) -> None:
    remote = f"{bucket.url}/marin"
    planned = marin("store", "push", remote, "--dry-run", "--json").json
    assert planned == {"artifacts": 1, "sent": 2, "size": 13, "there": 0, "trees": 1, "dry_run": True}
    assert not bucket.service.asked("PUT")
    assert marin("store", "push", remote, "--check", "--json").json == planned | {"dry_run": False}
    again = marin("store", "push", remote)
    assert (again.status, again.out) == (0, "sent 0 files, 0 B; 2 were there; 1 artifact, 1 of them trees\n")
    listed = marin("store", "ls", "--remote", remote, "--json").lines
    assert {item["digest"] for item in listed if item["kind"] == "tree"} == {named}
    assert len(listed) == 3
    (tmp_path / "artifacts").mkdir()
    pointer = tmp_path / "artifacts" / "x.json"
    pointer.write_text(json.dumps({"digest": named, "kind": "x", "size": 13}))
    create_root(str(tmp_path / "other"), origin="marin.test/other")
    pulled = marin("--root", tmp_path / "other", "store", "pull", remote, pointer)
    assert (pulled.status, pulled.out) == (0, "sent 2 files, 13 B; 0 were there; 1 artifact, 1 of them trees\n")
    assert marin("--root", tmp_path / "other", "store", "verify", named).status == 0


def test_what_is_missing_here_is_fetched_from_a_published_folder(
    marin: Marin, named: str, root: Path, mirror: Mirror
) -> None:
    assert marin("store", "push", mirror.folder).status == 0
    blob = next(file for file in root.glob("store/blobs/**/*") if file.is_file() and file.read_bytes() == b"second\n")
    blob.unlink()
    (root / "store" / "trees").rename(root / "store" / "gone")
    fetched = marin("store", "pull", mirror.url, "--run", "abc", "--json")
    assert fetched.status == 2, "abc is a stream of a test and no run"
    assert marin("store", "pull", mirror.url, "--json").json["sent"] == 1
    assert marin("store", "verify", named).status == 0
    refused = marin("store", "push", mirror.url)
    assert refused.status == 2
    assert "can only be read" in refused.err


def test_what_is_nowhere_and_what_is_wrong(marin: Marin, named: str, gcs: Bucket, tmp_path: Path) -> None:
    missing = digest_bytes(b"missing")
    for command in (("push", gcs.url, missing), ("pull", gcs.url, missing)):
        outcome = marin("store", *command)
        assert outcome.status == 3
        assert missing in outcome.err
    assert marin("store", "pull", tmp_path / "nowhere").status == 3
    (tmp_path / "no-pointer").write_text("text")
    assert marin("store", "push", gcs.url, tmp_path / "no-pointer").status == 2
    assert marin("store", "push", gcs.url).status == 0
    gcs.service.faults.add(Fault.WRONG, method="GET", path="store/blobs/")
    checked = marin("store", "push", gcs.url, "--check", "--json")
    assert checked.status == 1
    assert [line["what"] for line in checked.lines[1:]] == ["a blob's bytes differ from its digest"] * 2


def test_an_edited_corpus_goes_up_by_what_changed(marin: Marin, root: Path, gcs: Bucket, tmp_path: Path) -> None:
    text = b"".join(b"%d %s\n" % (n, digest_bytes(b"%d" % n).encode()) for n in range(60_000))
    (tmp_path / "corpus").write_bytes(text)
    first = marin("store", "put", "--chunked", tmp_path / "corpus").out.strip()
    assert first == digest_bytes(text)
    assert marin("store", "push", gcs.url, first, "--json").json["size"] == len(text), "packed here, it travels packed"
    (tmp_path / "corpus").write_bytes(text[:1_000_000] + b"one line more\n" + text[1_000_000:])
    second = marin("store", "put", tmp_path / "corpus").out.strip()
    assert marin("store", "push", gcs.url, second, "--cut", "content", "--check", "--json").json["size"] < 1_500_000
    assert len(marin("store", "get", second).data) == len(text) + 14
