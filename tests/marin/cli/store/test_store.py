"""`marin store`: bytes in, the same bytes out, and nothing believed in between."""

from __future__ import annotations

import hashlib
import os
import time
from pathlib import Path
from typing import Any

import pytest

Marin = Any


def blobs(root: Path) -> list[Path]:
    return sorted(file for file in root.glob("store/blobs/**/*") if file.is_file())


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    made = tmp_path / "folder"
    (made / "deep").mkdir(parents=True)
    (made / "a.txt").write_bytes(b"first\n")
    (made / "deep" / "b.bin").write_bytes(bytes(range(256)) * 40)
    return made


def test_a_file_goes_in_and_comes_out(marin: Marin, root: Path, tmp_path: Path) -> None:
    data = bytes(range(256)) * 5000
    (tmp_path / "file").write_bytes(data)
    put = marin("store", "put", tmp_path / "file", "--json").json
    assert put == {"digest": "sha256:" + hashlib.sha256(data).hexdigest(), "kind": "blob", "size": len(data)}
    assert marin("store", "get", put["digest"]).data == data
    assert marin("store", "get", put["digest"], tmp_path / "out").status == 0
    assert (tmp_path / "out").read_bytes() == data


def test_stdin_goes_in(marin: Marin, root: Path) -> None:
    digest = marin("store", "put", "-", stdin=b"piped").out.strip()
    assert digest == "sha256:" + hashlib.sha256(b"piped").hexdigest()


def test_a_folder_goes_in_and_comes_out(marin: Marin, root: Path, folder: Path, tmp_path: Path) -> None:
    digest = marin("store", "put", folder).out.strip()
    assert marin("store", "put", folder).out.strip() == digest
    listed = marin("store", "ls", digest, "--json").lines
    assert [(file["path"], file["size"]) for file in listed] == [("a.txt", 6), ("deep/b.bin", 10240)]
    assert marin("store", "get", digest, tmp_path / "out").status == 0
    assert (tmp_path / "out" / "deep" / "b.bin").read_bytes() == (folder / "deep" / "b.bin").read_bytes()
    on_stdout = marin("store", "get", digest)
    assert (on_stdout.status, on_stdout.data) == (2, b"")


def test_what_stands_there_is_not_overwritten_unasked(marin: Marin, root: Path, folder: Path, tmp_path: Path) -> None:
    digest = marin("store", "put", folder).out.strip()
    target = tmp_path / "target"
    target.mkdir()
    (target / "mine.txt").write_text("mine")
    refused = marin("store", "get", digest, target)
    assert refused.status == 1
    assert (target / "mine.txt").read_text() == "mine"
    assert marin("store", "get", digest, target, "--replace").status == 0
    assert sorted(path.name for path in target.iterdir()) == ["a.txt", "deep"]


@pytest.mark.parametrize("name", ["nothing", "sha256:12", "sha256:" + "g" * 64])
def test_what_is_no_digest_is_refused(marin: Marin, root: Path, name: str) -> None:
    for command in ("get", "ls", "verify"):
        refused = marin("store", command, name)
        assert (refused.status, refused.data) == (2, b"")
        assert refused.err.count("\n") == 1


def test_what_is_not_there_is_named(marin: Marin, root: Path, tmp_path: Path) -> None:
    digest = "sha256:" + "0" * 64
    assert digest in marin("store", "get", digest, tmp_path / "out").err
    assert not (tmp_path / "out").exists()
    missing = marin("store", "put", tmp_path / "missing")
    assert missing.status == 2
    assert str(tmp_path / "missing") in missing.err


def test_ls_lists_all_that_is_held(marin: Marin, root: Path, folder: Path) -> None:
    assert marin("store", "ls").err == "the store is empty\n"
    digest = marin("store", "put", folder).out.strip()
    held = {line["digest"]: line["kind"] for line in marin("store", "ls", "--json").lines}
    assert held[digest] == "tree"
    assert sorted(held.values()) == ["blob", "blob", "tree"]
    assert all(name in marin("store", "ls").out for name in held)


def test_verify_names_a_flipped_byte(marin: Marin, root: Path, folder: Path, tmp_path: Path) -> None:
    digest = marin("store", "put", folder).out.strip()
    whole = marin("store", "verify")
    assert (whole.status, whole.data) == (0, b"")
    assert marin("store", "verify", digest).status == 0
    victim = next(blob for blob in blobs(root) if blob.stat().st_size == 6)
    victim.chmod(0o644)
    victim.write_bytes(b"firsT\n")
    by_digest = marin("store", "verify", digest)
    assert by_digest.status == 1
    assert "a.txt" in by_digest.out
    everything = marin("store", "verify", "--json")
    assert everything.status == 1
    assert len(everything.lines) == 1
    got = marin("store", "get", digest, tmp_path / "out")
    assert got.status == 1
    assert not (tmp_path / "out").exists()
    assert marin("store", "scrub", "--json").json["findings"]


def test_scrub_goes_on_where_it_stopped(marin: Marin, root: Path, folder: Path) -> None:
    marin("store", "put", folder)
    first = marin("store", "scrub", "--most", "0.000000001", "--json")
    assert (first.status, first.json["finished"]) == (0, False)
    rest = marin("store", "scrub", "--json").json
    assert rest["finished"]
    assert first.json["checked"] + rest["checked"] == 3


