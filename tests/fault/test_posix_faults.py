"""The posix driver by system call: killed before each one, each failing once, and power cut at each.

A process is forked, counts the calls by which the driver changes the disk, and at the n-th one kills itself or lets it
fail. What it had acknowledged it wrote to a pipe. The parent then opens the log as anybody would.

For the power cut the calls are recorded, and a disk is made from them that has kept everything synced and of the rest
as little, as much, or as odd a part as a file system may keep: unsynced data dropped or torn in the middle,
unsynced names lost or kept in any combination.
"""

import errno
import os
import random
import shutil
import signal
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Draft, Log, LogReader, PosixStorage, Signer, StorageFailed, check
from ledger.storage import posix

SIGNER = Signer("log.example/test", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))
KEYS = [SIGNER.verifier]
CHANGES = ("open", "pwrite", "fsync", "fdatasync", "link", "rename", "unlink", "mkdir")
START = 254
BATCHES = [1, 2, 1]


def batches():
    start = START
    for size in BATCHES:
        yield [Draft("t/v1", "s", {"n": n}, id=f"event-{n}") for n in range(start, start + size)]
        start += size


@pytest.fixture(scope="module")
def begun(tmp_path_factory):
    """A log that is about to complete its first tile."""
    root = tmp_path_factory.mktemp("begun") / "root"
    storage = PosixStorage(root)
    Log.create(storage, SIGNER)
    for size in (100, START):
        with Log.open(storage, SIGNER) as log:
            log.append([Draft("t/v1", "s", {"n": n}, id=f"event-{n}") for n in range(size)])
    return root


class Counted:
    """Stands for `os` inside the driver, and does something before the n-th change of the disk."""

    def __init__(self, at, act) -> None:
        self.count = 0
        self._at, self._act = at, act

    def __getattr__(self, name: str) -> object:
        real = getattr(os, name)
        if name not in CHANGES:
            return real

        def call(*arguments: object, **keywords: object):
            if name == "open" and not arguments[1] & os.O_CREAT:
                return real(*arguments, **keywords)
            number, self.count = self.count, self.count + 1
            if number == self._at:
                self._act()
            # A killed process loses nothing that it wrote, so the waiting for the disk can be left out.
            return None if name in ("fsync", "fdatasync") else real(*arguments, **keywords)

        return call


def work(storage, acknowledge):
    with Log.open(storage, SIGNER, publish_seconds=0.0) as log:
        for batch in batches():
            acknowledge(log.append(batch)[-1].tree_size)


def in_child(root, shim):
    """Run the work in a forked process; the largest tree size that it acknowledged."""
    reading, writing = os.pipe()
    child = os.fork()
    if child == 0:
        try:
            os.close(reading)
            posix.os = shim
            posix._SYNC_THREADS = 1  # so that the count of calls is the same each time
            work(PosixStorage(root), lambda size: os.write(writing, size.to_bytes(8)))
        finally:
            os._exit(0)
    os.close(writing)
    os.waitpid(child, 0)
    with os.fdopen(reading, "rb") as stream:
        sizes = stream.read()
    return max([START, *(int.from_bytes(sizes[at : at + 8]) for at in range(0, len(sizes), 8))])


@contextmanager
def driver_on(shim):
    """The driver works on `shim` instead of `os`, with one thread, so that its calls come in the same order each
    time."""
    threads, posix._SYNC_THREADS, posix.os = posix._SYNC_THREADS, 1, shim
    try:
        yield
    finally:
        posix._SYNC_THREADS, posix.os = threads, os


def assert_recovers(root, acknowledged):
    with driver_on(Counted(-1, die)):
        recover(root, acknowledged)


