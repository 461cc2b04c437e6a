"""The loss mask of a token cache as it is read: uint8[n], 1 for each token that is learned."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ledger import StoredFolder
from marin.tensors.token_caches import MASK, MASK_FILE, has_column, open_field
from marin.training.tokens.stored import StoredArray

if TYPE_CHECKING:
    from numpy.typing import NDArray


class Mask(Protocol):
    """A loss mask, read where it is asked: ``mask[start:stop]`` is uint8[stop - start]."""

    def __getitem__(self, span: slice, /) -> NDArray[np.uint8]: ...


def open_mask(cache: Path | StoredFolder) -> Mask | None:
    """The loss mask of a cache, in a folder or stored; None for one where every token is learned.

    Raises:
        DataError: it is not of the form that Levanter writes.
        NotFound, Tampered: stored bytes are not there, or not what they were.
    """
    if isinstance(cache, StoredFolder):
        if cache.size(f"{MASK}/data/zarr.json") is not None:
            return StoredArray(cache / MASK / "data", "uint8")
        return None if cache.size(MASK_FILE) is None else _StoredFile(cache)
    if has_column(cache):
        return _Column(open_field(cache, f"{MASK}/data"))
    path = cache / MASK_FILE
    return np.memmap(path, dtype=np.uint8, mode="r") if path.is_file() else None


@dataclass(frozen=True)
class _Column:
    """An array of TensorStore."""

    array: Any

    def __getitem__(self, span: slice) -> NDArray[np.uint8]:
        return np.asarray(self.array[span].read().result(), dtype=np.uint8)


@dataclass(frozen=True)
class _StoredFile:
    """The earlier form, stored."""

    folder: StoredFolder

    def __getitem__(self, span: slice) -> NDArray[np.uint8]:
        return np.frombuffer(self.folder.read(MASK_FILE, span.start, span.stop - span.start), np.uint8)
