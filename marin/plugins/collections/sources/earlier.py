"""How Parquet files and the fields of a line were read before definition 2, and what pages said before 3: for collections that
were recorded so.

All columns became Python's values, so that one date beyond its years, or a zone that it does not know, ended the file. Values
that are not text, number or truth were left out of the metadata, as were numbers that are not finite.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, TypeGuard
from zoneinfo import ZoneInfo, ZoneInfoNotFoundError

from marin.plugins.collections.document import MARKUP, MOST_BYTES, Document, Problem, Scalar, document_id

if TYPE_CHECKING:
    from pyarrow import RecordBatch

ROWS = 512


def without_markup(items: Iterator[Document | Problem]) -> Iterator[Document | Problem]:
    """Documents that do not say whose rules their markup has."""
    for item in items:
        if isinstance(item, Document) and MARKUP in item.metadata:
            item = replace(item, metadata={key: one for key, one in item.metadata.items() if key != MARKUP})
        yield item


def parquet(path: Path, source: str, field: str, start: int, end: int, first: int) -> Iterator[Document | Problem]:
    """The documents of a Parquet file."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    number = first - 1
    try:
        with pq.ParquetFile(path) as file:
            if field not in file.schema_arrow.names:
                yield Problem(source, 0, "no text", f"columns {', '.join(file.schema_arrow.names)}"[:200])
                return
            groups = range(start, end or file.num_row_groups)
            for batch in file.iter_batches(ROWS, row_groups=groups):
                _check_zones(batch)
                for row in _rows(batch):
                    number += 1
                    if isinstance(row, str):
                        yield Problem(source, number, "not UTF-8", row)
                    else:
                        yield document(source, number, row, field)
    except (pa.ArrowException, OSError, ValueError) as error:
        if isinstance(error, OSError) and error.errno is not None and not isinstance(error, pa.ArrowException):
            raise
        yield Problem(source, number + 1 if number else 0, "damaged file", " ".join(str(error).split())[:200])


def _check_zones(batch: RecordBatch) -> None:
    """Refuse times in a zone that Python's zoneinfo does not know, as Arrow does where pytz is not installed: what is recorded
    does not depend on which packages are beside."""
    import pyarrow as pa

    for field, column in zip(batch.schema, batch.columns, strict=True):
        zone = field.type.tz if pa.types.is_timestamp(field.type) else None
        if zone is not None and column.null_count < len(column) and not _is_known(zone):
            raise pa.ArrowInvalid("The zoneinfo module or pytz package must be installed.")


def _is_known(zone: str) -> bool:
    if re.fullmatch(r"[+-][0-9]{2}:[0-9]{2}", zone):
        return True
    try:
        ZoneInfo(zone)
    except (ZoneInfoNotFoundError, ValueError):
        return False
    return True


def _rows(batch: RecordBatch) -> Iterator[Mapping[str, object] | str]:
    """The rows of a batch; of one that is not UTF-8 what is wrong with it."""
    try:
        yield from batch.to_pylist()
        return
    except UnicodeDecodeError:
        pass  # one of them, or several
    for number in range(batch.num_rows):
        try:
            (row,) = batch.slice(number, 1).to_pylist()
        except UnicodeDecodeError as error:
            yield f"byte {error.start}"
        else:
            yield row


def document(source: str, number: int, value: Mapping[str, object], field: str) -> Document | Problem:
    """The document of a line or a row."""
    text = value.get(field)
    if not isinstance(text, str):
        return Problem(source, number, "no text", "no such field" if field not in value else type(text).__name__)
    if not text.strip():
        return Problem(source, number, "empty text")
    try:
        size = len(text.encode("utf-8"))
    except UnicodeEncodeError as error:
        return Problem(source, number, "not Unicode", f"a lone surrogate at character {error.start}")
    if size > MOST_BYTES:
        return Problem(source, number, "too large", f"{size} bytes")
    metadata: dict[str, Scalar] = {}
    inner = value.get("metadata")
    for fields in (inner if isinstance(inner, Mapping) else {}, value):
        metadata |= {
            str(key): one for key, one in fields.items() if key not in (field, "added", "created") and _is_single(one)
        }
    return Document(
        document_id(source, number, text),
        text,
        source,
        str(value.get("added") or ""),
        str(value.get("created") or ""),
        metadata | {"position": number},
    )


def _is_single(value: object) -> TypeGuard[str | int | float]:
    if isinstance(value, float):
        return math.isfinite(value)
    return isinstance(value, str | int)
