"""The token cache as it is read: Levanter's own store of token ids (TensorStore, zarr3).

Levanter reads it as any cache of its own (``TreeCache``, field ``input_ids``, and of chat documents ``loss_mask``).

The files of a cache are not canonical (compression, chunking, a library's version), so it is named by its content
(:mod:`marin.tensors.token_caches`): the digest of a state whose tensors are the token ids, the offsets of documents and,
of chat documents, the loss mask (:mod:`marin.training.tokens.loss_mask`). :mod:`marin.training.tokens.building` writes it.
"""

from __future__ import annotations

import asyncio
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from ledger import StoredFolder
from marin.tensors.reading import unreadable
from marin.tensors.token_caches import FIELD, LEDGER, document_offsets, open_field, unfinished
from marin.training.tokens.stored import StoredCache

if TYPE_CHECKING:
    from numpy.typing import NDArray

BLANK = -1
"""Stands where an excluded document's token was (:mod:`marin.data.exclusion`). No tokenizer has it."""
Cache = Path | StoredFolder
"""Where the cache of a split is: in a folder, or in a stored tree that is read where it lies."""


class TokenCache(Protocol):
    """A cache that is open: a stream of so many ``tokens``."""

    tokens: int

    async def read(self, places: Sequence[int], length: int) -> Sequence[NDArray[np.int32]]:
        """int32[length] from each of these places of the stream on."""
        ...


class FolderCache:
    """One that lies in a folder.

    Raises:
        DataError: there is none, it was not finished, or it is not of the form that Levanter writes.
    """

    def __init__(self, folder: Path) -> None:
        if not (folder / LEDGER).is_file():
            raise unfinished(folder.name, f"no {LEDGER}")
        self.tokens = count_tokens(folder)
        self._stream: Any = open_field(folder, f"{FIELD}/data")

    async def read(self, places: Sequence[int], length: int) -> Sequence[NDArray[np.int32]]:
        """As :class:`TokenCache` says."""
        try:
            return await asyncio.gather(*(self._stream[place : place + length].read() for place in places))
        except (ValueError, KeyError, OSError, RuntimeError) as error:
            raise unreadable(f"{FIELD}/data", error) from error


def open_cache(folder: Cache) -> TokenCache:
    """The cache, to read sequences of its stream.

    Raises:
        DataError: there is none, it was not finished, or it is not of the form that Levanter writes.
    """
    return StoredCache(folder) if isinstance(folder, StoredFolder) else FolderCache(folder)


def read_tokens(folder: Cache) -> tuple[NDArray[np.int32], NDArray[np.int64]]:
    """The whole cache: the token stream, and the offsets of its documents with the end.

    Raises:
        DataError: there is none, it was not finished, or it is not of the form that Levanter writes.
    """
    if isinstance(folder, StoredFolder):
        stored = StoredCache(folder)
        return stored.data[0 : stored.tokens], stored.offsets()
    offsets = document_offsets(folder)
    stream = open_field(folder, f"{FIELD}/data")[: int(offsets[-1])]
    return np.asarray(stream.read().result(), dtype=np.int32), offsets


def count_tokens(folder: Cache) -> int:
    """How many tokens a cache has, by its own account. Raises as :func:`read_tokens`."""
    return StoredCache(folder).tokens if isinstance(folder, StoredFolder) else int(document_offsets(folder)[-1])
