"""The fault tables of the store: a kill, a full disk, a failing write at every step, and several writers at once.

After each of them the store is whole: what is visible under a digest has that digest, a tree that is there has all of
its files, one clear error was given, and putting again succeeds. On disk the steps are the interpreter's own audit
events (every open for writing, link, rename, chmod, remove and folder), so the table follows the code as it changes.
"""

import hashlib
import os
import resource
import signal
import sys
import traceback
from collections.abc import Callable
from pathlib import Path

import pytest
from drawn import Tenth

from ledger import PART_SIZE, LedgerError, PosixStorage, Refused, StorageFailed, Store, collect_garbage, copy_artifacts
from ledger.store.layout import PACKFILES
from ledger.store.trees import checkout, intake
from ledger.store.workers import manyfiles
from tests.fault.faulty import Fault, FaultyStorage, ProcessKilled
from tests.ledger.memory import MemoryStorage

BIG = hashlib.shake_128(b"fault").digest(PART_SIZE + 4321)
FILES = {"a": b"alpha", "b/c": b"beta", "b/d": b"alpha", "big": BIG}
MUTATING = {
    "os.link",
    "os.rename",
    "os.remove",
    "os.mkdir",
    "os.rmdir",
    "os.chmod",
    "os.utime",
    "os.truncate",
    "sqlite3.connect",
    "shutil.rmtree",
}
FREEING = {"os.remove", "os.rmdir", "shutil.rmtree", "os.chmod", "os.utime", "os.truncate"}
"""What a full disk lets happen."""
# A child here runs the store alone, and an alarm ends it if a lock of another thread was copied in its locked state.
pytestmark = pytest.mark.filterwarnings("ignore:.*multi-threaded.*:DeprecationWarning")
KILLED, DONE, ERROR, WRONG = 9, 0, 3, 4


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    folder = tmp_path / "folder"
    for name, data in FILES.items():
        (folder / name).parent.mkdir(parents=True, exist_ok=True)
        (folder / name).write_bytes(data)
    return folder


def check_whole(store: Store) -> None:
    """What is there is right, and what a tree needs is there."""
    assert [str(finding) for finding in store.verify_all()] == []
    for digest, kind in store.digests():
        if kind == "tree":
            assert store.verify(digest) == []


def watch(limit: int, strike: Callable[[], None], *, below: Path | None = None) -> list[int]:
    """Call `strike` at every event from the `limit`-th on that changes the disk (below a folder). What it returns holds
    how many there were."""
    count = [0]
    events = MUTATING - FREEING if strike is disk_full else MUTATING
    opens = os.O_CREAT if strike is disk_full else os.O_WRONLY | os.O_RDWR | os.O_CREAT  # what is there can be opened

    def hook(event: str, arguments: tuple[object, ...]) -> None:
        if event == "open":
            path, _, flags = arguments
            changes = isinstance(flags, int) and flags & opens
        else:
            path = arguments[0] if arguments else ""
            changes = event in events
        if changes and (below is None or str(path).startswith(str(below))):
            count[0] += 1
            if count[0] > limit:
                strike()

    sys.addaudithook(hook)
    return count


def steps_of(work: Callable[[], object], strike: Callable[[], None], told: Path) -> int:
    """How many steps there are to strike."""

    def counted() -> None:
        count = watch(10**9, strike)
        work()
        told.write_text(str(count[0]))

    assert in_child(counted) == DONE
    return int(told.read_text())


def in_child(work: Callable[[], None]) -> int:
    """Run in a child process, which ends by itself; its exit status. Hooks and limits die with it."""
    child = os.fork()
    if child == 0:
        status = WRONG
        try:
            signal.alarm(60)
            work()
            status = DONE
        except LedgerError as error:
            status = ERROR if "\n" not in str(error) else WRONG
        except BaseException:
            traceback.print_exc()
        finally:
            os._exit(status)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def killed() -> None:
    os._exit(KILLED)


def disk_full() -> None:
    raise OSError(28, os.strerror(28))


def read_only_mount() -> None:
    raise OSError(30, os.strerror(30))


def jobs(folder: Path) -> dict[str, Callable[[Store], object]]:
    out = folder.parent / "out"
    return {
        "put bytes": lambda store: store.put_bytes(b"some bytes"),
        "put file": lambda store: store.put_file(folder / "big"),
        "put linked": lambda store: store.put_file(folder / "big", link=True),
        "put tree": lambda store: store.put_tree(folder),
        "checkout": lambda store: store.checkout(store.put_tree(folder).digest, out),
        "pull": lambda store: _pull(folder, store),
        "put packed": lambda store: _with_packfiles(lambda: store.put_tree(folder)),
        "check packed out": lambda store: _with_packfiles(lambda: store.checkout(store.put_tree(folder).digest, out)),
        "collect packed": lambda store: _with_packfiles(lambda: _collect(store, folder)),
    }


