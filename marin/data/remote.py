"""One public file, pinned by its sha256: from a mirror folder, from the store, or over HTTPS.

The bytes are the same wherever they come from, or they are refused: a mirror that holds something else stops the stage,
it is not passed over in silence. A download goes to a file of its own that is renamed when its digest is right and
removed otherwise. Once fetched, the file is kept in the artifact store, so that the stage can be executed again without
a network.
"""

from __future__ import annotations

import logging
import os
import shutil
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO

from ledger import NotFound, Store, Tampered
from marin.data.local import SourceFile
from marin.data.network.fetching import Pinned, fetch
from marin.errors import DataError
from marin.recipe.schema import UrlDataset

log = logging.getLogger(__name__)

_BLOCK = 1 << 16


def obtain(dataset: UrlDataset, store: Store, scratch: Path, *, pause: Callable[[float], None] = time.sleep) -> Path:
    """A local copy of the dataset's file, its digest checked.

    Raises:
        DataError: the bytes found are not the declared ones, or they are nowhere to be had.
    """
    mirror = mirrored(dataset.mirror)
    if mirror is not None:
        check(mirror, dataset)
        _keep(mirror, store)
        return mirror
    scratch.mkdir(parents=True, exist_ok=True)
    kept = scratch / f"{dataset.sha256}.txt"
    if kept.exists() and SourceFile(kept, kept.name).digest() == f"sha256:{dataset.sha256}":
        return kept
    if _from_store(dataset, store, kept):
        return kept
    download(dataset, kept, pause=pause)
    _keep(kept, store)
    return kept


def mirrored(name: str) -> Path | None:
    """The file ``name`` below the folder ``MARIN_DATA``, if both are there.

    Raises:
        DataError: the name leads out of the folder.
    """
    folder = os.environ.get("MARIN_DATA")
    if not folder:
        return None
    if ".." in Path(name).parts:
        raise DataError(
            "mirror name leads out of its folder",
            where="dataset.mirror",
            expected="a path without ..",
            found=name,
            cure="name the file relative to MARIN_DATA",
        )
    path = Path(folder) / name
    return path if path.is_file() else None


def check(path: Path, dataset: UrlDataset) -> None:
    """Compare a local file with the declared digest.

    Raises:
        DataError: it is another.
    """
    found = SourceFile(path, path.name).digest()
    if found != f"sha256:{dataset.sha256}":
        raise DataError(
            "checksum mismatch",
            where=str(path),
            expected=f"sha256:{dataset.sha256} ({dataset.size} bytes)",
            found=f"{found} ({path.stat().st_size} bytes)",
            cure="replace the file, or unset MARIN_DATA to fetch it",
        )


def _keep(path: Path, store: Store) -> None:
    """Put the raw bytes into the store; one that is read only is left as it is."""
    if store.storage.writable:
        store.put_file(path, plain=True)  # found by the checksum that the recipe pins


def _from_store(dataset: UrlDataset, store: Store, target: Path) -> bool:
    try:
        with store.open(f"sha256:{dataset.sha256}") as stored, _whole(target) as file:
            shutil.copyfileobj(stored, file, _BLOCK)
    except NotFound:
        return False
    except Tampered as error:
        log.warning("the stored copy is damaged and not used: %s", error)
        return False
    return True


@contextmanager
def _whole(target: Path) -> Iterator[BinaryIO]:
    """A file that appears under its name when the block ends well, and not at all otherwise."""
    partial = target.with_name(f".tmp-{target.name}")
    try:
        with partial.open("wb") as file:
            yield file
            file.flush()
            os.fsync(file.fileno())
        partial.replace(target)
    finally:
        partial.unlink(missing_ok=True)


def download(dataset: UrlDataset, target: Path, *, pause: Callable[[float], None] = time.sleep) -> None:
    """Fetch the file over HTTPS to ``target``; a failed attempt is repeated, with growing pauses.

    Raises:
        DataError: the server has other bytes, refuses, or cannot be reached; nothing is left behind.
        DataMissing: data cannot be fetched.
    """
    file = Pinned((dataset.url,), dataset.size, f"sha256:{dataset.sha256}")
    fetch(file, target, pause=pause, cure=f"check the network, or put the file at MARIN_DATA/{dataset.mirror}")
