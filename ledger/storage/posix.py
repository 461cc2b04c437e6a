"""The local file system as storage: temporary file, fsync, link or rename, fsync of the folder.

Three ways to finish a write, after the temporary file is complete and synced: hard link (exclusive: fails
where the name is taken), link with comparison (idempotent), rename (overwrite). The name therefore never
shows unfinished bytes, and the folder is synced before the call returns. A temporary file lies in the topmost
folder of its name (``log/``, ``store/``), which may be a link to another disk; its writer holds a flock on it, so
that anyone who clears leftovers of killed processes cannot take a living one.

Needs hard links and flock, as ext4, xfs, btrfs, zfs, apfs and NFSv4 have them; where links are missing the
message says so. No retries: an ``OSError`` becomes ``StorageFailed``.
"""

from __future__ import annotations

import errno
import fcntl
import json
import os
import shutil
import stat
import time
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import BinaryIO

from ledger.errors import AlreadyExists, Conflict, Locked, NotFound, Refused, StorageFailed
from ledger.format.budgets import BUDGETS, exceeded
from ledger.storage import group
from ledger.storage.failure import storage_failed
from ledger.storage.plain import DEEPEST, FLAGS, PlainFiles, open_plain, too_deep
from ledger.storage.port import TEMPORARY, Detail, Storage, check_name, check_prefix

_CHUNK = 1 << 20
_SYNC_THREADS = 8
_GROUP = 64  # from here on one sync of the whole file system is cheaper than one for each file
_LOCK_POLL_SECONDS = 0.02
_NO_LINKS = {errno.EPERM, errno.EOPNOTSUPP, errno.ENOSYS}
_NO_LOCKS = {errno.ENOLCK, errno.EOPNOTSUPP, errno.ENOSYS, errno.EINVAL}
_NO_FOLDER_SYNC = {errno.EINVAL, errno.EOPNOTSUPP, errno.ENOSYS, errno.EBADF}


