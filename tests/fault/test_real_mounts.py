"""A disk that is really full, a mount that is really read-only: small file systems in a user namespace of their own.

Where the system forbids user namespaces or mounts in them the tests are skipped and say so;
tests/fault/test_store_faults.py has the same faults injected at every step.
"""

from __future__ import annotations

import shutil
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

SIZE_MIB = 24
PRELUDE = f"""
import os, subprocess, sys
from pathlib import Path
from ledger import *
from ledger import PART_SIZE
from tests.ledger.memory import MemoryStorage
base = Path(sys.argv[1])
disk = base / "disk"
disk.mkdir()
subprocess.run(["mount", "-t", "tmpfs", "-o", "size={SIZE_MIB}m", "tmpfs", disk], check=True)

def refused(work, word):
    try:
        work()
    except LedgerError as error:
        assert word in str(error) and "\\n" not in str(error), str(error)
    else:
        raise AssertionError("nothing was refused")

def whole(store):
    assert [str(finding) for finding in store.verify_all()] == []
    for digest, kind in store.digests():
        assert kind == "blob" or store.verify(digest) == []

source = base / "source"
source.mkdir()
(source / "small").write_bytes(b"small")
(source / "big").write_bytes(os.urandom(PART_SIZE * 2 + 5))
"""


def mounts_work() -> bool:
    if shutil.which("unshare") is None:
        return False
    done = subprocess.run(
        ["unshare", "-Urm", "mount", "-t", "tmpfs", "tmpfs", "/mnt"], capture_output=True, check=False
    )
    return done.returncode == 0


pytestmark = pytest.mark.skipif(not mounts_work(), reason="this system has no mounts in user namespaces")


def in_namespace(folder: Path, program: str) -> None:
    code = PRELUDE + textwrap.dedent(program)
    done = subprocess.run(
        ["unshare", "-Urm", sys.executable, "-c", code, str(folder)],
        capture_output=True,
        text=True,
        check=False,
        timeout=600,
    )
    assert done.returncode == 0, done.stderr


def test_a_full_disk(tmp_path: Path) -> None:
    in_namespace(
        tmp_path,
        """
        store = Store(open_storage(disk / "root"))
        first = store.put_tree(source)
        (source / "more").write_bytes(os.urandom(PART_SIZE + 9))
        for _ in range(2):
            refused(lambda: store.put_tree(source), "disk is full")
            refused(lambda: store.put_file(source / "more"), "disk is full")
            whole(store)
        assert store.read(store.manifest(first.digest).entry("small").digest) == b"small"
        refused(lambda: store.checkout(first.digest, disk / "out", how="copy"), "disk is full")
        assert not (disk / "out").exists()
        remote = Store(MemoryStorage())
        more = remote.put_file(source / "more").digest
        refused(lambda: copy_artifacts(remote, store, [more]), "disk is full")
        assert not store.has(more)
        whole(store)
        subprocess.run(["mount", "-o", "remount,size=64m", disk], check=True)
        second = store.put_tree(source)
        assert store.verify(second.digest) == []
        copy_artifacts(remote, store, [more])
        with store.storage.lock("store/gc.lock", "test"):
            pass
        left = [path for path in (disk / "root" / "store").rglob(".tmp-*")]
        assert left == [], left
        whole(store)
    """,
    )


def test_a_read_only_mount(tmp_path: Path) -> None:
    in_namespace(
        tmp_path,
        """
        root = disk / "root"
        tree = Store(open_storage(root)).put_tree(source).digest
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        for store in (Store(open_storage(root)), Store(open_storage(root, readonly=True))):
            whole(store)
            assert store.verify(tree) == []
            big = store.manifest(tree).entry("big")
            assert store.open_range(big.digest, 5, 5, parts=big.parts) == (source / "big").read_bytes()[5:10]
            for how in ("auto", "copy"):
                store.checkout(tree, base / "out", how=how, replace=True)
            assert (base / "out" / "big").read_bytes() == (source / "big").read_bytes()
            refused(lambda: store.put_bytes(b"new"), "only")
            refused(lambda: store.put_tree(source), "only")
            collect_garbage(store, [], dry_run=True)
            refused(lambda: collect_garbage(store, []), "only")
            assert scrub_store(store, restart=True).findings == () if not store.storage.writable else True
            back = Store(MemoryStorage())
            copy_artifacts(store, back, [tree])
            assert back.verify(tree) == []
    """,
    )


def test_the_commands_on_a_read_only_mount(tmp_path: Path) -> None:
    in_namespace(
        tmp_path,
        """
        os.environ |= {"XDG_CONFIG_HOME": str(base / "config")}
        from marin.cli.main import run
        root = disk / ".marin"
        assert run(["--root", str(root), "init", "--quiet"]) == 0
        assert run(["--root", str(root), "store", "put", str(source)]) == 0
        subprocess.run(["mount", "-o", "remount,ro", disk], check=True)
        tree = next(digest for digest, kind in Store(open_storage(root)).digests() if kind == "tree")
        for command in (["verify", "--all"], ["ls"], ["get", tree, str(base / "out")], ["gc", "--dry-run"],
                        ["scrub", "--no-event"]):
            assert run(["--root", str(root), "store", *command]) == 0, command
        for command in (["put", str(source / "small")], ["gc"], ["pin", tree], ["scrub"]):
            status = run(["--root", str(root), "store", *command])
            assert status in (0, 3), command
            assert status == 3 or command[0] == "put", "what is there already need not be written"
    """,
    )
