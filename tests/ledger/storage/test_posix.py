"""What is particular to the posix driver: leftovers, missing guarantees, read-only roots, the words for a failing
disk."""

import errno
import fcntl
import os
import stat
import subprocess
import sys

import pytest

from ledger import Locked, Log, NotFound, PosixStorage, Refused, StorageFailed
from ledger.storage import posix


@pytest.fixture
def root(tmp_path):
    return tmp_path / "root"


@pytest.fixture
def storage(root):
    made = PosixStorage(root)
    made.create("log/a", b"1")
    return made


def test_leftovers_of_the_dead_are_cleared_and_those_of_the_living_are_not(storage, root):
    dead, living = root / "log" / ".tmp-dead", root / "log" / ".tmp-living"
    dead.write_bytes(b"half")
    living.write_bytes(b"half")
    with open(living, "rb") as held:
        fcntl.flock(held, fcntl.LOCK_EX)
        with storage.lock("log/.lock", "test"):
            assert not dead.exists()
            assert living.exists()
    with storage.lock("log/.lock", "test"):
        assert not living.exists()
    assert list(storage.list("log/")) == ["log/.lock", "log/a"]


def test_unfinished_writes_are_never_listed(storage, root):
    (root / "log" / ".tmp-half").write_bytes(b"half")
    assert list(storage.list()) == ["log/a"]


class Failing:
    """Stands for `os` inside the driver; one call fails."""

    def __init__(self, name: str, number: int) -> None:
        self.name, self.number = name, number

    def __getattr__(self, name: str) -> object:
        if name != self.name:
            return getattr(os, name)

        def fail(*arguments: object, **keywords: object):
            raise OSError(self.number, os.strerror(self.number))

        return fail


@pytest.mark.parametrize(
    ("call", "number", "words"),
    [
        ("link", errno.EPERM, "no hard links"),
        ("link", errno.EOPNOTSUPP, "no hard links"),
        ("pwrite", errno.ENOSPC, "the disk is full"),
        ("pwrite", errno.EDQUOT, "the quota is used up"),
        ("fsync", errno.EIO, "check the disk"),
        ("open", errno.EACCES, "give this user the rights"),
        ("open", errno.EROFS, "mounted read-only"),
    ],
)
def test_a_failing_disk_has_words_and_leaves_nothing_behind(storage, root, monkeypatch, call, number, words):
    monkeypatch.setattr(posix, "os", Failing(call, number))
    with pytest.raises(StorageFailed, match=words) as caught:
        storage.create("log/b", b"2")
    assert caught.value.where.startswith(str(root)), "of several disks the one that is meant"
    monkeypatch.undo()
    assert list(storage.list()) == ["log/a"]
    assert not list(root.rglob(".tmp-*"))
    storage.create("log/b", b"2")


def test_a_read_only_root_refuses_every_write(storage, root, tmp_path):
    readonly = PosixStorage(root, readonly=True)
    assert readonly.read("log/a") == b"1"
    assert not readonly.writable
    for act in (
        lambda: readonly.create("log/b", b""),
        lambda: readonly.ensure("log/b", b""),
        lambda: readonly.ensure_many([("log/b", b""), ("log/c", b"")]),
        lambda: readonly.replace("log/a", b""),
        lambda: readonly.write_at("log/a", 0, b""),
        lambda: readonly.adopt("log/b", root / "log" / "a"),
        lambda: readonly.adopt("log/b", root / "log" / "a", link=True),
        lambda: readonly.remove("log/a"),
        lambda: readonly.lock("log/.lock", "test").__enter__(),
    ):
        with pytest.raises(Refused):
            act()
    assert list(readonly.list()) == ["log/a"]


def test_a_missing_root_is_empty_and_made_on_the_first_write(tmp_path):
    storage = PosixStorage(tmp_path / "deep" / "root")
    assert list(storage.list()) == []
    with pytest.raises(NotFound):
        storage.read("a")
    assert not (tmp_path / "deep").exists()
    storage.create("a", b"")
    assert storage.exists("a")


HOLDER = """
import sys
from pathlib import Path
from ledger import PosixStorage
with PosixStorage(Path(sys.argv[1])).lock("log/.lock", "a command that is killed"):
    print("held", flush=True)
    sys.stdin.read()
"""


def test_a_lock_dies_with_its_process(storage, root):
    holder = subprocess.Popen(
        [sys.executable, "-c", HOLDER, root],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
    )
    with holder:
        assert holder.stdout.readline() == b"held\n"
        names = f"process {holder.pid} .*a command that is killed"
        with pytest.raises(Locked, match=names), storage.lock("log/.lock", "test"):
            pass
        holder.kill()
    with storage.lock("log/.lock", "test"):
        assert storage.exists("log/.lock")


def test_adopting_by_link_shares_the_file(storage, root, tmp_path):
    source = tmp_path / "source"
    source.write_bytes(b"content")
    storage.adopt("store/linked", source, link=True)
    storage.adopt("store/copied", source)
    assert os.path.samefile(source, root / "store" / "linked")
    assert not os.path.samefile(source, root / "store" / "copied")
    assert storage.read("store/linked") == storage.read("store/copied") == b"content"


def test_writes_survive_a_folder_that_is_a_link_to_elsewhere(root, tmp_path):
    """`store/` on another disk: temporary files go beside their target, not beside the root."""
    (tmp_path / "other").mkdir()
    root.mkdir()
    (root / "store").symlink_to(tmp_path / "other")
    storage = PosixStorage(root)
    storage.create("store/blobs/x", b"1")
    assert (tmp_path / "other" / "blobs" / "x").read_bytes() == b"1"
    assert list(storage.list("store/")) == ["store/blobs/x"]


@pytest.mark.parametrize(
    ("call", "number", "lacking"),
    [
        ("link", errno.EPERM, "hard links"),
        ("link", errno.EOPNOTSUPP, "hard links"),
        ("flock", errno.ENOLCK, "locks"),
        ("flock", errno.ENOSYS, "locks"),
        ("flock", None, "locks that exclude"),
        ("fsync", errno.EINVAL, "sync of folders"),
    ],
)
def test_a_file_system_without_what_is_needed_is_named(tmp_path, signer, monkeypatch, call, number, lacking):
    def refuse(*arguments: object, **_: object):
        if number is None:
            return  # says yes to everybody
        if call == "fsync" and not stat.S_ISDIR(os.fstat(arguments[0]).st_mode):
            return
        raise OSError(number, os.strerror(number))

    monkeypatch.setattr(posix.fcntl if call == "flock" else posix.os, call, refuse)
    with pytest.raises(StorageFailed) as caught:
        Log.create(PosixStorage(tmp_path / "root"), signer)
    assert f"the file system has no {lacking}" in str(caught.value)
    assert "ext4" in caught.value.cure
    assert caught.value.expected
    assert caught.value.found
