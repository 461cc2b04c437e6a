"""One process of `ledger.manyfiles`: a few calls of the system for each of thousands of small files, and nothing else.

Run as a program, with little to import, so that it begins in a hundredth of a second:

    python -I -S fileworker.py VERB      records from standard input, a line for each to standard output

A record is fields between NULs, ended by NUL and newline; the first one is for all that follow.

    link-out    blobs, folder; then digest, path            link the blob to that place of the folder, and hash what is there
                                                            under the new name: "+" if it is the blob
    copy-out    blobs, folder; then digest, path            as above, a file of its own
    link-in     blobs, header, staging; then path, which    hash the file and give it the name of its digest, read-only, if it
                                                            is still `which` after that and does not begin with the header: its
                                                            digest
    copy-in     blobs, header, staging; then path, which    as above, but the bytes go to a new file in `staging`: the digest and
                                                            that file's name; the digest alone if the blob is there already
    name        blobs, staging; then digest, name           give a file in `staging` the name of its digest: "+"

Where something is not plain, for whatever reason, the answer is "-" and the caller does the work itself.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable, Iterator

MOST_BYTES = 1024 * 1024
_YOUNG_SECONDS = 60.0
_NOT_DONE = "-"
_CUT = os.umask(0o77)
os.umask(_CUT)


def link_out(records: Iterable[list[str]], blobs: str, folder: str) -> Iterator[str]:
    """Link blobs to their places."""
    for digest, path in records:
        answer, target = _NOT_DONE, f"{folder}/{path}"
        try:
            os.link(f"{blobs}{digest[:2]}/{digest[2:]}", target)
            descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
            try:
                status = os.fstat(descriptor)
                if status.st_mode & 0o222:
                    os.fchmod(descriptor, 0o444)
                data = os.read(descriptor, status.st_size + 1)
                if len(data) == status.st_size and hashlib.sha256(data).hexdigest() == digest:
                    answer = "+"
            finally:
                os.close(descriptor)
        except OSError:
            pass
        yield answer


def copy_out(records: Iterable[list[str]], blobs: str, folder: str) -> Iterator[str]:
    """Copy blobs to their places."""
    for digest, path in records:
        answer = _NOT_DONE
        try:
            descriptor = os.open(f"{blobs}{digest[:2]}/{digest[2:]}", os.O_RDONLY | os.O_CLOEXEC)
            try:
                size = os.fstat(descriptor).st_size
                data = os.read(descriptor, size + 1)
            finally:
                os.close(descriptor)
            if len(data) == size <= MOST_BYTES and hashlib.sha256(data).hexdigest() == digest:
                _write(f"{folder}/{path}", data, 0o644)
                answer = "+"
        except OSError:
            pass
        yield answer


def link_in(records: Iterable[list[str]], blobs: str, header: str, staging: str) -> Iterator[str]:
    """Give files the names of their digests."""
    return _taken(records, blobs, header.encode(), None)


def copy_in(records: Iterable[list[str]], blobs: str, header: str, staging: str) -> Iterator[str]:
    """Copy files to `staging`."""
    return _taken(records, blobs, header.encode(), staging)


def name(records: Iterable[list[str]], blobs: str, staging: str) -> Iterator[str]:
    """Give copies the names of their digests. A blob that has come there meanwhile has the same bytes."""
    for digest, copy in records:
        answer, blob = _NOT_DONE, f"{blobs}{digest[:2]}/{digest[2:]}"
        try:
            try:
                os.rename(f"{staging}/{copy}", blob)
            except FileNotFoundError:
                os.makedirs(os.path.dirname(blob), exist_ok=True)
                os.rename(f"{staging}/{copy}", blob)
            answer = "+"
        except OSError:
            pass
        yield answer


def _taken(records: Iterable[list[str]], blobs: str, header: bytes, staging: str | None) -> Iterator[str]:
    for number, (path, which) in enumerate(records):
        answer = _NOT_DONE
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(descriptor, int(which.split(":")[2]) + 1)  # what is asked for is reserved, so no more than that
                status = os.fstat(descriptor)
                if (
                    len(data) == status.st_size <= MOST_BYTES
                    and f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}" == which
                    and not data.startswith(header)
                ):
                    digest = hashlib.sha256(data).hexdigest()
                    blob = f"{blobs}{digest[:2]}/{digest[2:]}"
                    if staging is not None:
                        answer = digest if _is_there(blob, data) else f"{digest} {_copy(staging, number, data)}"
                    elif not status.st_mode & 0o100:
                        _link(descriptor, status, data, blob)
                        answer = digest
            finally:
                os.close(descriptor)
        except OSError:
            pass
        yield answer


def _copy(staging: str, number: int, data: bytes) -> str:
    copy = f"{os.getpid()}-{number}"
    _write(f"{staging}/{copy}", data, 0o444)
    return copy


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
        descriptor = os.open(blob, os.O_RDONLY | os.O_CLOEXEC)
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


def _settle(descriptor: int, status: os.stat_result) -> None:
    if status.st_mode & 0o222:
        os.fchmod(descriptor, 0o444)
    if abs(time.time() - status.st_mtime) > _YOUNG_SECONDS:
        os.utime(descriptor)  # young for garbage collection


_VERBS: dict[str, Callable[..., Iterator[str]]] = {
    "link-out": link_out,
    "copy-out": copy_out,
    "link-in": link_in,
    "copy-in": copy_in,
    "name": name,
}


def main() -> None:
    """Do what standard input says."""
    lines = os.fsdecode(sys.stdin.buffer.read()).split("\0\n")[:-1]
    common = lines[0].split("\0")
    answers = _VERBS[sys.argv[1]]((line.split("\0") for line in lines[1:]), *common)
    sys.stdout.write("\n".join([*answers, ""]))


if __name__ == "__main__":
    main()
