"""Parquet files and JSON lines by six writers and by hand, beside pyarrow, DuckDB and Python's json: rows, texts, metadata."""

from __future__ import annotations

import bz2
import datetime as d
import decimal
import gzip
import io
import json
import lzma
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import orjson
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
import pytest
import zstandard

from marin.data.local import SourceFile, read_file
from marin.errors import DataError
from marin.plugins.collections.document import Document
from marin.plugins.collections.sources import lines

Compare = Callable[..., None]
TEXTS = [
    "A first line.",
    "Zwei Wörter",
    "三つの文",
    "quotes \" and \\ and 'x'",
    "line\nbreaks\r\nand\ttabs",
    "last \u2028 one",
]
N = len(TEXTS)
DAY = 86_400_000


def read(path: Path, field: str = "text", names: tuple[str, ...] | None = None) -> list[Document]:
    """All documents; a refusal where anything gives none."""
    items = list(lines.read(path, path.name, text_field=field, fields=names))
    for item in items:
        if not isinstance(item, Document):
            raise DataError(
                item.reason, where=f"{path.name}:{item.position}", expected="a document", found=item.found, cure="-"
            )
    return [item for item in items if isinstance(item, Document)]


def metadata(documents: list[Document]) -> list[dict[str, Any]]:
    return [{key: value for key, value in one.metadata.items() if key != "position"} for one in documents]


# Parquet


def times(unit: str, zone: str | None = None) -> pa.Array:
    return pa.array([0, 1, -1, None, 1_700_000_000, 5], pa.timestamp(unit, tz=zone))


EXTRA: dict[str, Callable[[], pa.Array]] = {
    "int8": lambda: pa.array([1, -128, None, 0, 5, 127], pa.int8()),
    "uint64": lambda: pa.array([2**64 - 1, 2**63, 0, None, 1, 2], pa.uint64()),
    "float16": lambda: pa.array(np.array([1.5, 0.1, 65504, -0.0, 2, 3], np.float16)),
    "float32": lambda: pa.array([0.1, 1e38, -1.5, None, 2.5, 0.0], pa.float32()),
    "float64": lambda: pa.array([0.1, 1e308, 5e-324, None, -0.0, 3e-11]),
    "not-finite": lambda: pa.array([math.nan, math.inf, -math.inf, None, 1.0, 2.0]),
    "bool": lambda: pa.array([True, False, None, True, False, True]),
    "null": lambda: pa.nulls(N),
    "decimal128": lambda: pa.array(
        [None, *map(decimal.Decimal, ("1.5", "-3.25", "0", "99999.99", "1"))], pa.decimal128(10, 2)
    ),
    "decimal256": lambda: pa.array([decimal.Decimal(10) ** 50 + number for number in range(N)], pa.decimal256(60, 4)),
    "date32": lambda: pa.array([0, 2_932_896, -1, None, 1, 19_000], pa.date32()),
    "date32-year-10000": lambda: pa.array([2_932_897, 5_000_000, -800_000, None, 1, 2], pa.date32()),
    "date64": lambda: pa.array([0, DAY, 253_402_300_800_000, None, 1, 2], pa.date64()),
    "time32": lambda: pa.array([1, 2, None, 3, 4, 86_399_999], pa.time32("ms")),
    "time64": lambda: pa.array([1, 2, None, 3, 4, 86_399_999_999_999], pa.time64("ns")),
    **{f"timestamp-{unit}": (lambda unit=unit: times(unit)) for unit in ("s", "ms", "us", "ns")},
    "timestamp-year-10000": lambda: pa.array([253_402_300_800_000, 2**62, -(2**62), None, 1, 2], pa.timestamp("ms")),
    **{f"zone-{zone}": (lambda zone=zone: times("ms", zone)) for zone in ("UTC", "+05:30", "Europe/Paris")},
    "duration": lambda: pa.array([2**62, -(2**62), 0, None, 1, 2], pa.duration("s")),
    "dictionary": lambda: pa.array(["x", "y", "x", None, "y", "z"]).dictionary_encode(),
    "large_string": lambda: pa.array(["x", "ü", None, "", "b", "c"], pa.large_string()),
    "string_view": lambda: pa.array(["x", "a longer text than twelve", None, "", "b", "c"], pa.string_view()),
    "lists": lambda: pa.array([[1], [], None, [1, 2], [3], [4]]),
    "structs": lambda: pa.array([{"a": 1}, {"a": None}, None, {"a": 3}, {"a": 4}, {"a": 5}]),
    "maps": lambda: pa.array([[("a", 1)], [], None, [("b", 2)], [], []], pa.map_(pa.string(), pa.int32())),
    "binary": lambda: pa.array([b"\xff", b"a", None, b"", b"b", b"c"]),
    "fixed": lambda: pa.array([b"\xff\x00"] * N, pa.binary(2)),
}