def _with_packfiles(work: Callable[[], object]) -> None:
    """As if a few small files were many: they go into packfiles, by processes."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(manyfiles, "WORTH", 2)
        patch.setattr(checkout, "_MANY", 2)
        for module in (intake, checkout):
            patch.setattr(module, "threads", lambda: 2)
        work()


def _collect(store: Store, folder: Path) -> None:
    """A packfile of which one blob is kept goes to quarantine, and comes back for anyone who asks for another."""
    tree = store.put_tree(folder).digest
    root = store.storage.local_path("store")
    for path in root.rglob("*") if root else ():
        if path.is_file() and not path.name.startswith(".tmp-"):
            os.utime(path, (1, 1))
    collect_garbage(store, [store.put_bytes(b"beta").digest, store.manifest(tree).entry("big").digest], min_age=0)
    assert store.verify(store.put_tree(folder).digest) == []


def _pull(folder: Path, store: Store) -> None:
    remote = Store(MemoryStorage())
    copy_artifacts(remote, store, [remote.put_tree(folder).digest], workers=1)


@pytest.mark.parametrize("strike", [killed, disk_full], ids=["kill", "full disk"])
@pytest.mark.parametrize(
    "job",
    [
        "put bytes",
        "put file",
        "put linked",
        "put tree",
        "checkout",
        "pull",
        "put packed",
        "check packed out",
        "collect packed",
    ],
)
def test_every_step_on_disk(folder: Path, tmp_path: Path, tenth: Tenth, job: str, strike: Callable[[], None]) -> None:
    root = tmp_path / "root"
    work = jobs(folder)[job]
    total = steps_of(lambda: work(Store(PosixStorage(root))), strike, tmp_path / "total")
    assert total > 1
    for count, step in enumerate(tenth(range(total))):
        new = count % 3 == 0  # start over from nothing now and then, so that first steps are met on a new disk too
        if new:
            _clear(root, tmp_path / "out")
        status = in_child(lambda: (watch(step, strike), work(Store(PosixStorage(root)))))  # noqa: B023
        store = Store(PosixStorage(root))
        check_whole(store)
        assert not (tmp_path / "out").exists() or store.verify(store.put_tree(tmp_path / "out").digest) == []
        # On a disk that is not new there is less to do; and threads do not always come to the same number of steps.
        through = status == DONE and (not new or step > 0.7 * total)
        assert through or status == (KILLED if strike is killed else ERROR), (step, total)
    work(Store(PosixStorage(root)))
    check_whole(Store(PosixStorage(root)))
    with PosixStorage(root).lock("store/gc.lock", "test"):
        pass
    left = list((root / "store").rglob(".tmp-*"))
    assert left == [], "taking the lock clears what unfinished writes left"
    assert any(PosixStorage(root).list(PACKFILES)) == ("pack" in job)
    for name, data in FILES.items():
        assert (folder / name).read_bytes() == data, "the source is never touched"


def _clear(*folders: Path) -> None:
    import shutil

    for folder in folders:
        shutil.rmtree(folder, ignore_errors=True)


@pytest.mark.parametrize("job", ["put file", "pull", "checkout"])
def test_a_write_that_stops_in_the_middle(folder: Path, tmp_path: Path, job: str) -> None:
    """The kernel refuses every byte beyond 1 MiB of a file, as a full disk does in the middle of a write."""

    def limited() -> None:
        signal.signal(signal.SIGXFSZ, signal.SIG_IGN)
        resource.setrlimit(resource.RLIMIT_FSIZE, (1 << 20, resource.RLIM_INFINITY))
        jobs(folder)[job](Store(PosixStorage(tmp_path / "root")))

    assert in_child(limited) == ERROR
    store = Store(PosixStorage(tmp_path / "root"))
    check_whole(store)
    assert not any(kind == "tree" for _, kind in store.digests())
    assert not (tmp_path / "out").exists()
    jobs(folder)[job](store)
    check_whole(store)


def test_a_mount_that_is_read_only_can_be_read(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"
    tree = Store(PosixStorage(root)).put_tree(folder).digest

    def reads() -> None:
        watch(0, read_only_mount, below=root)
        for store in (Store(PosixStorage(root)), Store(PosixStorage(root, readonly=True))):
            assert store.verify(tree) == []
            assert list(store.verify_all()) == []
            store.checkout(tree, tmp_path / "out", how="copy", replace=True)
            assert store.open_range(store.manifest(tree).entry("big").digest, 5, 5) == BIG[5:10]
            for put in (lambda s=store: s.put_bytes(b"new"), lambda s=store: s.put_file(folder / "big")):
                with pytest.raises((StorageFailed, Refused)) as caught:
                    put()
                assert "read-only" in str(caught.value) or "reading only" in str(caught.value)

    assert in_child(reads) == DONE


def test_several_writers_of_the_same_and_a_collector(folder: Path, tmp_path: Path) -> None:
    root = tmp_path / "root"

    def write() -> None:
        for turn in range(3):
            store = Store(PosixStorage(root))
            tree = store.put_tree(folder)
            assert store.verify(tree.digest) == []
            store.checkout(tree.digest, tmp_path / f"out-{os.getpid()}-{turn}")

    def collect() -> None:
        for _ in range(10):
            collect_garbage(Store(PosixStorage(root)), [], min_age=0)

    children = []
    for work in (write, write, write, collect):
        child = os.fork()
        if child == 0:
            try:
                signal.alarm(60)
                work()
                os._exit(DONE)
            except BaseException:
                traceback.print_exc()
                os._exit(WRONG)
        children.append(child)
    assert [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children] == [DONE] * 4
    store = Store(PosixStorage(root))
    check_whole(store)
    assert len(list(store.digests())) == 4
    assert list((root / "store").rglob(".tmp-*")) == []


@pytest.mark.table
@pytest.mark.parametrize("fault", list(Fault))
def test_every_write_to_a_storage_that_fails(folder: Path, fault: Fault) -> None:
    """The same table over the port: each write fails, fails but persists, or ends the process, before or after."""
    for write in range(100):
        storage = FaultyStorage()
        storage.fail_at(write, fault)
        try:
            digest = Store(storage).put_tree(folder).digest
        except (StorageFailed, ProcessKilled) as error:
            assert "\n" not in str(error)
            check_whole(Store(storage))
            storage.forget_faults()
            digest = Store(storage).put_tree(folder).digest
        check_whole(Store(storage))
        assert Store(storage).verify(digest) == []
        if storage.writes <= write:
            assert write > 3
            return
    raise AssertionError("the put never ended")
