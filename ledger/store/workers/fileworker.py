"""One process of ``manyfiles``: a few calls of the system for each of thousands of small files, and nothing else.

Run as a program, with little to import, so that it begins in a hundredth of a second:

    python -I -S fileworker.py VERB      records from standard input, a line for each to standard output

A record is fields between NULs, ended by NUL and newline; the first one is for all that follow.

    link-out    blobs, folder, packfiles; then digest, path     link the blob to that place of the folder, and hash what
                                                                is there under the new name: "linked"; or write it there
                                                                from one of the packfiles: "copied"
    copy-out    blobs, folder, packfiles; then digest, path     write the blob to that place, whatever it lies in: "copied"
    slice-out   blobs, folder, packfiles; then digest, path     as copy-out, for blobs in packfiles only
    link-in     blobs; then path, which                         hash the file and give it the name of its digest,
                                                                read-only, if it is still ``which`` after that: its
                                                                digest
    pack-in     blobs, folder, packfiles; then path, which      as above, but the bytes go to new packfiles in
                                                                ``folder``, under their names and synced: the digest;
                                                                and the number of the packfile, from 0, if one of those
                                                                given has these bytes already

What begins as the text of a large blob has another digest than its sha256, and is left alone.
Where something is not plain, for whatever reason, the answer is "-" and the caller does the work itself. The form of a
packfile is told by ``ledger.store.packs.packfile``, and is written and read here, for this program imports nothing of the
package.
"""

from __future__ import annotations

import gc
import hashlib
import mmap
import os
import struct
import sys
import time
from functools import partial

TYPE_CHECKING = False  # as `typing` has it, which takes longer to import than all else here
if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator

MOST_BYTES = 1024 * 1024
MOST_PACKED = 16 * 1024
"""Files up to this size go into packfiles: their names cost more than their bytes."""
PACKFILE_BYTES = 64 * 1024 * 1024
"""A packfile that has become this large is closed, and the next one begun."""
LARGE = b"marin.blob/v1\n"
"""How the text of a large blob begins (``ledger.store.parts``)."""
MAGIC = b"marin.packfile/1"
ENTRY = struct.Struct(">32sQI")
TAIL = struct.Struct(">Q16s")
_WRITE_BYTES = 4 * 1024 * 1024
_YOUNG_SECONDS = 60.0
_NOT_DONE = "-"
_READ = os.O_RDONLY | os.O_CLOEXEC | os.O_NOFOLLOW | os.O_NONBLOCK
"""Links are not followed, nor a FIFO waited for (``ledger.storage.plain``); whose size does not fit is left alone."""
_CUT = os.umask(0o77)
os.umask(_CUT)


def index_of(read: Callable[[int, int], bytes], size: int) -> bytes:
    """The index of a packfile of this size, tail and all, by a function that reads from an offset; ValueError if it has
    none."""
    tail = read(size - TAIL.size, TAIL.size) if size >= len(MAGIC) + TAIL.size else b""
    if len(tail) != TAIL.size or not tail.endswith(MAGIC):
        raise ValueError("no tail of a packfile")
    length = TAIL.unpack(tail)[0] * ENTRY.size
    start = size - TAIL.size - length
    if start < len(MAGIC):
        raise ValueError("an index that is longer than the file")
    index = read(start, length)
    if len(index) != length:
        raise ValueError("an index that ends early")
    return index + tail


class PackWriter:
    """Writes one packfile under a private name; ``finish`` syncs it and renames it, in its folder, to the hash of its
    index."""

    def __init__(self, folder: str) -> None:
        self._folder = folder
        self._path = f"{folder}/{os.getpid()}-{os.urandom(8).hex()}"
        self._descriptor = os.open(self._path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, 0o444)
        self._pending = bytearray(MAGIC)
        self._entries: dict[bytes, tuple[int, int]] = {}
        self.size = len(MAGIC)

    def add(self, digest: bytes, data: bytes) -> None:
        """Append the bytes of this sha256, once."""
        if digest in self._entries:
            return
        self._entries[digest] = (self.size, len(data))
        self._pending += data
        self.size += len(data)
        if len(self._pending) >= _WRITE_BYTES:
            self._flush()

    def finish(self) -> str:
        """The name of the packfile, which has all its bytes on the disk."""
        index = b"".join([ENTRY.pack(digest, *place) for digest, place in sorted(self._entries.items())])
        index += TAIL.pack(len(self._entries), MAGIC)
        self._pending += index
        self._flush()
        os.fchmod(self._descriptor, 0o444)
        os.fsync(self._descriptor)
        os.close(self._descriptor)
        name = hashlib.sha256(index).hexdigest()
        os.rename(self._path, f"{self._folder}/{name}")
        return name

    def _flush(self) -> None:
        with memoryview(self._pending) as view:
            done = 0
            while done < len(view):
                done += os.write(self._descriptor, view[done:])
        self._pending.clear()