def reference_rows(path: Path) -> tuple[list[str], list[dict[str, Any]]]:
    """Texts and single values by pyarrow: of each column its own read_table, and where Python has no exact value the cast."""
    table = pq.ParquetFile(path, coerce_int96_timestamp_unit="us").read()
    columns: dict[str, list[Any]] = {}
    for name in table.column_names:
        column, kind = table[name], table[name].type
        if pa.types.is_dictionary(kind):
            column, kind = column.cast(kind.value_type), kind.value_type
        if pa.types.is_nested(kind) or "binary" in str(kind):
            continue
        if pa.types.is_floating(kind):
            said = column.cast(pa.float64()).to_pylist()
            columns[name] = [one if one is None or math.isfinite(one) else json.dumps(one) for one in said]
        elif pa.types.is_temporal(kind) or pa.types.is_decimal(kind):
            columns[name] = pc.cast(column, pa.string()).to_pylist()
        else:
            columns[name] = column.to_pylist()
    texts = columns.pop("text")
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)] or [{} for _ in texts]
    return texts, [{key: value for key, value in row.items() if value is not None} for row in rows]


def table(**more: Any) -> pa.Table:
    return pa.table({"text": TEXTS, "id": [f"n{number}" for number in range(N)], **more})


def arrow(**settings: Any) -> Callable[[Path], None]:
    return lambda path: pq.write_table(table(count=list(range(N)), score=[0.5] * N), path, **settings)


def frame() -> Any:
    import polars as pl

    return pl.DataFrame(
        {
            "text": TEXTS,
            "day": [d.date(2020, 1, 1)] * N,
            "when": [d.datetime(2020, 1, 1, 2, 3, 4, 5)] * N,
            "took": [d.timedelta(days=400, microseconds=3)] * N,
            "at": [d.time(1, 2, 3)] * N,
            "cost": [decimal.Decimal("1.25")] * N,
            "kind": pl.Series(["a", "b"] * 3, dtype=pl.Categorical),
            "tags": [["x"], []] * 3,
            "inner": [{"a": 1}] * N,
            "raw": [b"\xff"] * N,
            "u": pl.Series([2**64 - 1] * N, dtype=pl.UInt64),
        }
    )


def polars(**settings: Any) -> Callable[[Path], None]:
    return lambda path: frame().write_parquet(path, **settings)


DUCK = """SELECT text, i AS id, DATE '9999-12-31' AS day, TIMESTAMP '2020-01-01 02:03:04.000005' AS at, TIME '01:02:03' AS t,
TIMESTAMPTZ '2020-01-01 00:00:00+00' AS z, 1.25::DECIMAL(9,3) AS cost, [1, 2] AS tags, {'a': 1} AS inner_, MAP {'k': 1} AS m,
'\\xFF'::BLOB AS raw, 18446744073709551615::UBIGINT AS u, 'a'::ENUM('a', 'b') AS e, 0.1::FLOAT AS f, TRUE AS yes"""


def duckdb(settings: str, select: str = DUCK) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import duckdb as duck

        with duck.connect() as connection:
            connection.execute("SET timezone='UTC'")
            connection.register("given", pa.table({"text": TEXTS, "i": list(range(N))}))
            connection.execute(f"COPY ({select} FROM given ORDER BY i) TO '{path}' (FORMAT parquet{settings})")

    return write


