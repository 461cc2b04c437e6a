"""Thousands of small files at once, by a process for each processor: Python's threads cannot share this work.

A file of a kilobyte costs a few calls of the system, and between two calls a thread waits for the lock of the interpreter. So
the calls are made by short-lived processes that run this file and nothing else (it imports the standard library only). What
they do is an accelerator, and they decide nothing: whatever a process reports as not done, for any reason, the caller does
itself, and says what is wrong. Work goes in by standard input and results come out by standard output, as lines of fields
between NULs; no path is ever part of a command.

    place     blob, target            link the blob to the target and hash what is there under the new name
    hash      path, header            hash a file that does not begin so, and say which one it was (inode, size, time)
    link      path, blob, which       link the file to the blob's name if it is still that one, and make it read-only
"""

from __future__ import annotations

import hashlib
import os
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

WORTH = 2000
"""Files below which a process costs more than it saves."""
MOST_BYTES = 1024 * 1024
_YOUNG_SECONDS = 60.0
_SECONDS = 600.0
_NOT_DONE = "-"

Record = tuple[str, ...]


def work(verb: str, records: Sequence[Record], processes: int) -> list[str]:
    """The result of each record, "-" for what was not done. Neighbours go to one process."""
    bounds = [len(records) * number // processes for number in range(processes + 1)]
    portions = [records[start:end] for start, end in pairwise(bounds)]
    with ThreadPoolExecutor(processes) as pool:
        answers = pool.map(_process, [verb] * processes, portions)
        return [answer for portion in answers for answer in portion]


def _process(verb: str, records: Sequence[Record]) -> list[str]:
    lines = os.fsencode("".join(["\0".join(record) + "\0\n" for record in records]))
    if not sys.executable:
        return [_NOT_DONE] * len(records)
    command = [sys.executable, "-I", "-S", os.path.abspath(__file__), verb]
    try:
        done = subprocess.run(command, input=lines, capture_output=True, check=False, timeout=_SECONDS)
        answers = done.stdout.decode("ascii").split("\n")[:-1]
    except (OSError, subprocess.SubprocessError, UnicodeDecodeError):
        answers = []
    return answers + [_NOT_DONE] * (len(records) - len(answers))


def _place(blob: bytes, target: bytes) -> str:
    os.link(blob, target)
    descriptor = os.open(target, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if status.st_mode & 0o222:
            os.fchmod(descriptor, 0o444)
        return hashlib.sha256(_read(descriptor)).hexdigest()
    finally:
        os.close(descriptor)


def _hash(path: bytes, header: bytes) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        data = _read(descriptor)
        if len(data) != status.st_size or len(data) > MOST_BYTES or data.startswith(header):
            return _NOT_DONE
        return f"{hashlib.sha256(data).hexdigest()} {_which(status)}"
    finally:
        os.close(descriptor)


def _link(path: bytes, blob: bytes, which: bytes) -> str:
    descriptor = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        status = os.fstat(descriptor)
        if _which(status) != which.decode():
            return _NOT_DONE
        # The file that is open here is linked, whatever has its path by now; the descriptor makes Python use linkat,
        # which follows the link in /proc.
        os.link(f"/proc/self/fd/{descriptor}", blob, src_dir_fd=descriptor)
        if status.st_mode & 0o222:
            os.fchmod(descriptor, 0o444)
        if abs(time.time() - status.st_mtime) > _YOUNG_SECONDS:
            os.utime(descriptor)  # young for garbage collection
        return "+"
    finally:
        os.close(descriptor)


def _which(status: os.stat_result) -> str:
    return f"{status.st_dev}:{status.st_ino}:{status.st_size}:{status.st_mtime_ns}"


def _read(descriptor: int) -> bytes:
    """All bytes of a small file; more than a small file has, of one that grew."""
    data = os.read(descriptor, MOST_BYTES + 1)
    while data and (more := os.read(descriptor, MOST_BYTES + 1)):
        data += more
    return data


_VERBS: dict[str, Callable[..., str]] = {"place": _place, "hash": _hash, "link": _link}


def main() -> None:
    """One process: records from standard input, a line for each to standard output."""
    verb = _VERBS[sys.argv[1]]
    answers = []
    for line in sys.stdin.buffer.read().split(b"\0\n")[:-1]:
        try:
            answers.append(verb(*line.split(b"\0")))
        except OSError:
            answers.append(_NOT_DONE)
    sys.stdout.write("".join(f"{answer}\n" for answer in answers))


if __name__ == "__main__":
    main()
