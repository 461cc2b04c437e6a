"""A folder of thousands of small files taken into the store by several processes (``manyfiles``), linked or in packfiles.

The order is that of every put: bytes are on the disk before a name shows them, and then the names go to the disk. A
file that is linked is hashed after that, a file that is packed when it is read. What is written to meanwhile is noticed
by inode, size and time, and not taken. Whatever is not plain is left to the caller.
"""

from __future__ import annotations

from collections.abc import Sequence
from itertools import compress
from pathlib import Path
from typing import Final

from ledger.storage import group
from ledger.storage.failure import storage_failed
from ledger.store.blobs.blobs import Blobs
from ledger.store.blobs.hashing import threads
from ledger.store.layout import BLOBS, STORE
from ledger.store.trees.scan import ScannedFile
from ledger.store.trees.statcache import Content
from ledger.store.workers import manyfiles

_KNOWN_BYTES: Final = 8 * 1024 * 1024
"""Of the youngest packfiles with indexes of so many bytes (190,000 blobs) no blob is written again."""


def take_many(blobs: Blobs, files: Sequence[ScannedFile], *, link: bool) -> list[Content | None]:
    """Take these files into the store, and say what each holds; those with None are for the caller to put.

    Raises:
        Refused: the store is open for reading only.
        StorageFailed: the disk cannot be written or synced.
    """
    nothing: list[Content | None] = [None] * len(files)
    folder = blobs.folder
    if folder is None or threads() < 2 or not group.available():
        return nothing
    most = manyfiles.MOST_BYTES if link else manyfiles.MOST_PACKED
    fit = [file.status.st_size <= most for file in files]
    if link:
        fit = [one and not file.executable for one, file in zip(fit, files, strict=True)]
    small = list(compress(files, fit))
    if len(small) < manyfiles.WORTH:
        return nothing
    blobs.check_writable()
    try:
        store = Path(folder, STORE)
        answers = _linked(small, folder + BLOBS, store) if link else _packed(small, blobs, store)
    except OSError as error:
        raise storage_failed("could not take files into the store", folder, error) from error
    given = (
        Content(f"sha256:{answer}", file.status.st_size) if answer else None
        for file, answer in zip(small, answers, strict=True)
    )
    return [next(given) if one else None for one in fit]


def _linked(files: Sequence[ScannedFile], blobs: str, store: Path) -> list[str]:
    """The digest of each file that is in the store now, in hexadecimal; nothing for the others."""
    group.sync_all(store)
    answers = manyfiles.work("link-in", (blobs,), files, threads(), _record)
    group.sync_all(store)
    return [answer.replace(manyfiles.NOT_DONE, "") for answer in answers]


def _packed(files: Sequence[ScannedFile], blobs: Blobs, store: Path) -> list[str]:
    """As ``_linked``, by new packfiles. What a packfile has already is compared with it, and the packfile made young."""
    store.mkdir(parents=True, exist_ok=True)
    known = blobs.packfiles.latest(_KNOWN_BYTES)
    with group.staging(store) as (staging, _):
        paths = map(blobs.packfiles.path, known)
        answers = manyfiles.work("pack-in", (f"{blobs.folder}{BLOBS}", staging, *paths), files, threads(), _record)
        blobs.take_packfiles(Path(staging))
    found = [answer.partition(" ") for answer in answers]
    # One that was collected meanwhile does not count; what is young now is not collected.
    lost = {
        number
        for number in {number for _, _, number in found}
        if number and not blobs.touch(known[int(number)].packfile)
    }
    return ["" if digest == manyfiles.NOT_DONE or number in lost else digest for digest, _, number in found]


def _record(file: ScannedFile) -> manyfiles.Record:
    s = file.status
    return file.location, f"{s.st_dev}:{s.st_ino}:{s.st_size}:{s.st_mtime_ns}"
