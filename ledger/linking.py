"""A folder of thousands of small files given to the store: linked, not copied, by several processes (`ledger.manyfiles`).

The order is that of every put: all bytes are hashed, then on the disk, then under their names, then the names are on the
disk. What was changed between being hashed and being linked is noticed by inode, size and time, and not linked.
A blob that is there already, and whatever else is not plain, is left to the caller.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from pathlib import Path

from ledger import manyfiles
from ledger.blobs import Blobs
from ledger.hashing import Hashed, threads
from ledger.parts import HEADER
from ledger.storage import group
from ledger.storage.failure import storage_failed
from ledger.storelayout import STORE, blob_name


def link_many(blobs: Blobs, locations: Sequence[str]) -> dict[str, Hashed]:
    """Share these files with the store; those that are not in the answer are for the caller to put.

    Raises:
        StorageFailed: the disk cannot be synced.
    """
    folder = blobs.folder
    if folder is None or len(locations) < manyfiles.WORTH or threads() < 2 or not group.available():
        return {}
    answers = manyfiles.work("hash", [(location, HEADER.decode().strip()) for location in locations], threads())
    first: dict[str, tuple[str, str]] = {}
    hashed: dict[str, Hashed] = {}
    for location, answer in zip(locations, answers, strict=True):
        value, _, which = answer.partition(" ")
        if which:
            digest = f"sha256:{value}"
            first.setdefault(digest, (location, which))
            hashed[location] = Hashed(digest, int(which.split(":")[2]), None)
    try:
        for parent in {(folder + blob_name(digest)).rpartition("/")[0] for digest in first}:
            os.makedirs(parent, exist_ok=True)
        group.sync_all(Path(folder, STORE))
        records = [(location, folder + blob_name(digest), which) for digest, (location, which) in first.items()]
        linked = manyfiles.work("link", records, threads())
        group.sync_all(Path(folder, STORE))
    except OSError as error:
        raise storage_failed("could not link files into the store", folder, error) from error
    done = {digest for digest, answer in zip(first, linked, strict=True) if answer == "+"}
    return {location: one for location, one in hashed.items() if one.digest in done}