class Slices:
    """Blobs that lie in some packfiles, read and hashed."""

    def __init__(self, packfiles: Iterable[str]) -> None:
        self._places: dict[bytes, tuple[mmap.mmap, int, int, int]] = {}
        for number, path in enumerate(packfiles):
            try:
                descriptor = os.open(path, _READ)
                try:
                    # One that another process shortens ends this process, and the caller does its work.
                    packfile = mmap.mmap(descriptor, 0, prot=mmap.PROT_READ)
                finally:
                    os.close(descriptor)
                index = index_of(partial(_part_of, packfile), len(packfile))
            except (OSError, ValueError):
                continue  # the caller sees that there is nothing in it
            for digest, start, size in ENTRY.iter_unpack(index[: -TAIL.size]):
                self._places[digest] = (packfile, start, start + size, number)

    def read(self, digest: bytes) -> tuple[bytes, int] | None:
        """The bytes of a blob and the number of its packfile; None if it is in none, or if they are others."""
        place = self._places.get(digest)
        if place is None:
            return None
        packfile, start, end, number = place
        data = packfile[start:end]
        return (data, number) if hashlib.sha256(data).digest() == digest and not data.startswith(LARGE) else None


def _part_of(packfile: mmap.mmap, start: int, length: int) -> bytes:
    return packfile[start : start + length]


def link_out(records: Iterable[list[str]], blobs: str, folder: str, *packfiles: str) -> Iterator[str]:
    """Link blobs to their places; what is in a packfile is written there."""

    def whole(digest: str, target: str) -> str:
        return _linked_out(f"{blobs}{digest[:2]}/{digest[2:]}", digest, target)

    return _placed(records, folder, Slices(packfiles), whole)


def copy_out(records: Iterable[list[str]], blobs: str, folder: str, *packfiles: str) -> Iterator[str]:
    """Write blobs to their places."""

    def whole(digest: str, target: str) -> str:
        return _copied_out(f"{blobs}{digest[:2]}/{digest[2:]}", digest, target)

    return _placed(records, folder, Slices(packfiles), whole)


def slice_out(records: Iterable[list[str]], blobs: str, folder: str, *packfiles: str) -> Iterator[str]:
    """Write what is in packfiles to its places."""
    return _placed(records, folder, Slices(packfiles), lambda digest, target: _NOT_DONE)


def _placed(
    records: Iterable[list[str]], folder: str, slices: Slices, whole: Callable[[str, str], str]
) -> Iterator[str]:
    os.chdir(folder)  # so that the system need not walk there for each file
    for digest, path in records:
        answer = _NOT_DONE
        try:
            found = slices.read(bytes.fromhex(digest))
            if found is None:
                answer = whole(digest, path)
            else:
                _write(path, found[0], 0o644)
                answer = "copied"
        except OSError:
            pass
        yield answer


def _linked_out(blob: str, digest: str, target: str) -> str:
    os.link(blob, target)
    descriptor = os.open(target, _READ)
    try:
        status = os.fstat(descriptor)
        if status.st_mode & 0o222:
            os.fchmod(descriptor, 0o444)
        data = os.read(descriptor, status.st_size + 1)
        good = len(data) == status.st_size and _is(data, digest)
    finally:
        os.close(descriptor)
    return "linked" if good else _NOT_DONE


def _copied_out(blob: str, digest: str, target: str) -> str:
    descriptor = os.open(blob, _READ)
    try:
        size = os.fstat(descriptor).st_size
        data = os.read(descriptor, size + 1)
    finally:
        os.close(descriptor)
    if not len(data) == size <= MOST_BYTES or not _is(data, digest):
        return _NOT_DONE
    _write(target, data, 0o644)
    return "copied"


def _is(data: bytes, digest: str) -> bool:
    return hashlib.sha256(data).hexdigest() == digest and not data.startswith(LARGE)


def link_in(records: Iterable[list[str]], blobs: str) -> Iterator[str]:
    """Give files the names of their digests."""

    def keep(descriptor: int, status: os.stat_result, data: bytes) -> str:
        if status.st_mode & 0o100:
            return _NOT_DONE
        digest = hashlib.sha256(data).hexdigest()
        _link(descriptor, status, data, f"{blobs}{digest[:2]}/{digest[2:]}")
        return digest

    return _taken(records, keep)


