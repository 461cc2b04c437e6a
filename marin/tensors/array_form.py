"""The one form that an array of a token cache has: zarr3 of one axis with the codec ``sharding_indexed``, as Levanter writes it.

zarr's metadata can say much more: chunks of any size, and codecs behind codecs, of which a few bytes become as many as
somebody likes before TensorStore looks at them. So what is not of this form is refused before an array is opened.
"""

from __future__ import annotations

import json
from dataclasses import dataclass
from typing import Any

import numpy as np

MOST_METADATA = 1 << 16
"""Bytes of ``zarr.json``."""
MOST_CHUNK = 1 << 24
"""Bytes of a chunk's elements."""
_MOST_INDEX = 1 << 20
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
