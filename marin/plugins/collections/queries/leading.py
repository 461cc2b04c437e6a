"""Where the evidence of duplicates leads: to a document that is kept, or was until sampling, each of them, or it is named."""

from __future__ import annotations

from collections.abc import Iterator

import pyarrow as pa
import pyarrow.compute as pc

from marin.plugins.collections.making.make import EXACT_STEP, NEAR_STEP
from marin.plugins.collections.queries.documents import Collection


def led_nowhere(collection: Collection) -> Iterator[str]:
    """A line for each duplicate that was removed for a document which is not there, also by way of one that was itself removed as
    a near-duplicate. One that only sampling took away was there.

    Raises:
        DataError: a file of the collection cannot be read.
    """
    tables = {path: collection.table(path) for path in collection.files("duplicates")}
    near = [table for table in tables.values() if "shared" in table.column_names]
    kept = _ids([collection.table(path, ("id",)) for path in collection.files("documents")])
    there = {NEAR_STEP: kept, EXACT_STEP: pa.concat_arrays([kept, _ids(near)])}
    for path, table in tables.items():
        step = NEAR_STEP if "shared" in table.column_names else EXACT_STEP
        rows = table.filter(pc.invert(pc.is_in(table["kept"], value_set=there[step]))).to_pylist()
        away = collection.sampled_away({row["kept"] for row in rows})
        for row in (row for row in rows if row["kept"] not in away):
            yield f"{step}: {path}: document {row['id']} was removed for {row['kept']}, which is not kept"


def _ids(tables: list[pa.Table]) -> pa.Array:
    return pa.concat_arrays([chunk for table in tables for chunk in table["id"].chunks] or [pa.array([], pa.string())])
