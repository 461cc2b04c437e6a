"""A folder of thousands of small files taken into the store by several processes (`ledger.manyfiles`), linked or copied.

The order is that of every put: bytes are on the disk before a name shows them, and then the names go to the disk. A file that
is linked is hashed after that, a file that is copied when it is read. What is written to meanwhile is noticed by inode, size
and time, and not taken. Whatever is not plain is left to the caller.
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


def take_many(blobs: Blobs, files: Sequence[Found], *, link: bool) -> dict[str, Hashed]:
    """Take these files into the store, by their paths; those that are not in the answer are for the caller to put.

    Raises:
        Refused: the store is open for reading only.
        StorageFailed: the disk cannot be written or synced.
    """
    folder = blobs.folder
    if folder is None or threads() < 2 or not group.available():
        return {}
    small = [file for file in files if file.status.st_size <= manyfiles.MOST_BYTES and not (link and file.executable)]
    if len(small) < manyfiles.WORTH:
        return {}
    blobs.check_writable()
    try:
        answers = _taken(small, folder + BLOBS, Path(folder, STORE), link)
    except OSError as error:
        raise storage_failed("could not take files into the store", folder, error) from error
    return {
        file.path: Hashed(f"sha256:{answer}", file.status.st_size, None)
        for file, answer in zip(small, answers, strict=True)
        if answer
    }


def _taken(files: Sequence[Found], blobs: str, store: Path, link: bool) -> list[str]:
    """The digest of each file that is in the store now, in hexadecimal; nothing for the others."""
    records = [
        (file.location, f"{s.st_dev}:{s.st_ino}:{s.st_size}:{s.st_mtime_ns}") for file in files for s in (file.status,)
    ]
    header = HEADER.decode().strip()
    if link:
        group.sync_all(store)
        answers = manyfiles.work("link-in", (blobs, header, ""), records, threads())
        group.sync_all(store)
        return ["" if answer == manyfiles.NOT_DONE else answer for answer in answers]
    store.mkdir(parents=True, exist_ok=True)
    with group.staging(store) as (staging, descriptor):
        answers = manyfiles.work("copy-in", (blobs, header, staging), records, threads())
        group.sync(descriptor)
        pairs = [tuple(answer.split(" ")) for answer in answers if " " in answer]
        named = manyfiles.work("name", (blobs, staging), pairs, threads())
        lost = {pair for pair, answer in zip(pairs, named, strict=True) if answer == manyfiles.NOT_DONE}
        group.sync(descriptor)
    return ["" if answer == manyfiles.NOT_DONE or tuple(answer.split(" ")) in lost else answer[:64] for answer in answers]
