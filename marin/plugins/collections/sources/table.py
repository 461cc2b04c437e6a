"""Rows of a Parquet file as mappings of plain values: only the columns that are wanted, read a few hundred rows at a time.

What Python has no value for is the text that Arrow's own cast has: decimals, dates, times and durations, whatever their years and
zones. A time whose zone is not known to this machine is told in UTC. Bytes are text where they are UTF-8, as many programs write
text.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any
from uuid import UUID

if TYPE_CHECKING:
    import pyarrow as pa

ROWS, BUFFER = 512, 1 << 20
DISPLAY = 200
"""Characters of a message."""


@dataclass(frozen=True)
class Unreadable:
    """In the place of a value: why there is none."""

    found: str


class NoTable(Exception):
    """The file cannot be read, or no further: ``reason`` of the contract, ``found``, behind ``row`` rows."""

    def __init__(self, reason: str, found: str) -> None:
        super().__init__(reason, found)
        self.reason, self.found = reason, " ".join(found.split())[:DISPLAY]


@dataclass(frozen=True)
class Columns:
    """``text``: the field of the text. ``fields``: those of the metadata; None for all that are single values."""

    text: str = "text"
    fields: tuple[str, ...] | None = None


def rows(path: Path, wanted: Columns, start: int, end: int) -> tuple[tuple[str, ...], Iterator[dict[str, object]]]:
    """Names of the columns that are left out, and the rows of the row groups ``[start, end)``, to the last for ``end`` 0.

    Raises:
        NoTable: it is not a Parquet file, has no such text, or is damaged; also while rows are taken.
        OSError: the file cannot be opened or read from.
    """
    import pyarrow.parquet as pq

    with _arrow_errors():
        # Page by page: without a buffer a column of a whole row group is in memory.
        file = pq.ParquetFile(path, coerce_int96_timestamp_unit="us", buffer_size=BUFFER, pre_buffer=False)
    try:
        names = [field.name for field in file.schema_arrow]
        if wanted.text not in names and not _inner(file.schema_arrow, wanted.text):
            raise NoTable("no text", f"columns {', '.join(names)}")
        if names.count(wanted.text) > 1:
            raise NoTable("no text", f"{names.count(wanted.text)} columns {wanted.text}")
        columns, left = _chosen(file.schema_arrow, wanted)
    except BaseException:
        file.close()
        raise
    return left, _rows(file, columns, start, end)


def _rows(file: Any, columns: Sequence[str], start: int, end: int) -> Iterator[dict[str, object]]:
    with file, _arrow_errors():
        groups = range(start, end or file.num_row_groups)
        for batch in file.iter_batches(ROWS, row_groups=groups, columns=list(columns)):
            names = batch.schema.names
            for row in zip(*map(values, batch.columns), strict=True):
                yield dict(zip(names, row, strict=True))


def _chosen(schema: pa.Schema, wanted: Columns) -> tuple[list[str], tuple[str, ...]]:
    """The columns to read, an inner one by its path, and names of those that are left out though nobody named any."""
    import pyarrow as pa

    names = [field.name for field in schema]
    columns = [name for name in (wanted.text, "added", "created") if name == wanted.text or name in names]
    left: list[str] = []
    if wanted.fields is not None:
        for name in wanted.fields:
            inside = f"metadata.{name}"
            columns += [name] if name in names or _inner(schema, name) else [inside] if _inner(schema, inside) else []
        return columns, ()
    for field in schema:
        if field.name in columns:
            continue
        parts = {field.name: field.type}
        if field.name == "metadata" and pa.types.is_struct(field.type):
            parts = {f"metadata.{inner.name}": inner.type for inner in field.type}
        for name, kind in parts.items():
            around = wanted.text.startswith(f"{name}.")
            if name == wanted.text or (around and kind.num_fields == 1):
                continue
            map_of_single = name == "metadata" and pa.types.is_map(kind) and _is_single(kind.item_type)
            (columns if map_of_single or _is_single(kind) else left).append(name)
    return columns, tuple(left)


def _inner(schema: pa.Schema, name: str) -> bool:
    """Whether a path of names leads to a column inside of structures."""
    first, *rest = name.split(".")
    kind = schema.field(first).type if rest and schema.names.count(first) == 1 else None
    for key in rest:
        place = (
            kind.get_field_index(key)
            if kind is not None and kind.num_fields and hasattr(kind, "get_field_index")
            else -1
        )
        kind = kind.field(place).type if kind is not None and place >= 0 else None
    return kind is not None


def _is_single(kind: pa.DataType) -> bool:
    """Whether values are single ones that have a text. Bytes have none: a picture is not metadata unless it is named."""
    import pyarrow as pa

    if pa.types.is_dictionary(kind):
        return _is_single(kind.value_type)
    if isinstance(kind, pa.BaseExtensionType):
        return isinstance(kind, pa.UuidType) or _is_single(kind.storage_type)
    return not pa.types.is_nested(kind) and not _is_bytes(kind)


def _is_bytes(kind: pa.DataType) -> bool:
    import pyarrow as pa

    is_kind = pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary, pa.types.is_binary_view
    return any(one(kind) for one in is_kind)


def values(array: pa.Array) -> list[object]:
    """A column as ``str``, ``int``, ``float``, ``bool`` and None, in lists and mappings where it nests."""
    import pyarrow as pa
    import pyarrow.compute as pc

    kind = array.type
    if pa.types.is_dictionary(kind):
        return values(array.dictionary_decode())
    if isinstance(kind, pa.BaseExtensionType):
        if isinstance(kind, pa.UuidType):
            return [None if one is None else str(UUID(bytes=one)) for one in array.storage.to_pylist()]
        return values(array.storage)
    if pa.types.is_struct(kind):
        names = [kind.field(place).name for place in range(kind.num_fields)]
        inner = [values(pc.struct_field(array, [place])) for place in range(kind.num_fields)]
        found = zip(array.is_valid().to_pylist(), zip(*inner, strict=True), strict=True)
        return [dict(zip(names, row, strict=True)) if has else None for has, row in found]
    if pa.types.is_map(kind):
        whole = array.cast(pa.list_(pa.struct([("key", kind.key_type), ("value", kind.item_type)])))
        return [_as_mapping(pairs) for pairs in values(whole)]
    if pa.types.is_nested(kind):
        return _lists(array)
    if _is_bytes(kind) or pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind):
        return _texts(array)
    if pa.types.is_boolean(kind) or pa.types.is_integer(kind) or pa.types.is_null(kind):
        return list(array.to_pylist())
    if pa.types.is_floating(kind):
        return list((array.cast(pa.float32()) if pa.types.is_float16(kind) else array).to_pylist())
    return _said_as_text(array)


def _as_mapping(pairs: object) -> object:
    if not isinstance(pairs, list):
        return None
    return {str(pair["key"]): pair["value"] for pair in pairs}


def _lists(array: pa.Array) -> list[object]:
    import pyarrow as pa
    import pyarrow.compute as pc

    try:
        counts = pc.list_value_length(array).to_pylist()
        inner = values(array.flatten())
    except (pa.ArrowException, AttributeError):  # a union
        return [Unreadable(str(array.type)[:DISPLAY])] * len(array)
    found: list[object] = []
    place = 0
    for count in counts:
        found.append(None if count is None else inner[place : place + count])
        place += count or 0
    return found


def _texts(array: pa.Array) -> list[object]:
    """Of texts and bytes that are UTF-8 the text."""
    import pyarrow as pa

    try:
        if not _is_bytes(array.type):
            return list(array.to_pylist())
        return [None if one is None else one.decode() for one in array.to_pylist()]
    except UnicodeDecodeError:
        pass  # one of them, or several
    view = pa.types.is_string_view(array.type) or pa.types.is_binary_view(array.type)
    kind = pa.binary_view() if view else pa.large_binary()
    return [_decoded(one) for one in array.cast(kind).to_pylist()]


def _decoded(data: bytes | None) -> object:
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError as error:
        return Unreadable(f"byte {error.start}")


def _said_as_text(array: pa.Array) -> list[object]:
    import pyarrow as pa

    kind = array.type
    try:
        return list(array.cast(pa.string()).to_pylist())
    except pa.ArrowException as error:
        if not pa.types.is_timestamp(kind) or kind.tz is None:
            return [Unreadable(" ".join(str(error).split())[:DISPLAY])] * len(array)
    in_utc = array.cast(pa.timestamp(kind.unit)).cast(pa.string()).to_pylist()
    return [None if one is None else f"{one}Z" for one in in_utc]


@contextmanager
def _arrow_errors() -> Iterator[None]:
    """What Arrow says of a file is :class:`NoTable`; what the machine says stays an OSError."""
    import pyarrow as pa

    try:
        yield
    except (pa.ArrowException, OSError, ValueError, NotImplementedError) as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, pa.ArrowException):
            raise
        if isinstance(error, MemoryError):
            raise
        said = str(error)
        reason = "not supported" if isinstance(error, NotImplementedError) else "damaged file"
        raise NoTable("encrypted file" if "encrypt" in said or "decrypt" in said else reason, said) from None
