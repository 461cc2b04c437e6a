"""Checkout: the bytes of an artifact as a file or a folder, all of it or nothing, verified on the way.

How a file is placed, for ``how="auto"`` the first that the file system can:

    reflink     its own file that shares blocks with the blob until one of them is written
    hardlink    the blob itself under a second name, read-only; not for executable files, whose mode would differ, and
                not out of a store that was opened for reading only: anyone who may write there could change it after it
                was hashed
    copy        its own file

A folder is built beside its destination under a temporary name and then takes the name at once; what stood
there and is to be replaced goes aside in the same moment (``renameat2``), or a moment before on systems that
cannot swap. A kill leaves the old or the new, and at most a folder whose name begins with ``.tmp-``.

When the destination already is what the artifact is, nothing is written. That is found out by hashing it: a
file that was edited in place through a hard link is noticed, here as everywhere.
"""

from __future__ import annotations

import ctypes
import errno
import os
import secrets
import shutil
import sys
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

from ledger.errors import AlreadyExists, LedgerError, NotFound, StorageFailed
from ledger.storage.failure import storage_failed
from ledger.storage.plain import open_plain
from ledger.storage.port import TEMPORARY
from ledger.store.blobs.blobs import Blobs
from ledger.store.blobs.hashing import Hashed, hash_bytes, threads
from ledger.store.blobs.reflink import clone
from ledger.store.blobs.staging import READ_ONLY
from ledger.store.layout import BLOBS
from ledger.store.trees.manifest import Manifest, ManifestEntry, plain_files
from ledger.store.trees.scan import scan
from ledger.store.workers import manyfiles

How = Literal["auto", "reflink", "hardlink", "copy"]

_WRITABLE: Final = 0o644
_EXECUTABLE: Final = 0o755
_SMALL: Final = 1024 * 1024
_MANY: Final = 64
"""Files of a tree from which on several threads place them."""
_SAMPLE: Final = 256
"""Of so many files of a tree it is asked which packfiles they are in."""
_NO_LINK: Final = frozenset({errno.EXDEV, errno.EPERM, errno.EACCES, errno.EMLINK, errno.EOPNOTSUPP, errno.ENOSYS})
_SWAP: Final = 2  # RENAME_EXCHANGE of renameat2(2)
_AT_FDCWD: Final = -100


@dataclass(frozen=True, slots=True)
class CheckedOut:
    """What a checkout did: files placed by each means, or that everything was there already."""

    files: int = 0
    reflinked: int = 0
    hardlinked: int = 0
    copied: int = 0
    unchanged: bool = False


def file(blobs: Blobs, digest: str, dest: Path, *, how: How = "auto", replace: bool = False) -> CheckedOut:
    """Make ``dest`` a file with the bytes of a blob."""
    if os.path.lexists(dest):
        if dest.is_file() and not dest.is_symlink() and _holds(blobs, dest, digest):
            blobs.verified(digest)
            return CheckedOut(files=1, unchanged=True)
        _may_replace(dest, replace)
    placer = Placer(blobs, how)
    with _beside(dest) as temporary:
        placer.place(digest, str(temporary), executable=False)
        _publish(temporary, dest)
    return placer.report()


def tree(blobs: Blobs, text: bytes, dest: Path, *, where: str, how: How = "auto", replace: bool = False) -> CheckedOut:
    """Make ``dest`` a folder with exactly the files of a manifest, given as its bytes."""
    if os.path.lexists(dest):
        manifest = Manifest.parse(text, where=where)
        if _is_tree(blobs, dest, manifest):
            return CheckedOut(files=len(manifest), unchanged=True)
        if not (dest.is_dir() and not dest.is_symlink() and not any(dest.iterdir())):
            _may_replace(dest, replace)
    placer = Placer(blobs, how)
    with _beside(dest) as temporary, _checkout_errors(dest):
        temporary.mkdir()
        base = str(temporary)
        with placer.many(plain_files(text), base) as placed:
            left = placed(Manifest.parse(text, where=where).entries)
        _make_folders(base, (entry.path for entry in left))
        small = [(e.digest[7:], e.path) for e in left if e.size <= manyfiles.MOST_BYTES and not e.executable]
        with placer.many(small, base) as placed:
            left = placed(left)
        _place_all(placer, left, base)
        _publish(temporary, dest)
    return placer.report()


def _make_folders(base: str, paths: Iterable[str]) -> None:
    for folder in sorted({path.rpartition("/")[0] for path in paths}):
        os.makedirs(f"{base}/{folder}", exist_ok=True)