def test_gc_keeps_what_events_name(marin: Marin, root: Path, folder: Path, tmp_path: Path) -> None:
    kept = marin("store", "put", folder).out.strip()
    garbage = marin("store", "put", "-", stdin=b"nobody names this").out.strip()
    body = f'{{"artifact": "{kept}"}}'.encode()
    assert marin("ledger", "append", "--type", "note.added/v1", "--stream", "n", "--body", "-", stdin=body).status == 0
    plan = marin("store", "gc", "--dry-run", "--min-age", "0", "--json").json
    assert plan["dry_run"] and plan["swept"] == [], "what is young stays"
    old = time.time() - 40 * 86_400
    for file in (root / "store").rglob("*"):
        if file.is_file():
            os.utime(file, (old, old))
    plan = marin("store", "gc", "--dry-run", "--json").json
    assert [swept["act"] for swept in plan["swept"]] == ["set aside"]
    assert garbage.removeprefix("sha256:")[2:] in plan["swept"][0]["name"]
    assert marin("store", "verify", garbage).status == 0
    done = marin("store", "gc")
    assert done.status == 0 and "set aside: 17 B" in done.out
    assert marin("store", "get", kept, tmp_path / "out").status == 0
    assert marin("ledger", "fsck").status == 0


def test_one_flipped_bit_names_file_part_and_run(marin: Marin, root: Path, tmp_path: Path) -> None:
    from ledger import PART_SIZE, Draft
    from marin.record.root import open_root

    (tmp_path / "model").mkdir()
    (tmp_path / "model" / "weights").write_bytes(bytes(range(256)) * (PART_SIZE // 256 * 2))
    (tmp_path / "model" / "config").write_bytes(b"{}")
    opened = open_root()
    tree = opened.store().put_tree(tmp_path / "model").digest
    opened.append([Draft("test.exported/v1", "run/2khr7ocq", {"artifact": tree})])
    assert marin("store", "verify", "--all").status == 0
    weights = opened.store().manifest(tree).entry("weights").digest
    path = opened.store().storage.local_path(f"store/blobs/sha256/{weights[7:9]}/{weights[9:]}")
    path.chmod(0o644)
    with path.open("r+b") as stream:
        stream.seek(PART_SIZE + 77)
        stream.write(b"\xff")
    found = marin("store", "verify", "--all")
    assert found.status == 1
    assert "part 1 (bytes 8388608 to 16777215)" in found.out
    assert f"{weights} is needed by run 2khr7ocq (test.exported/v1, event 0, as weights of {tree})" in found.out
    (said,) = marin("store", "verify", "--all", "--json").lines
    assert said["needed_by"] == [
        {"index": 0, "stream": "run/2khr7ocq", "type": "test.exported/v1", "tree": tree, "path": "weights"}
    ]
    assert (
        f"is needed by run 2khr7ocq (test.exported/v1, event 0, as weights of {tree})"
        in marin("store", "verify", tree).out
    )
    path.unlink()
    missing = marin("store", "verify", "--all")
    assert (missing.status, "is not in the store" in missing.out, "run 2khr7ocq" in missing.out) == (1, True, True)
    assert marin("store", "verify", "--all", tree).status == 2


def test_workplaces_that_nobody_came_back_to_are_swept(marin: Marin, root: Path) -> None:
    from ledger import PosixStorage

    names = [f"{step}-{character * 32}" for step, character in (("corpus", "a"), ("train", "b"), ("tokens", "c"))]
    for name in names:
        (root / "work" / name / "out").mkdir(parents=True)
        (root / "work" / name / "out" / "file").write_bytes(b"x" * 10)
        (root / "work" / name / "out").chmod(0o500)
    (root / "work" / "spool" / "job-1").mkdir(parents=True)
    long_ago = time.time() - 9 * 86400
    for path in [*(root / "work").rglob("*"), *(root / "work").iterdir()]:
        if names[2] not in str(path):
            os.utime(path, (long_ago, long_ago))
    # The folder's own change time cannot be set: only the clock of the sweep can be
    from marin.execution.abandoned import sweep_abandoned

    later = time.time() + 8 * 86400
    with PosixStorage(root).lock(f"work/locks/{names[1]}", "a stage at work"):
        planned = sweep_abandoned(root, 7 * 86400, dry_run=True, now=later)
        assert [(one.folder.name, one.size) for one in planned] == [(names[0], 10), (names[2], 10)]
        assert sweep_abandoned(root, 9 * 86400, now=later) == []
        leased = ["sha256:" + "a" * 64]
        spared = sweep_abandoned(root, 7 * 86400, leased=leased, dry_run=True, now=later)
        assert [one.folder.name for one in spared] == [names[2]], "an executor is at work on the first step"
        assert sweep_abandoned(root, 7 * 86400, now=later) == planned
    assert sorted(path.name for path in (root / "work").iterdir()) == ["locks", "spool", names[1]]
    assert marin("store", "gc", "--dry-run", "--json").json["abandoned"] == []


def test_scrub_repairs_from_a_remote_and_is_an_event(marin: Marin, root: Path, folder: Path, tmp_path: Path) -> None:
    marin("store", "put", folder)
    digest = marin("store", "put", folder / "a.txt").out.strip()
    tree = next(line["digest"] for line in marin("store", "ls", "--json").lines if line["kind"] == "tree")
    assert marin("store", "push", tmp_path / "remote", tree).status == 0
    path = next(file for file in blobs(root) if digest.endswith(file.name))
    path.chmod(0o644)
    path.write_bytes(b"broken")
    broken = marin("store", "scrub", "--json")
    assert (broken.status, len(broken.json["findings"]), broken.json["repaired"]) == (1, 1, [])
    mended = marin("store", "scrub", "--remote", tmp_path / "remote")
    assert (mended.status, mended.out.splitlines()[-1].endswith("1 repaired")) == (0, True)
    assert marin("store", "verify", "--all").status == 0
    assert marin("store", "scrub", "--no-event").status == 0
    events = [line for line in marin("log", "--json").lines if line["type"] == "store.scrubbed/v1"]
    assert [(len(event["body"]["findings"]), len(event["body"]["repaired"])) for event in events] == [(1, 0), (1, 1)]
