"""A folder of thousands of small files given to the store: linked, not copied, by several processes (`ledger.manyfiles`).

The order is that of every put: the bytes are on the disk before they are hashed, each file gets its name after that, and then
the names go to the disk. What is written to meanwhile is noticed by inode, size and time, and not linked. Whatever is not plain
is left to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from ledger import manyfiles
from ledger.blobs import Blobs
from ledger.hashing import Hashed, threads
from ledger.parts import HEADER
from ledger.storage import group
from ledger.storage.failure import storage_failed
from ledger.storelayout import BLOBS, STORE
from ledger.treescan import Found


def link_many(blobs: Blobs, files: Sequence[Found]) -> dict[str, Hashed]:
    """Share these files with the store, by their paths; those that are not in the answer are for the caller to put.

    Raises:
        StorageFailed: the disk cannot be synced.
    """
    folder = blobs.folder
    if folder is None or threads() < 2 or not group.available():
        return {}
    small = [file for file in files if file.status.st_size <= manyfiles.MOST_BYTES and not file.executable]
    if len(small) < manyfiles.WORTH:
        return {}
    records = [
        (file.location, f"{s.st_dev}:{s.st_ino}:{s.st_size}:{s.st_mtime_ns}") for file in small for s in (file.status,)
    ]
    try:
        group.sync_all(Path(folder, STORE))
        answers = manyfiles.work("take", (folder + BLOBS, HEADER.decode().strip()), records, threads())
        group.sync_all(Path(folder, STORE))
    except OSError as error:
        raise storage_failed("could not link files into the store", folder, error) from error
    return {
        file.path: Hashed(f"sha256:{answer}", file.status.st_size, None)
        for file, answer in zip(small, answers, strict=True)
        if answer != "-"
    }