def _place_all(placer: Placer, entries: Sequence[ManifestEntry], base: str) -> None:
    """Place files of a tree, in several threads: most of the work is the system's."""

    def work(start: int, end: int) -> Placer:
        mine = placer.another()
        for entry in entries[start:end]:
            mine.place(entry.digest, f"{base}/{entry.path}", executable=entry.executable, size=entry.size)
        return mine

    if len(entries) < _MANY:
        placer.add(work(0, len(entries)))
        return
    # The first finds out what the file system can.
    first, entries = entries[0], entries[1:]
    placer.place(first.digest, f"{base}/{first.path}", executable=first.executable, size=first.size)
    # Neighbours in a folder go to one thread, so that they do not wait for each other.
    bounds = [len(entries) * number // threads() for number in range(threads() + 1)]
    with ThreadPoolExecutor(threads()) as pool:
        for placed in pool.map(work, bounds[:-1], bounds[1:]):
            placer.add(placed)


class Placer:
    """Puts blobs in place by the best means that works, and counts."""

    def __init__(self, blobs: Blobs, how: How) -> None:
        self._blobs, self._how = blobs, how
        self._counts = {"reflinked": 0, "hardlinked": 0, "copied": 0}
        self._reflinks = how in ("auto", "reflink")
        self._links = how in ("auto", "hardlink") and blobs.shares

    def another(self) -> Placer:
        """One for another thread, that knows what this one knows and has counted nothing."""
        placer = Placer(self._blobs, self._how)
        placer._reflinks, placer._links = self._reflinks, self._links
        return placer

    def add(self, other: Placer) -> None:
        """Count what another one placed."""
        for how, count in other._counts.items():
            self._counts[how] += count

    def report(self) -> CheckedOut:
        counts = self._counts
        return CheckedOut(sum(counts.values()), counts["reflinked"], counts["hardlinked"], counts["copied"])

    @contextmanager
    def many(
        self, files: Sequence[tuple[str, str]], base: str
    ) -> Iterator[Callable[[Sequence[ManifestEntry]], Sequence[ManifestEntry]]]:
        """Let processes place many small files, by digest and path, while the manifest is parsed.

        Given entries, what is given waits for them and says which are still to be placed.
        """
        folder = self._blobs.folder
        if folder is None or threads() < 2 or len(files) < manyfiles.WORTH:
            yield lambda entries: entries
            return
        first = files[0]  # finds out what the file system can
        try:
            _make_folders(base, (path for _, path in files))
            self.place(f"sha256:{first[0]}", f"{base}/{first[1]}", executable=False)
        except (OSError, LedgerError):  # of a manifest that may be refused; anyone who goes on with it, meets it again
            with suppress(OSError):
                os.unlink(f"{base}/{first[1]}")
            yield lambda entries: entries
            return
        some = files[:: max(1, len(files) // _SAMPLE)]  # a packfile that is missed costs time and nothing else
        packfiles = self._blobs.packfiles.holding(bytes.fromhex(digest) for digest, _ in some)
        verb = "slice-out" if self._reflinks else "link-out" if self._links else "copy-out"
        common = (folder + BLOBS, base, *map(self._blobs.packfiles.path, packfiles))
        records = files[1:] if packfiles or not self._reflinks else []
        with manyfiles.begun(verb, common, records, threads(), tuple) as finish:

            def placed(entries: Sequence[ManifestEntry]) -> Sequence[ManifestEntry]:
                given = {target: name for name, target in (first, *records)}
                left = [e for e in entries if e.executable or given.get(e.path) != e.digest[7:]]
                for entry in entries if not left else set(entries).difference(left):
                    del given[entry.path]
                answers = finish()  # all that can be done before is done while they work
                self._counts["copied"] += answers.count("copied")
                self._counts["hardlinked"] += answers.count("linked")
                lost = set()
                if manyfiles.NOT_DONE in answers:
                    lost = {r[1] for r, answer in zip(records, answers, strict=True) if answer == manyfiles.NOT_DONE}
                    left += [e for e in entries if e.path in lost]
                for target in (*lost, *given):
                    with suppress(FileNotFoundError):
                        os.unlink(f"{base}/{target}")
                return left

            yield placed

    def place(self, digest: str, target: str, *, executable: bool, size: int | None = None) -> None:
        blob = self._blobs.local(digest)
        with _checkout_errors(target):
            if blob is not None and self._reflinks and self._reflink(blob, digest, target, executable):
                return
            if blob is not None and self._links and not executable and self._hardlink(blob, digest, target):
                return
            self._copy(digest, target, executable, self._blobs.size(digest) if size is None else size)

    def _reflink(self, blob: str, digest: str, target: str, executable: bool) -> bool:
        with os.fdopen(open_plain(blob), "rb") as source, open(target, "x+b") as sink:
            cloned = clone(source, sink)
            if cloned:
                self._check(digest, sink)
                os.fchmod(sink.fileno(), _mode(executable))
        if not cloned:
            os.unlink(target)
            self._reflinks = self._must("reflink", target)
            return False
        self._counts["reflinked"] += 1
        return True

    def _hardlink(self, blob: str, digest: str, target: str) -> bool:
        try:
            os.link(blob, target)
        except OSError as error:
            if error.errno not in _NO_LINK:
                raise
            if error.errno != errno.EMLINK:  # one blob with too many names says nothing about the next
                self._links = self._must("hardlink", target)
            return False
        # Hashed under the new name: what is checked is what is given out.
        with os.fdopen(open_plain(target), "rb", buffering=0) as stream:
            self._check(digest, stream)
            if os.fstat(stream.fileno()).st_mode & 0o222:
                with suppress(PermissionError):
                    os.fchmod(stream.fileno(), READ_ONLY)
        self._counts["hardlinked"] += 1
        return True

    def _copy(self, digest: str, target: str, executable: bool, size: int) -> None:
        with open(target, "x+b") as sink:
            if size <= _SMALL:
                sink.write(self._blobs.read(digest))
            elif (blob := self._blobs.local(digest)) is not None:
                with os.fdopen(open_plain(blob), "rb") as source:
                    self._check(digest, source, sink)
            else:
                self._blobs.verified(digest, sink.write)
            os.fchmod(sink.fileno(), _mode(executable))
        self._counts["copied"] += 1

    def _must(self, how: str, target: str) -> bool:
        """False, so that the next means is tried; unless the caller insists on this one."""
        if self._how == how:
            raise StorageFailed(
                f"the file system cannot {how} here",
                where=os.path.dirname(target),
                cure="check out with how='auto' or 'copy'",
            )
        return False

    def _check(self, digest: str, file: BinaryIO, into: BinaryIO | None = None) -> None:
        hashed = _hashed(self._blobs, file, digest, into)
        if hashed.digest != digest:
            raise self._blobs.tampered(digest, hashed)


def _is_tree(blobs: Blobs, folder: Path, manifest: Manifest) -> bool:
    """Whether a folder holds exactly the files of a manifest, by their bytes."""
    if folder.is_symlink() or not folder.is_dir():
        return False
    try:
        found = scan(folder)
    except LedgerError:
        return False
    if [file.path for file in found] != [entry.path for entry in manifest]:
        return False
    pairs = list(zip(found, manifest, strict=True))
    if any(f.status.st_size != e.size or f.executable != e.executable for f, e in pairs):
        return False
    return all(not os.path.islink(f.location) and _holds(blobs, f.location, e.digest) for f, e in pairs)


def _holds(blobs: Blobs, path: str | Path, digest: str) -> bool:
    with open(path, "rb") as stream:
        return _hashed(blobs, stream, digest).digest == digest


def _hashed(blobs: Blobs, stream: BinaryIO, digest: str, into: BinaryIO | None = None) -> Hashed:
    if into is None and os.fstat(stream.fileno()).st_size <= _SMALL:
        return hash_bytes(stream.read())
    return blobs.hash_as(digest, stream, into)


def _may_replace(dest: Path, replace: bool) -> None:
    if not replace:
        raise AlreadyExists(
            "the destination is taken",
            where=str(dest),
            expected="nothing there, or the same bytes",
            found="something else",
            cure="name another place, move it away, or ask for it to be replaced",
        )


@contextmanager
def _beside(dest: Path) -> Iterator[Path]:
    """A temporary name in the folder of ``dest``; whatever is left under it is removed."""
    with _checkout_errors(dest):
        dest.parent.mkdir(parents=True, exist_ok=True)
    temporary = dest.parent / f"{TEMPORARY}{dest.name[:64]}-{secrets.token_hex(6)}"
    try:
        yield temporary
    finally:
        _remove(temporary)


def _publish(temporary: Path, dest: Path) -> None:
    """Give the finished file or folder its name; what had the name before is under ``temporary`` then, or gone."""
    with _checkout_errors(dest):
        if not os.path.lexists(dest):
            os.rename(temporary, dest)
        elif not _swap(temporary, dest):
            aside = temporary.with_name(temporary.name + "-old")
            os.rename(dest, aside)
            os.rename(temporary, dest)
            _remove(aside)


def _swap(first: Path, second: Path) -> bool:
    """Exchange two names at once, where the system can."""
    if _renameat2 is None:
        return False
    done = _renameat2(_AT_FDCWD, os.fsencode(first), _AT_FDCWD, os.fsencode(second), _SWAP)
    return done == 0


def _find_renameat2() -> Callable[..., int] | None:
    if sys.platform != "linux":
        return None
    return getattr(ctypes.CDLL(None, use_errno=True), "renameat2", None)


_renameat2 = _find_renameat2()


def _remove(path: Path) -> None:
    with suppress(FileNotFoundError):
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            os.unlink(path)


def _mode(executable: bool) -> int:
    return _EXECUTABLE if executable else _WRITABLE


@contextmanager
def _checkout_errors(path: Path | str) -> Iterator[None]:
    try:
        yield
    except FileNotFoundError as error:
        raise NotFound(
            "checkout", where=str(error.filename or path), found=error.strerror or "", cure="check the path"
        ) from error
    except OSError as error:
        raise storage_failed("checkout", str(error.filename or path), error) from error
