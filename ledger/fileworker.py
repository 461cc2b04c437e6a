"""One process of `ledger.manyfiles`: a few calls of the system for each of thousands of small files, and nothing else.

Run as a program, with little to import, so that it begins in a hundredth of a second:

    python -I -S fileworker.py place|take      records from standard input, a line for each to standard output

A record is fields between NULs, ended by NUL and newline; the first one is for all that follow.

    place     store's blobs, folder; then digest, path     link the blob to that place of the folder, and hash what is there
                                                           under the new name: "+" if it is the blob
    take      store's blobs, header; then path, which      hash the file and give it the name of its digest, read-only, if it is
                                                           still `which` after that and does not begin with the header: its digest

Where something is not plain, for whatever reason, the answer is "-" and the caller does the work itself.
"""

from __future__ import annotations

import hashlib
import os
import sys
import time
from collections.abc import Callable, Iterable

MOST_BYTES = 1024 * 1024
_YOUNG_SECONDS = 60.0
_NOT_DONE = "-"

# A file costs 10 to 30 microseconds here, so what would be a helper elsewhere is written out.


def place(records: Iterable[list[str]], blobs: str, folder: str) -> list[str]:
    """Link blobs to their places."""
    answers = []
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
        answers.append(answer)
    return answers


def take(records: Iterable[list[str]], blobs: str, header: str) -> list[str]:
    """Give files the names of their digests."""
    start = header.encode()
    answers = []
    for path, which in records:
        answer = _NOT_DONE
        try:
            descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
            try:
                data = os.read(descriptor, int(which.split(":")[2]) + 1)  # what is asked for is reserved, so no more than that
                status = os.fstat(descriptor)
                if (
                    len(data) == status.st_size <= MOST_BYTES
                    and f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}" == which
                    and not status.st_mode & 0o100
                    and not data.startswith(start)
                ):
                    digest = hashlib.sha256(data).hexdigest()
                    _link(descriptor, status, data, f"{blobs}{digest[:2]}/{digest[2:]}")
                    answer = digest
            finally:
                os.close(descriptor)
        except OSError:
            pass
        answers.append(answer)
    return answers


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
        descriptor = os.open(blob, os.O_RDONLY | os.O_CLOEXEC)
        try:
            status = os.fstat(descriptor)
            if os.read(descriptor, len(data) + 1) != data:
                raise
            _settle(descriptor, status)
        finally:
            os.close(descriptor)
        return
    _settle(descriptor, status)


def _settle(descriptor: int, status: os.stat_result) -> None:
    if status.st_mode & 0o222:
        os.fchmod(descriptor, 0o444)
    if abs(time.time() - status.st_mtime) > _YOUNG_SECONDS:
        os.utime(descriptor)  # young for garbage collection


_VERBS: dict[str, Callable[..., list[str]]] = {"place": place, "take": take}


def main() -> None:
    """Do what standard input says."""
    lines = os.fsdecode(sys.stdin.buffer.read()).split("\0\n")[:-1]
    common = lines[0].split("\0")
    answers = _VERBS[sys.argv[1]]((line.split("\0") for line in lines[1:]), *common)
    sys.stdout.write("\n".join([*answers, ""]))


if __name__ == "__main__":
    main()