def pandas(name: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        import pandas as pd

        columns: dict[str, Any] = {
            "index": {"day": pd.date_range("2020-01-01", periods=N)},
            "zones": {"when": pd.date_range("2020-01-01", periods=N, tz="Europe/Berlin")},
            "category": {"kind": pd.Categorical(["a", "b"] * 3)},
            "nullable": {
                "count": pd.array([1, None, 3, 4, 5, 6], dtype="Int64"),
                "yes": pd.array([True, None] * 3, dtype="boolean"),
            },
            "deltas": {"took": pd.to_timedelta(range(N), unit="h")},
            "decimals": {"cost": [decimal.Decimal("1.5")] * N},
        }[name]
        made = pd.DataFrame({"text": TEXTS, **columns})
        (made.set_index(pd.Index(list("abcdef"), name="key")) if name == "index" else made).to_parquet(path)

    return write


def datasets(name: str) -> Callable[[Path], None]:
    def write(path: Path) -> None:
        from datasets import ClassLabel, Dataset, Features, List, Value

        kinds: dict[str, tuple[Any, list[Any]]] = {
            "label": (ClassLabel(names=["no", "yes"]), [0, 1] * 3),
            "large": (Value("large_string"), ["a"] * N),
            "list": (List(Value("int32")), [[1, 2]] * N),
            "time": (Value("timestamp[us, tz=UTC]"), [d.datetime(2020, 1, 1, tzinfo=d.UTC)] * N),
            "decimal": (Value("decimal128(10, 2)"), [decimal.Decimal("1.25")] * N),
        }
        kind, values = kinds[name]
        Dataset.from_dict(
            {"text": TEXTS, "x": values}, features=Features({"text": Value("string"), "x": kind})
        ).to_parquet(path)

    return write


def groups(path: Path) -> None:
    """Row groups of two rows, with empty ones between."""
    whole = table()
    with pq.ParquetWriter(path, whole.schema) as writer:
        for start in range(0, N, 2):
            writer.write_table(whole.slice(start, 2))
            writer.write_batch(pa.RecordBatch.from_pylist([], schema=whole.schema))


TABLES: dict[str, Callable[[Path], None]] = {
    **{
        f"pyarrow {name}": (lambda path, make=make: pq.write_table(table(x=make()), path))
        for name, make in EXTRA.items()
    },
    **{
        f"pyarrow {codec} pages {pages}": arrow(compression=codec, data_page_version=pages)
        for codec in ("none", "snappy", "gzip", "brotli", "lz4", "zstd")
        for pages in ("1.0", "2.0")
    },
    "pyarrow without dictionaries": arrow(use_dictionary=False, write_statistics=False),
    "pyarrow without its schema": lambda path: pq.write_table(
        table(x=EXTRA["dictionary"](), y=EXTRA["duration"]()), path, store_schema=False
    ),
    "pyarrow delta encodings": arrow(
        use_dictionary=False, column_encoding={"text": "DELTA_BYTE_ARRAY", "id": "DELTA_LENGTH_BYTE_ARRAY"}
    ),
    "pyarrow byte stream split": arrow(use_dictionary=["text"], column_encoding={"score": "BYTE_STREAM_SPLIT"}),
    "pyarrow checksums": arrow(write_page_checksum=True),
    "pyarrow INT96": lambda path: pq.write_table(
        table(x=pa.array([0, -1, 2, None, 253_402_214_400_000_000, 5], pa.timestamp("us"))),
        path,
        use_deprecated_int96_timestamps=True,
    ),
    "pyarrow version 1": arrow(version="1.0"),
    "pyarrow small pages": arrow(data_page_size=8, write_batch_size=1),
    "pyarrow empty row groups": groups,
    "pyarrow no rows": lambda path: pq.write_table(table().slice(0, 0), path),
    "pyarrow only text": lambda path: pq.write_table(pa.table({"text": TEXTS}), path),
    "pyarrow names with points": lambda path: pq.write_table(table(**{"a.b": [1] * N, "": [2] * N}), path),
    **{
        f"polars {codec}": polars(compression=codec)
        for codec in ("uncompressed", "snappy", "gzip", "brotli", "zstd", "lz4")
    },
    "polars row groups": polars(row_group_size=2, statistics=False),
    **{
        f"duckdb {codec}": duckdb(f", COMPRESSION {codec}")
        for codec in ("uncompressed", "snappy", "gzip", "zstd", "lz4_raw", "brotli")
    },
    "duckdb version 2": duckdb(", PARQUET_VERSION v2"),
    **{f"pandas {name}": pandas(name) for name in ("index", "zones", "category", "nullable", "deltas", "decimals")},
    **{f"datasets {name}": datasets(name) for name in ("label", "large", "list", "time", "decimal")},
}


@pytest.mark.table
@pytest.mark.parametrize("name", TABLES)
def test_a_table_has_the_rows_and_values_of_pyarrow(compare: Compare, tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.parquet"
    TABLES[name](path)
    texts, said = reference_rows(path)

    def ours() -> tuple[list[str], list[dict[str, Any]]]:
        found = read(path)
        return [one.text for one in found], metadata(found)

    compare("tables", name, ours, (texts, said))


@pytest.mark.table
@pytest.mark.parametrize("name", [name for name in TABLES if "no rows" not in name])
def test_a_table_has_the_texts_of_duckdb(compare: Compare, tmp_path: Path, name: str) -> None:
    import duckdb as duck

    path = tmp_path / "a.parquet"
    TABLES[name](path)
    try:
        with duck.connect() as connection:
            texts = [text for (text,) in connection.execute(f"SELECT text FROM read_parquet('{path}')").fetchall()]
    except duck.Error as error:
        pytest.skip(f"DuckDB does not read it: {error}")
    compare("tables, DuckDB", name, lambda: [one.text for one in read(path)], texts)


TEXT_COLUMNS: dict[str, Callable[[], Any]] = {
    "string": lambda: pa.array(TEXTS),
    "large_string": lambda: pa.array(TEXTS, pa.large_string()),
    "string_view": lambda: pa.array(TEXTS, pa.string_view()),
    "dictionary": lambda: pa.array(TEXTS).dictionary_encode(),
    "binary": lambda: pa.array([text.encode() for text in TEXTS]),
    "large_binary": lambda: pa.array([text.encode() for text in TEXTS], pa.large_binary()),
    "dictionary of binary": lambda: pa.array([text.encode() for text in TEXTS]).dictionary_encode(),
    "json": lambda: pa.array([json.dumps(text) for text in TEXTS], pa.json_()),
}


@pytest.mark.parametrize("stored", [True, False])
@pytest.mark.parametrize("name", TEXT_COLUMNS)
def test_a_text_is_a_text_whatever_its_column(compare: Compare, tmp_path: Path, name: str, stored: bool) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(pa.table({"text": TEXT_COLUMNS[name]()}), path, store_schema=stored)
    texts = [json.dumps(text) for text in TEXTS] if name == "json" else TEXTS
    compare("columns of text", f"{name}, schema {stored}", lambda: [one.text for one in read(path)], texts)


def test_an_inner_text_is_read_by_its_path(compare: Compare, tmp_path: Path) -> None:
    path, beside = tmp_path / "a.parquet", tmp_path / "a.jsonl"
    rows = [{"a": {"b": text, "c": [1]}, "id": number} for number, text in enumerate(TEXTS)]
    pq.write_table(pa.Table.from_pylist(rows), path)
    beside.write_text("".join(json.dumps(row) + "\n" for row in rows))
    for one in (path, beside):
        compare(
            "columns of text",
            f"a.b of {one.name}",
            lambda one=one: [(item.text, item.metadata["id"]) for item in read(one, "a.b")],
            [(text, number) for number, text in enumerate(TEXTS)],
        )


@pytest.mark.parametrize("zone", ["utc", "GMT+2", "Mars/Olympus"])
def test_a_zone_that_nobody_knows_is_told_in_utc(compare: Compare, tmp_path: Path, zone: str) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(x=pa.array([0, 1, None, 253_402_300_800_000, 5, 6], pa.timestamp("ms", tz=zone))), path)
    naive = pa.array([0, 1, None, 253_402_300_800_000, 5, 6], pa.timestamp("ms")).cast(pa.string()).to_pylist()
    told = [None if one is None else f"{one}Z" for one in naive]
    compare("tables", f"zone {zone}", lambda: [one.metadata.get("x") for one in read(path)], told)


NESTED: dict[str, tuple[Any, Any]] = {
    "lists": (pa.array([[1, None], [], None, [3], [4], [5]]), ["[1,null]", "[]", None, "[3]", "[4]", "[5]"]),
    "lists of days": (pa.array([[2_932_897]] * N, pa.list_(pa.date32())), ['["10000-01-01"]'] * N),
    "fixed lists": (pa.array([[1, 2]] * N, pa.list_(pa.int8(), 2)), ["[1,2]"] * N),
    "structures": (pa.array([{"a": decimal.Decimal("1.50"), "b": "ü"}, None] * 3), ['{"a":"1.50","b":"ü"}', None] * 3),
    "maps": (
        pa.array([[("k", 2**63)], []] * 3, pa.map_(pa.string(), pa.uint64())),
        ['{"k":9223372036854775808}', "{}"] * 3,
    ),
    "bytes that are text": (pa.array(["ü".encode()] * N), ["ü"] * N),
}


@pytest.mark.parametrize("name", NESTED)
def test_what_is_named_is_kept_as_json(compare: Compare, tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.parquet"
    values, said = NESTED[name]
    # Sliced rows: offsets of what is nested do not begin at 0.
    pq.write_table(pa.table({"text": TEXTS, "x": values}), path, row_group_size=4)
    compare("named columns", name, lambda: [one.metadata.get("x") for one in read(path, names=("x",))], said)
    (first, *_) = read(path)
    assert "x" not in first.metadata and first.left_out == ("x",)


def test_bytes_that_are_no_text_are_left_out_and_said(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    pq.write_table(table(x=pa.array([b"\xff", b"a"] * 3)), path)
    found = read(path, names=("x", "y"))
    assert [(one.metadata.get("x"), one.left_out) for one in found] == [(None, ("x", "y")), ("a", ("y",))] * 3


def encrypted(path: Path) -> None:
    import pyarrow.parquet.encryption as pe

    class Kms(pe.KmsClient):  # type: ignore[misc]
        def wrap_key(self, key: bytes, master: str) -> bytes:
            return key.hex().encode()

        def unwrap_key(self, key: bytes, master: str) -> bytes:
            return bytes.fromhex(key.decode())

    factory = pe.CryptoFactory(lambda _: Kms())
    settings = pe.EncryptionConfiguration(footer_key="f", column_keys={"c": ["text"]})
    properties = factory.file_encryption_properties(pe.KmsConnectionConfig(), settings)
    with pq.ParquetWriter(path, table().schema, encryption_properties=properties) as writer:
        writer.write_table(table())


REFUSED: dict[str, tuple[Callable[[Path], None], str]] = {
    "encrypted": (encrypted, "encrypted file"),
    "cut": (lambda path: (arrow()(path), path.write_bytes(path.read_bytes()[:-20]))[0], "damaged file"),
    "no such column": (lambda path: pq.write_table(pa.table({"body": TEXTS}), path), "no text"),
    "numbers": (lambda path: pq.write_table(pa.table({"text": [1, 2]}), path), "no text"),
    "two columns": (lambda path: pq.write_table(pa.table([pa.array(TEXTS)] * 2, names=["text"] * 2), path), "no text"),
    "null": (lambda path: pq.write_table(pa.table({"text": ["a", None]}), path), "no text"),
    "not UTF-8": (lambda path: pq.write_table(pa.table({"text": [b"a", b"\xff"]}), path), "not UTF-8"),
    "not Parquet": (lambda path: path.write_bytes(b"PAR1 or not") and None, "damaged file"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_a_table_is_refused_with_its_reason(compare: Compare, tmp_path: Path, name: str) -> None:
    path = tmp_path / "a.parquet"
    make, reason = REFUSED[name]
    make(path)
    compare("tables", f"refused {name}", lambda: read(path), None, refusal=f"`{reason}`")
    with pytest.raises(DataError, match=reason):
        read(path)


# JSON lines


def dumped(rows: list[dict[str, Any]], **settings: Any) -> bytes:
    return "".join(json.dumps(row, **settings) + "\n" for row in rows).encode()


PLAIN: list[dict[str, Any]] = [
    {"text": text, "id": number, "score": number / 7, "yes": True, "no": None} for number, text in enumerate(TEXTS)
]
BIG = [2**53 + 1, 2**63 - 1, 2**63, 2**64 - 1, 2**64, 2**64 + 1, -(2**63) - 1, 10**30, 10**30 + 1, 10**400]
ODD = [0.1, 1e308, 5e-324, -0.0, 1e22, 123456789.123456789, 2.5e-8, 1e16]


def with_x(*values: object) -> list[dict[str, Any]]:
    return [{"text": f"text {number}", "x": value} for number, value in enumerate(values)]


def by_pandas() -> bytes:
    import pandas as pd

    return str(pd.DataFrame(PLAIN).to_json(orient="records", lines=True)).encode()


def by_polars() -> bytes:
    import polars as pl

    return str(pl.DataFrame(PLAIN).write_ndjson()).encode()


def by_datasets() -> bytes:
    from datasets import Dataset

    file = io.BytesIO()
    Dataset.from_list(PLAIN).to_json(file)
    return file.getvalue()


def by_duckdb(path: Path) -> bytes:
    import duckdb as duck

    with duck.connect() as connection:
        connection.register("given", pa.Table.from_pylist(PLAIN))
        connection.execute(
            f"COPY (SELECT text, id, score, yes, DATE '2020-01-01' AS day FROM given) TO '{path}' (FORMAT json)"
        )
    return path.read_bytes()


LINES: dict[str, bytes | Callable[[], bytes] | Callable[[Path], bytes]] = {
    "json": dumped(PLAIN),
    "json, letters as they are": dumped(PLAIN, ensure_ascii=False),
    "json, spaces": dumped(PLAIN, separators=(" , ", " : ")),
    "orjson": b"".join(orjson.dumps(row) + b"\n" for row in PLAIN),
    "orjson, last line open": b"\n".join(orjson.dumps(row) for row in PLAIN),
    "pandas": by_pandas,
    "polars": by_polars,
    "datasets": by_datasets,
    "duckdb": by_duckdb,
    "NaN and infinities": dumped(with_x(math.nan, math.inf, -math.inf, 1.0)),
    "numbers beyond a double": b'{"text":"a","x":1e400}\n{"text":"b","x":-1e400}\n{"text":"c","x":2e-400}\n',
    "big numbers": dumped(with_x(*BIG)),
    "big ids that are near": dumped([{"text": "t", "id": 2**64 + number} for number in range(10)]),
    "odd floats": dumped(with_x(*ODD)),
    "surrogate": b'{"text":"a","x":"x\\ud83d"}\n{"text":"b","x":"\\udc00 y"}\n{"text":"c","\\ud800":1}\n',
    "surrogate pair": b'{"text":"a \\ud83d\\ude00","x":"\\ud83d\\ude00"}\n',
    "surrogate in what is nested": b'{"text":"a","x":{"y":["\\ud83d"]}}\n',
    "equal keys": b'{"text":"a","text":"b","x":1,"x":2}\n',
    "mark": b"\xef\xbb\xbf" + dumped(PLAIN),
    "CRLF": dumped(PLAIN).replace(b"\n", b"\r\n"),
    "empty lines": dumped(PLAIN).replace(b"\n", b"\n\n \t\n"),
    "line separators": dumped([{"text": "a\u2028b\u2029c\u0085d", "x": "\u2028"}], ensure_ascii=False),
    "white space around": b'  {"text" : "a" , "x" : 1 }  \n\t{"text":"b"}\t\r\n',
    "control characters as escapes": b'{"text":"a\\u0000b\\u001f","x":"\\u0000"}\n',
    "delete as it is": b'{"text":"a\x7fb"}\n',
    "long line": dumped([{"text": "word " * 400_000, "x": 1}]),
    "deep": b'{"text":"a","x":' + b"[" * 900 + b"]" * 900 + b"}\n",
    "deeper than orjson": b'{"text":"a","x":' + b"[" * 1200 + b"]" * 1200 + b"}\n",
    "many keys": dumped([{"text": "a"} | {f"k{number}": number for number in range(5000)}]),
    "key without letters": b'{"text":"a","":1}\n',
    "escaped key": b'{"\\u0074ext":"a"}\n',
    "minus zero": b'{"text":"a","x":-0}\n{"text":"b","x":-0.0}\n',
    "exponents": b'{"text":"a","x":1E5}\n{"text":"b","x":1e-5}\n{"text":"c","x":10E+2}\n',
    "nested metadata": dumped([{"text": "a", "metadata": {"url": "u", "n": 2**64, "tags": ["t"]}, "url": "v"}]),
    "metadata as a text": dumped([{"text": "a", "metadata": '{"url": 1}'}]),
    "half of a mark inside": b'{"text":"\xef\xbb\xbfa"}\n',
}
PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip.compress,
    ".zst": zstandard.compress,
    ".xz": lzma.compress,
    ".bz2": bz2.compress,
}


def said_by_json(data: bytes) -> tuple[list[str], list[dict[str, Any]]]:
    """Texts and single values by Python's json, a line at a time."""
    texts, said = [], []
    for line in data.removeprefix(b"\xef\xbb\xbf").split(b"\n"):
        if not line.strip():
            continue
        value = json.loads(line.decode())
        inner = value.get("metadata")
        whole = (inner if isinstance(inner, dict) else {}) | value
        row = {key: one for key, one in whole.items() if isinstance(one, str | int | float) and key != "text"}
        texts.append(value["text"])
        said.append(
            {
                key: json.dumps(one) if isinstance(one, float) and not math.isfinite(one) else one
                for key, one in row.items()
            }
        )
    return texts, said


def as_corpus(path: Path) -> list[str]:
    """The texts by the reader of ``dataset=files``."""
    file = SourceFile(path, path.name)
    read_so = {"text_field": "text", "split": "lines", "paragraphs_per_document": 1}
    return [one.text for one in read_file(file, "files", expected_digest=file.digest(), **read_so)]  # type: ignore[arg-type]


def data_of(name: str, tmp_path: Path) -> bytes:
    made = LINES[name]
    if isinstance(made, bytes):
        return made
    return made(tmp_path / "by.json") if made is by_duckdb else made()  # type: ignore[call-arg, operator, return-value]


@pytest.mark.table
@pytest.mark.parametrize("name", LINES)
def test_lines_are_read_as_python_reads_them(compare: Compare, tmp_path: Path, name: str) -> None:
    data = data_of(name, tmp_path)
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    texts, said = said_by_json(data)

    def ours() -> tuple[list[str], str]:
        found = read(path)
        return [one.text for one in found], repr([dict(sorted(row.items())) for row in metadata(found)])

    compare("lines", name, ours, (texts, repr([dict(sorted(row.items())) for row in said])))
    compare("lines, dataset=files", name, lambda: as_corpus(path), texts)


def framed(data: bytes, window: int) -> bytes:
    settings = zstandard.ZstdCompressionParameters.from_level(1, window_log=window)
    made = zstandard.ZstdCompressor(compression_params=settings).compressobj()
    return made.compress(data) + made.flush()


def pieces(data: bytes, suffix: str) -> Iterator[tuple[str, bytes]]:
    pack, (first, second) = PACKED[suffix], (data[:100], data[100:])
    yield "one", pack(data)
    yield "several", b"".join(pack(part) for part in (first, b"", second))
    if suffix == ".gz":
        yield "padded", pack(data) + bytes(512)
    if suffix == ".xz":
        yield "padded", pack(first) + bytes(8) + pack(second) + bytes(4)
    if suffix == ".zst":
        yield "skipped frame", pack(first) + b"\x50\x2a\x4d\x18\x03\x00\x00\x00abc" + pack(second)
        yield from ((f"window of 2^{window}", framed(data, window)) for window in (27, 28, 30, 31))


@pytest.mark.parametrize("suffix", PACKED)
def test_packed_lines_are_the_lines(compare: Compare, tmp_path: Path, suffix: str) -> None:
    for name, packed in pieces(dumped(PLAIN), suffix):
        path = tmp_path / f"a.jsonl{suffix}"
        path.write_bytes(packed)
        compare("packed lines", f"{suffix} {name}", lambda path=path: [one.text for one in read(path)], TEXTS)
        compare("packed lines, dataset=files", f"{suffix} {name}", lambda path=path: as_corpus(path), TEXTS)
        if name == "padded":
            continue
        path.write_bytes(packed[: len(packed) // 2])
        for reader in (read, as_corpus):
            compare(
                "packed lines",
                f"{suffix} {name}, cut",
                lambda reader=reader, path=path: reader(path),
                None,
                refusal="`damaged file`",
            )


BROKEN: dict[str, tuple[bytes, str]] = {
    "surrogate in the text": (b'{"text":"a \\ud83d"}\n', "not Unicode"),
    "array of objects": (b'[{"text":"a"},\n{"text":"b"}]\n', "not JSON"),
    "array on one line": (b'[{"text":"a"}]\n', "not an object"),
    "objects in a row": (b'{"text":"a"}{"text":"b"}\n', "not JSON"),
    "one object over lines": (b'{\n"text":"a"\n}\n', "not JSON"),
    "trailing comma": (b'{"text":"a",}\n', "not JSON"),
    "single quotes": (b"{'text':'a'}\n", "not JSON"),
    "comment": (b'{"text":"a"} // said\n', "not JSON"),
    "bare key": (b'{text:"a"}\n', "not JSON"),
    "tab in a text": (b'{"text":"a\tb"}\n', "not JSON"),
    "number with a plus": (b'{"text":"a","x":+1}\n', "not JSON"),
    "number with a zero": (b'{"text":"a","x":01}\n', "not JSON"),
    "number too long": (b'{"text":"a","x":' + b"1" * 5000 + b"}\n", "not JSON"),
    "CR alone": (b'{"text":"a"}\r{"text":"b"}\r', "not JSON"),
    "no-break space alone": (b'{"text":"a"}\n\xc2\xa0\n', "not JSON"),
    "Latin-1": (b'{"text":"caf\xe9"}\n', "not UTF-8"),
    "raw surrogate": (b'{"text":"a","x":"\xed\xa0\x80"}\n', "not UTF-8"),
    "UTF-16": ('{"text":"a"}\n'.encode("utf-16"), "not UTF-8"),
    "text is null": (b'{"text":null}\n', "no text"),
    "text is a list": (b'{"text":["a"]}\n', "no text"),
    "cut": (b'{"text":"a', "not JSON"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_what_is_no_line_is_refused_by_both_readers(compare: Compare, tmp_path: Path, name: str) -> None:
    data, reason = BROKEN[name]
    path = tmp_path / "a.jsonl"
    path.write_bytes(data)
    compare("lines", f"refused {name}", lambda: read(path), None, refusal=f"`{reason}`")
    compare("lines, dataset=files", f"refused {name}", lambda: as_corpus(path), None, refusal=f"`{reason}`")
    with pytest.raises(DataError, match=reason):
        read(path)


@pytest.mark.parametrize(
    "data",
    [
        b"one\r\ntwo\r\n",
        b"one\rtwo\r\rthree",
        b"one\r\r\ntwo\n\rthree",
        b"\xef\xbb\xbfa\r",
        "a\u2028b\x0bc\x85d".encode(),
    ],
    ids=ascii,
)
def test_lines_of_a_plain_text(compare: Compare, tmp_path: Path, data: bytes) -> None:
    """As Python opens a text, and with it datasets.load_dataset("text")."""
    path = tmp_path / "a.txt"
    path.write_bytes(data)
    compare("texts", f"plain text {data!r}", lambda: [one.text for one in read(path)], [path.read_text("utf-8-sig")])


def test_lines_of_plain_texts_to_train_on(compare: Compare, tmp_path: Path) -> None:
    path, refusal = tmp_path / "a.txt", "a file whose lines end by CR alone it refuses"

    def lines_of(data: bytes) -> list[str]:
        path.write_bytes(data)
        file = SourceFile(path, path.name)
        found = read_file(
            file, "s", text_field="text", split="lines", paragraphs_per_document=1, expected_digest=file.digest()
        )
        return [one.text for one in found]

    for data in (b"one\r\ntwo\r\n", b"\xef\xbb\xbfone\n\ntwo", b"one\r"):
        compare("texts", f"dataset=files, {data!r}", lambda data=data: lines_of(data), data.decode("utf-8-sig").split())
    for data in (b"one\rtwo\r", b"one\r\rtwo"):
        compare("texts", f"dataset=files, {data!r}", lambda data=data: lines_of(data), None, refusal=refusal)
