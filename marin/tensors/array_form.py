"""The forms that stored zarr3 arrays have: a token cache's, of one axis with the codec ``sharding_indexed``, as Levanter writes
it; and a tensor's in a checkpoint of the first form, whose chunks are their elements.

zarr's metadata can say much more: chunks of any size, and codecs behind codecs, of which a few bytes become as many as
a user likes before TensorStore looks at them. So what is not of these forms is refused before an array is opened, and
what a chunk's own head claims before it is decoded.
"""

from __future__ import annotations

import json
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_METADATA = 1 << 16
"""Bytes of ``zarr.json``."""
MOST_CHUNK = 1 << 24
"""Bytes of a chunk's elements."""
_MOST_INDEX = 1 << 20
ABSENT = 2**64 - 1
"""In the place of a chunk that is not stored: all of it is the fill value."""
_HEAD = 16
"""Bytes of a chunk's own head (c-blosc, "Blosc header format"): at 4, how many bytes it decodes to."""
_NUMPY = {"int32": "<i4", "int64": "<i8", "uint8": "u1"}
_INDEX = [{"name": "bytes", "configuration": {"endian": "little"}}, {"name": "crc32c"}]


@dataclass(frozen=True)
class ArrayForm:
    """An array's form. ``file``, ``chunk``: elements of a file, and of each chunk in it; ``codecs``: of a chunk."""

    dtype: np.dtype[Any]
    file: int
    chunk: int
    codecs: list[Any]

    @classmethod
    def parse(cls, metadata: bytes, dtype: str) -> ArrayForm:
        """The form that the bytes of a ``zarr.json`` say.

        Args:
            dtype: ``int32``, ``int64`` or ``uint8``, the one that the array has to have.

        Raises:
            ValueError: another form.
        """
        try:
            if len(metadata) > MOST_METADATA:
                raise ValueError(f"more than {MOST_METADATA} bytes of metadata")
            told = json.loads(metadata)
            (file,) = told["chunk_grid"]["configuration"]["chunk_shape"]
            (codec,) = told["codecs"]
            inner = codec["configuration"]
            (chunk,) = inner["chunk_shape"]
            if told["data_type"] != dtype:
                raise ValueError(f"data_type {str(told['data_type'])[:80]}, not {dtype}")
            plain = (told["chunk_key_encoding"], codec["name"], inner.get("index_location", "end"), told["fill_value"])
            known = plain == ({"name": "default"}, "sharding_indexed", "end", 0) and inner["index_codecs"] == _INDEX
            sizes = all(type(size) is int and size > 0 for size in (file, chunk))
            names = [one["name"] for one in inner["codecs"]]
            if not known or not sizes or file % chunk or names != ["bytes", "blosc"]:
                raise ValueError("another form")
            form = cls(np.dtype(_NUMPY[dtype]), file, chunk, inner["codecs"])
            if 16 * form.chunks > _MOST_INDEX or chunk * form.dtype.itemsize > MOST_CHUNK:
                raise ValueError(f"chunks of {chunk} in files of {file} elements"[:200])
        except (ValueError, KeyError, TypeError, RecursionError) as error:
            raise ValueError(" ".join(f"{type(error).__name__}: {error}".split())[:200]) from error
        return form

    @property
    def chunks(self) -> int:
        """Chunks of a file."""
        return self.file // self.chunk

    def index(self, size: int, read: Callable[[int, int], bytes]) -> np.ndarray:
        """uint64[chunks, 2]: where each chunk of a file begins, and its bytes; ``ABSENT`` twice for one that is not stored. Four
        bytes of CRC32C end it, which are for anyone who has nothing better.

        Args:
            size: of the file, in bytes.
            read: some of its bytes: the first place, and how many.

        Raises:
            ValueError: the file is shorter than its index, or a chunk is not in it.
        """
        length = 16 * self.chunks
        if size < length + 4:
            raise ValueError(f"{size} bytes")
        index = np.frombuffer(read(size - length - 4, length), "<u8").reshape(-1, 2)
        for begin, stored in index.tolist():
            if (begin, stored) != (ABSENT, ABSENT) and (begin + stored > size or stored > 2 * MOST_CHUNK):
                raise ValueError(f"a chunk of {stored} bytes at {begin} of {size}")
        return index

    def check_head(self, head: bytes) -> None:
        """Look at the first bytes of a stored chunk.

        Raises:
            ValueError: it would decode to another number of bytes than a chunk has.
        """
        told, honest = int.from_bytes(head[4:8], "little"), self.chunk * self.dtype.itemsize
        if len(head) < _HEAD or told != honest:
            raise ValueError(f"a chunk that claims {told} bytes, not {honest}")

    def check_file(self, size: int, read: Callable[[int, int], bytes]) -> None:
        """Look at the heads of all chunks of a file; arguments as :meth:`index`.

        Raises:
            ValueError: as :meth:`index` and :meth:`check_head`.
        """
        for begin, stored in self.index(size, read).tolist():
            if begin != ABSENT:
                self.check_head(read(begin, min(stored, _HEAD)))


def check_plain(metadata: bytes) -> None:
    """Look at the bytes of the ``zarr.json`` of a checkpoint's tensor: its chunks are their elements, none larger than it.

    Raises:
        ValueError: another form.
    """
    try:
        if len(metadata) > MOST_METADATA:
            raise ValueError(f"more than {MOST_METADATA} bytes of metadata")
        told = json.loads(metadata)
        shape, grid, codecs = told["shape"], told["chunk_grid"], told["codecs"]
        chunk = grid["configuration"]["chunk_shape"]
        if grid["name"] != "regular" or len(chunk) != len(shape):
            raise ValueError("another grid of chunks")
        if codecs not in ([{"name": "bytes", "configuration": {"endian": "little"}}], [{"name": "bytes"}]):
            raise ValueError(f"codecs {json.dumps(codecs)[:200]}")
        if any(part > max(1, whole) for part, whole in zip(chunk, shape, strict=True)):
            raise ValueError("chunks larger than the tensor")
    except (ValueError, KeyError, TypeError, RecursionError) as error:
        raise ValueError(" ".join(f"{type(error).__name__}: {error}".split())[:300]) from error