class PosixStorage:
    """A folder. Files are created with the umask's mode; the mode is never evidence."""

    def __init__(self, root: Path, *, readonly: bool = False) -> None:
        self._root = Path(os.path.abspath(root))
        self._readonly = readonly
        self._plain = PlainFiles(self._root)
        # Journals that the holder of a lock writes to stay open as long as it has the lock.
        self._locks = 0
        self._journals: dict[str, tuple[int, int, int]] = {}  # descriptor, device, inode

    @property
    def writable(self) -> bool:
        return not self._readonly

    def guard(self, names: Sequence[str]) -> Storage:
        return self

    def describe(self) -> str:
        return str(self._root)

    def local_path(self, name: str) -> Path | None:
        return self._path(name)

    # Reading

    def read(self, name: str) -> bytes:
        with self._storage_errors("read", name), self._opened(name) as stream:
            size, most = os.fstat(stream.fileno()).st_size, BUDGETS.of_file(name)
            if size > most:
                raise exceeded("a file is too large to be read", name, f"{most} bytes", size)
            return stream.read()

    def read_range(self, name: str, start: int, length: int) -> bytes:
        with self._storage_errors("read", name), self._opened(name) as stream:
            stream.seek(start)
            return stream.read(length)

    def open(self, name: str) -> BinaryIO:
        with self._storage_errors("open", name):
            return self._opened(name)

    def size(self, name: str) -> int:
        with self._storage_errors("size", name):
            status = self._plain.look(check_name(name))
            if status is None:
                raise FileNotFoundError(errno.ENOENT, os.strerror(errno.ENOENT), name)
            return status.st_size

    def exists(self, name: str) -> bool:
        with self._storage_errors("look for", name):
            try:
                return self._plain.look(check_name(name)) is not None
            except IsADirectoryError:
                return False

    def list(self, prefix: str = "") -> Iterator[str]:
        folder, _, _ = check_prefix(prefix).rpartition("/")
        with self._storage_errors("list", prefix):
            yield from _walk(self._root / folder, f"{folder}/" if folder else "", prefix)

    def details(self, prefix: str = "") -> Iterator[Detail]:
        for name in self.list(prefix):
            with suppress(NotFound):  # gone since it was listed
                with self._storage_errors("look at", name):
                    status = os.lstat(self._path(name))
                if stat.S_ISREG(status.st_mode):
                    yield Detail(name, status.st_size, status.st_mtime)

    # Writing

    def create(self, name: str, data: bytes) -> None:
        with self._storage_errors("create", name), self._temporary(name, data) as temporary:
            _link(temporary, self._path(name))
            _sync_folder(self._path(name).parent)

    def ensure(self, name: str, data: bytes) -> None:
        with self._storage_errors("write", name):
            path = self._path(name)
            if not self.exists(name):  # saves writing a temporary file when it is there; the link decides
                with suppress(FileExistsError), self._temporary(name, data) as temporary:
                    _link(temporary, path)
                    _sync_folder(path.parent)
                    return
            found = self.read(name)
            if found != data:
                raise _differs(name, len(data), len(found))
            _sync_file(path)
            _sync_folder(path.parent)

    def ensure_many(self, items: Iterable[tuple[str, bytes]]) -> None:
        pending = list(items)
        if len(pending) == 1:
            self.ensure(*pending[0])
        elif len(pending) >= _GROUP and group.available():
            self._check_writable(pending[0][0])
            with self._storage_errors("write", pending[0][0]):
                folder = self._path(pending[0][0].split("/")[0])
                base = f"{self._root}/"
                differing = group.write_group(folder, [(base + check_name(name), data) for name, data in pending])
            for path in differing:
                name = path.removeprefix(base)
                raise _differs(name, len(dict(pending)[name]), self.size(name))
        elif pending:
            # Concurrent fsyncs share commits of the file system's journal, so that n files cost far less than n syncs.
            with ThreadPoolExecutor(_SYNC_THREADS) as pool:
                for _ in pool.map(lambda item: self.ensure(*item), pending):
                    pass

    def replace(self, name: str, data: bytes) -> None:
        with self._storage_errors("replace", name), self._temporary(name, data) as temporary:
            path = self._path(name)
            os.rename(temporary, path)
            _sync_folder(path.parent)

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        self._check_writable(name)
        with self._storage_errors("write", name):
            path = f"{self._root}/{check_name(name)}"
            descriptor, fresh, size = self._open_journal(name, path)
            try:
                if size < offset:
                    raise Conflict(
                        "a journal is shorter than its writer knows",
                        where=name,
                        expected=f"at least {offset} bytes",
                        found=f"{size}",
                        cure="open the log again",
                    )
                _write_all(descriptor, data, offset)
                _sync(descriptor)
            except BaseException:
                self._journals.pop(name, None)
                os.close(descriptor)
                raise
            if self._locks:
                if name not in self._journals:
                    status = os.fstat(descriptor)
                    self._journals[name] = descriptor, status.st_dev, status.st_ino
            else:
                os.close(descriptor)
            if fresh:
                _sync_folder(Path(path).parent)

    def adopt(self, name: str, path: Path, *, link: bool = False) -> None:
        with self._storage_errors("adopt", name):
            target = self._path(name)
            if not target.is_file():
                with suppress(FileExistsError):
                    if not (link and self._adopt_link(target, path)):
                        with open(path, "rb") as source, self._temporary(name, source) as temporary:
                            _link(temporary, target)
                            _sync_folder(target.parent)
                    return
            if not _same_bytes(target, path):
                raise _differs(name, path.stat().st_size, target.stat().st_size)
            _sync_file(target)
            _sync_folder(target.parent)

    def arrived(self, name: str, content: bytes | Path) -> bool:
        return False  # a disk does not hash

    def rename(self, name: str, to: str) -> None:
        self._check_writable(name)
        source, target = self._path(name), self._path(to)
        with self._storage_errors("rename", name):
            self._make_folder(target.parent)
            os.rename(source, target)
            _sync_folder(target.parent)
            _sync_folder(source.parent)

    def remove(self, *names: str) -> None:
        changed: set[Path] = set()
        for name in names:
            self._check_writable(name)
            self._close_journals(name)
            with self._storage_errors("remove", name), suppress(FileNotFoundError, NotADirectoryError):
                path = self._path(name)
                os.unlink(path)
                changed.add(path.parent)
        for folder in changed:
            with self._storage_errors("remove", folder.name):
                _sync_folder(folder)

    @contextmanager
    def lock(self, name: str, holder: str, *, wait: float = 0.0) -> Iterator[None]:
        self._check_writable(name)
        path = self._path(name)
        with self._storage_errors("lock", name):
            self._make_folder(path.parent)
            descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666)
        try:
            self._acquire(descriptor, name, wait)
            self._check_excludes(path)
            with self._storage_errors("lock", name):
                record = {"pid": os.getpid(), "host": os.uname().nodename, "command": holder}
                os.ftruncate(descriptor, 0)
                _write_all(descriptor, json.dumps(record).encode(), 0)
                self._clear_leftovers(name)
            self._locks += 1
            try:
                yield
            finally:
                self._locks -= 1
                if not self._locks:
                    self._close_journals(*self._journals)
        finally:
            os.close(descriptor)  # also drops the flock

    # The parts

    def _path(self, name: str) -> Path:
        return self._root / check_name(name)

    def _opened(self, name: str) -> BinaryIO:
        return os.fdopen(self._plain.open(check_name(name)), "rb")

    def _check_writable(self, name: str) -> None:
        if self._readonly:
            raise Refused(
                "the storage is open for reading only",
                where=f"{self._root}: {name}",
                cure="open it without readonly to write",
            )

    def _make_folder(self, folder: Path) -> None:
        """Create ``folder`` with its parents, each made durable in its own parent."""
        missing = []
        while not folder.is_dir():
            missing.append(folder)
            folder = folder.parent
        for path in reversed(missing):
            with suppress(FileExistsError):
                path.mkdir()
            _sync_folder(path.parent)

    @contextmanager
    def _temporary(self, name: str, content: bytes | BinaryIO) -> Iterator[Path]:
        """A complete, synced file that is not yet visible under ``name``; gone afterwards if nobody renamed it."""
        self._check_writable(name)
        target = self._path(name)
        self._make_folder(target.parent)
        folder = self._root / name.split("/")[0] if "/" in name else self._root
        path, descriptor = _claim_temporary(folder)
        try:
            if isinstance(content, bytes):
                _write_all(descriptor, content, 0)
            else:
                offset = 0
                while chunk := content.read(_CHUNK):
                    _write_all(descriptor, chunk, offset)
                    offset += len(chunk)
            os.fsync(descriptor)
            yield path
        finally:
            # One that cannot be removed now is cleared by the next who takes a lock.
            with suppress(OSError):
                os.unlink(path)
            os.close(descriptor)

    def _open_journal(self, name: str, path: str) -> tuple[int, bool, int]:
        """A descriptor for the file that has this name now, whether it was made just here, and the file's size."""
        if name in self._journals:
            descriptor, device, number = self._journals[name]
            with suppress(FileNotFoundError):
                status = os.stat(path)
                if (status.st_dev, status.st_ino) == (device, number):
                    return descriptor, False, status.st_size
            self._close_journals(name)  # another process put a file there, or took it away
        try:
            descriptor = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
            return descriptor, False, os.fstat(descriptor).st_size
        except FileNotFoundError:
            self._make_folder(Path(path).parent)
            return os.open(path, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC | os.O_NOFOLLOW, 0o666), True, 0

    def _close_journals(self, *names: str) -> None:
        for name in names:
            if name in self._journals:
                os.close(self._journals.pop(name)[0])

    def _adopt_link(self, target: Path, path: Path) -> bool:
        """Share the file by a hard link; False where the file system cannot."""
        self._check_writable(target.name)
        self._make_folder(target.parent)
        _sync_file(path)
        try:
            os.link(path, target, follow_symlinks=True)
        except FileExistsError:
            raise
        except OSError:
            return False
        _sync_folder(target.parent)
        return True

    def _acquire(self, descriptor: int, name: str, wait: float) -> None:
        deadline = time.monotonic() + wait
        while True:
            try:
                fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                return
            except BlockingIOError:
                if time.monotonic() >= deadline:
                    raise self._locked(descriptor, name, wait) from None
                time.sleep(_LOCK_POLL_SECONDS)
            except OSError as error:
                if error.errno in _NO_LOCKS:
                    raise _lacks(
                        "locks (flock), which keep a second writer out", self._root, error.strerror or ""
                    ) from error
                raise

    @contextmanager
    def _storage_errors(self, verb: str, name: str) -> Iterator[None]:
        """Turn what the operating system says into the ledger's own errors. What it refuses is said of the whole path: it is
        about a disk."""
        try:
            yield
        except (FileNotFoundError, NotADirectoryError, IsADirectoryError) as error:
            raise NotFound("no such file", where=name or "the root", cure="check the root and the name") from error
        except FileExistsError as error:
            raise AlreadyExists("the name is taken", where=name) from error
        except OSError as error:
            raise storage_failed(f"could not {verb} a file", str(self._root / name), error) from error

    def _check_excludes(self, path: Path) -> None:
        """A lock that is held must keep another descriptor out: some network file systems only pretend."""
        with self._storage_errors("lock", path.name):
            other = os.open(path, os.O_RDWR | os.O_CLOEXEC | os.O_NOFOLLOW)
        try:
            fcntl.flock(other, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError:
            return
        finally:
            os.close(other)
        raise _lacks("locks that exclude (flock), which keep a second writer out", self._root, "two at once")

    def _locked(self, descriptor: int, name: str, wait: float) -> Locked:
        try:
            record = json.loads(os.pread(descriptor, 4096, 0))
            found = f"held by process {record['pid']} on {record['host']} ({record['command']})"
        except (OSError, ValueError, KeyError, TypeError, RecursionError):
            found = "held by a process that did not say its name"
        return Locked(
            "another writer is at work",
            where=f"{self._root}/{name}",
            expected=f"the lock within {wait:g} s",
            found=found,
            cure="wait for it to end, or stop that process; the lock dies with it",
        )

    def _clear_leftovers(self, name: str) -> None:
        folder = self._root / name.split("/")[0] if "/" in name else self._root
        with os.scandir(folder) as found:
            leftovers = [entry.path for entry in found if entry.name.startswith(TEMPORARY)]
        for path in leftovers:
            with suppress(OSError):
                descriptor = os.open(path, FLAGS)
                try:
                    fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
                    shutil.rmtree(path) if os.path.isdir(path) else os.unlink(path)
                finally:
                    os.close(descriptor)


def _differs(name: str, expected: int, found: int) -> Conflict:
    return Conflict(
        "other bytes are there already",
        where=name,
        expected=f"the same {expected} bytes",
        found=f"{found} bytes that differ",
        cure="nothing was overwritten; find out who wrote it",
    )


def _walk(folder: Path, base: str, prefix: str) -> Iterator[str]:
    """Names below ``folder`` in the order of their strings: a folder sorts as if its name ended in '/'."""
    if base.count("/") > DEEPEST:
        raise too_deep(base)
    try:
        with os.scandir(folder) as found:
            # Only the topmost folders may be links to another disk.
            entries = [
                (entry.name, entry.is_dir(follow_symlinks=not base))
                for entry in found
                if not entry.name.startswith(TEMPORARY)
            ]
    except (FileNotFoundError, NotADirectoryError):
        return
    for name, is_folder in sorted((f"{name}/" if is_dir else name, is_dir) for name, is_dir in entries):
        full = base + name
        if is_folder and (full.startswith(prefix) or prefix.startswith(full)):
            yield from _walk(folder / name, full, prefix)
        elif not is_folder and full.startswith(prefix):
            yield full


def _claim_temporary(folder: Path) -> tuple[Path, int]:
    while True:
        path = folder / f"{TEMPORARY}{os.urandom(8).hex()}"
        descriptor = os.open(path, os.O_RDWR | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o666)
        try:
            fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
            if os.fstat(descriptor).st_nlink:
                return path, descriptor
        except BlockingIOError:
            pass  # another process clearing leftovers got between our open and our lock, and is removing it
        except OSError:
            os.close(descriptor)
            raise
        os.close(descriptor)


def _link(source: Path, target: Path) -> None:
    try:
        os.link(source, target)
    except OSError as error:
        if error.errno in _NO_LINKS:
            raise _lacks("hard links, which exclusive writes need", target.parent, error.strerror or "") from error
        raise


def _lacks(what: str, where: Path, found: str) -> StorageFailed:
    return StorageFailed(
        f"the file system has no {what}",
        where=str(where),
        expected="links, locks and folders that can be synced",
        found=found,
        cure="put the root on ext4, xfs, btrfs, zfs, apfs or NFSv4",
    )


def _write_all(descriptor: int, data: bytes, offset: int) -> None:
    view = memoryview(data)
    while view:
        written = os.pwrite(descriptor, view, offset)
        view, offset = view[written:], offset + written


def _sync(descriptor: int) -> None:
    """Data and whatever metadata is needed to read it back; macOS has no fdatasync."""
    getattr(os, "fdatasync", os.fsync)(descriptor)


def _sync_file(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _sync_folder(path: Path) -> None:
    try:
        _sync_file(path)
    except OSError as error:
        if error.errno in _NO_FOLDER_SYNC:
            raise _lacks("sync of folders, without which names do not last", path, error.strerror or "") from error
        raise


def _same_bytes(first: Path, second: Path) -> bool:
    if first.stat().st_size != second.stat().st_size:
        return False
    with os.fdopen(open_plain(str(first)), "rb") as one, open(second, "rb") as two:
        while chunk := one.read(_CHUNK):
            if chunk != two.read(_CHUNK):
                return False
    return True