def recover(root, acknowledged):
    storage = PosixStorage(root)
    assert LogReader(storage, KEYS).checkpoint().size >= acknowledged
    with Log.open(storage, SIGNER) as log:
        for batch in batches():
            log.append(batch)
    total = START + sum(BATCHES)
    assert [event.body["n"] for _, event in LogReader(storage, KEYS).events()] == list(range(total))
    assert check(storage, KEYS) == []
    assert not list(root.rglob(".tmp-*"))


def copy_of(root, tmp_path):
    target = tmp_path / "root"
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(root, target)
    return target


def calls_of_a_clean_run(begun, tmp_path):
    root = copy_of(begun, tmp_path)
    counted = Counted(-1, die)
    with driver_on(counted):
        work(PosixStorage(root), lambda size: None)
    return counted.count


def die():
    os.kill(os.getpid(), signal.SIGKILL)


def test_killed_at_every_call(begun, tmp_path, tenth):
    calls = calls_of_a_clean_run(begun, tmp_path)
    assert calls > 40
    # In a process of its own: forking is only safe where nothing else of the test run has started threads.
    run = subprocess.run(
        [sys.executable, __file__, begun, tmp_path, *map(str, tenth(range(calls)))],
        env=os.environ | {"PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
    )
    assert (run.returncode, run.stderr) == (0, "")


def kill_at_each(calls, begun, tmp_path):
    for at in calls:
        root = copy_of(begun, tmp_path)
        acknowledged = in_child(root, Counted(at, die))
        assert check(PosixStorage(root), KEYS) == []  # before anybody has opened it again
        assert_recovers(root, acknowledged)


def test_every_call_fails_once(begun, tmp_path, tenth):
    failures, calls = 0, tenth(range(calls_of_a_clean_run(begun, tmp_path)))
    for at in calls:
        root = copy_of(begun, tmp_path)
        storage, acknowledged = PosixStorage(root), START
        number = (errno.ENOSPC, errno.EIO, errno.EROFS)[at % 3]

        def fail(number=number):
            raise OSError(number, os.strerror(number))

        try:
            with driver_on(Counted(at, fail)), Log.open(storage, SIGNER, publish_seconds=0.0) as log:
                for batch in batches():
                    acknowledged = log.append(batch)[-1].tree_size
        except StorageFailed as error:
            failures += 1
            assert "\n" not in str(error)
            assert ("the disk is full" in str(error)) == (number == errno.ENOSPC)
        assert_recovers(root, acknowledged)
    assert failures > 8 or len(calls) < 40, "some calls may fail without harm, most of them may not"


# Power cuts


class Disk:
    """What a disk may hold after a power cut: folders and files, each with its synced state and what came after."""

    def __init__(self, root) -> None:
        self.files = {}  # inode -> [synced bytes, [(offset, bytes) not synced]]
        self.folders = {}  # folder -> [synced {name: inode}, [(name, inode or None) not synced]]
        self.inodes = {}  # path -> inode, as the living system sees it
        self.next = 0
        for folder, _, names in os.walk(root):
            entries = {}
            for name in names:
                path = os.path.join(folder, name)
                entries[name] = self.inodes[path] = self.new(Path(path).read_bytes())
            self.folders[folder] = [entries, []]

    def new(self, data=b""):
        self.next += 1
        self.files[self.next] = [data, []]
        return self.next

    def name(self, path, inode):
        folder, name = os.path.split(path)
        self.folders.setdefault(folder, [{}, []])[1].append((name, inode))
        if inode is None:
            self.inodes.pop(path, None)
        else:
            self.inodes[path] = inode

    def sync_file(self, inode):
        data, writes = self.files[inode]
        self.files[inode] = [applied(data, writes), []]

    def sync_folder(self, folder):
        entries, changes = self.folders.setdefault(folder, [{}, []])
        for name, inode in changes:
            entries[name] = inode
        self.folders[folder] = [{name: inode for name, inode in entries.items() if inode is not None}, []]

    def write_to(self, root, keep, chance):
        """A folder as found after the cut; `keep` decides over each change that was not synced."""
        shutil.rmtree(root, ignore_errors=True)
        for folder, (synced, changes) in self.folders.items():
            entries = dict(synced)
            entries.update((name, inode) for name, inode in changes if keep())
            os.makedirs(folder, exist_ok=True)
            for name, inode in entries.items():
                if inode is not None:
                    data, writes = self.files[inode]
                    kept = [(at, torn(part, chance) if chance else part) for at, part in writes if keep()]
                    Path(folder, name).write_bytes(applied(data, kept))


def applied(data, writes):
    image = bytearray(data)
    for at, part in writes:
        image.extend(bytes(max(0, at + len(part) - len(image))))
        image[at : at + len(part)] = part
    return bytes(image)


def torn(part, chance):
    """Some sectors of a write arrive, others do not."""
    sectors = [part[at : at + 512] for at in range(0, len(part), 512)]
    return b"".join(sector if chance.random() < 0.5 else bytes(len(sector)) for sector in sectors)


class Recorder:
    """Stands for `os` inside the driver: does the call, and keeps the disk's model in step."""

    def __init__(self, disk, moment) -> None:
        self.disk, self.moment, self.calls, self.paths = disk, moment, 0, {}

    def __getattr__(self, name: str) -> object:
        return getattr(os, name)

    def step(self):
        if self.calls == self.moment:
            raise PowerCut
        self.calls += 1

    def open(self, path, flags, mode=0o777):
        path = os.fspath(path)
        fresh = flags & os.O_CREAT and not os.path.lexists(path)
        if fresh:
            self.step()
        descriptor = os.open(path, flags, mode)
        if fresh:
            self.disk.name(path, self.disk.new())
        self.paths[descriptor] = path if os.path.isdir(path) else self.disk.inodes.get(path)
        return descriptor

    def pwrite(self, descriptor, data, offset):
        self.step()
        self.disk.files[self.paths[descriptor]][1].append((offset, bytes(data)))
        return os.pwrite(descriptor, data, offset)

    def fsync(self, descriptor):
        self.step()
        target = self.paths[descriptor]
        self.disk.sync_folder(target) if isinstance(target, str) else self.disk.sync_file(target)

    fdatasync = fsync

    def link(self, source, target):
        self.step()
        os.link(source, target)
        self.disk.name(os.fspath(target), self.disk.inodes[os.fspath(source)])

    def rename(self, source, target):
        self.step()
        os.rename(source, target)
        inode = self.disk.inodes[os.fspath(source)]
        self.disk.name(os.fspath(target), inode)
        self.disk.name(os.fspath(source), None)

    def unlink(self, path):
        os.unlink(path)
        self.step()
        self.disk.name(os.fspath(path), None)


class PowerCut(BaseException):
    """Everything stops."""


def test_power_cut_at_every_call(begun, tmp_path, tenth):
    chance = random.Random(7)
    outcomes = [
        (lambda: True, None),  # everything survives
        (lambda: chance.random() < 0.5, None),  # any part
        (lambda: chance.random() < 0.7, chance),  # any part, and torn
    ]
    for moment in [*tenth(range(400)), 400]:
        finished = False
        root = copy_of(begun, tmp_path)
        disk, acknowledged = Disk(root), [START]
        with suppress(PowerCut), driver_on(Recorder(disk, moment)):
            work(PosixStorage(root), acknowledged.append)
            finished = True
        odd = [outcomes[moment // 2 % len(outcomes)]] if moment % 2 else []
        for keep, tear in ((lambda: False, None), *odd):
            disk.write_to(root, keep, tear)
            shutil.rmtree(root / "projections", ignore_errors=True)  # not written by this driver
            assert_recovers(root, max(acknowledged))
        if finished:
            break
    assert finished
    assert moment > 40


if __name__ == "__main__":
    kill_at_each([int(call) for call in sys.argv[3:]], Path(sys.argv[1]), Path(sys.argv[2]))