def pack_in(records: Iterable[list[str]], blobs: str, folder: str, *packfiles: str) -> Iterator[str]:
    """Append files to new packfiles. What is answered holds when all answers are there."""
    slices = Slices(packfiles)
    writer: PackWriter | None = None
    whole: dict[str, frozenset[str]] = {}
    fresh: list[tuple[bytes, bytes]] = []

    def keep(descriptor: int, status: os.stat_result, data: bytes) -> str:
        hashed = hashlib.sha256(data)
        digest = hashed.hexdigest()
        first = digest[:2]
        if first not in whole:
            whole[first] = _names_of_folder(f"{blobs}{first}")
        if digest[2:] in whole[first] and _is_there(
            f"{blobs}{first}/{digest[2:]}", data
        ):  # OSError: it has other bytes
            return digest
        found = slices.read(hashed.digest())
        if found is not None:
            return f"{digest} {found[1]}"
        fresh.append((hashed.digest(), data))
        return digest

    answers = []
    for answer in _taken(records, keep):
        answers.append(answer)
        while fresh:  # an error here ends the program: what it wrote has no name and no answer
            writer = writer or PackWriter(folder)
            writer.add(*fresh.pop())
        if writer is not None and writer.size >= PACKFILE_BYTES:
            writer.finish()
            writer = None
    if writer is not None:
        writer.finish()
    return iter(answers)


def _taken(records: Iterable[list[str]], keep: Callable[[int, os.stat_result, bytes], str]) -> Iterator[str]:
    """What ``keep`` says of each file that is plain: its open descriptor, what the system says of it, and its bytes."""
    for path, which in records:
        answer = _NOT_DONE
        try:
            descriptor = os.open(path, _READ)
            try:
                data = os.read(
                    descriptor, int(which.split(":")[2]) + 1
                )  # what is asked for is reserved, so no more than that
                status = os.fstat(descriptor)
                if (
                    len(data) == status.st_size <= MOST_BYTES
                    and f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}" == which
                    and not data.startswith(LARGE)
                ):
                    answer = keep(descriptor, status, data)
            finally:
                os.close(descriptor)
        except OSError:
            pass
        yield answer


def _write(path: str, data: bytes, mode: int) -> None:
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, mode)
    try:
        if mode & _CUT:
            os.fchmod(descriptor, mode)
        if os.write(descriptor, data) != len(data):
            raise OSError(f"{path} was not written as a whole")
    finally:
        os.close(descriptor)


def _link(descriptor: int, status: os.stat_result, data: bytes, blob: str) -> None:
    """The file that is open becomes the blob; or the blob is there already, with these bytes."""
    # What is open here is linked, whatever has its path by now; the descriptor as folder makes Python use linkat, which
    # follows the link in /proc.
    opened = f"/proc/self/fd/{descriptor}"
    try:
        os.link(opened, blob, src_dir_fd=descriptor)
    except FileNotFoundError:
        os.makedirs(os.path.dirname(blob), exist_ok=True)
        os.link(opened, blob, src_dir_fd=descriptor)
    except FileExistsError:
        if not _is_there(blob, data):
            raise
        return
    _settle(descriptor, status)


def _is_there(blob: str, data: bytes) -> bool:
    """Whether there is a blob with these bytes, which is young then; OSError if it has others."""
    try:
        descriptor = os.open(blob, _READ)
    except FileNotFoundError:
        return False
    try:
        status = os.fstat(descriptor)
        if os.read(descriptor, len(data) + 1) != data:
            raise OSError(f"{blob} has other bytes")
        _settle(descriptor, status)
    finally:
        os.close(descriptor)
    return True


def _names_of_folder(folder: str) -> frozenset[str]:
    # ``plain.names_in``: this file is a program that imports nothing of the project.
    try:
        return frozenset(os.listdir(folder))
    except FileNotFoundError:
        return frozenset()


def _settle(descriptor: int, status: os.stat_result) -> None:
    if status.st_mode & 0o222:
        os.fchmod(descriptor, 0o444)
    if abs(time.time() - status.st_mtime) > _YOUNG_SECONDS:
        os.utime(descriptor)  # young for garbage collection


_VERBS: dict[str, Callable[..., Iterator[str]]] = {
    "link-out": link_out,
    "copy-out": copy_out,
    "slice-out": slice_out,
    "link-in": link_in,
    "pack-in": pack_in,
}


def main() -> None:
    """Do what standard input says."""
    gc.disable()  # nothing here is to be collected before the end
    lines = os.fsdecode(sys.stdin.buffer.read()).split("\0\n")[:-1]
    common = lines[0].split("\0")
    answers = _VERBS[sys.argv[1]]((line.split("\0") for line in lines[1:]), *common)
    sys.stdout.write("\n".join([*answers, ""]))
    sys.stdout.flush()
    os._exit(0)  # without taking everything apart


if __name__ == "__main__":
    main()
