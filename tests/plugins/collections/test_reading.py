"""Damaged and odd input: counted by reason, named by source and position, and nothing beside it is lost."""

from __future__ import annotations

import gzip
import json
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard

from marin.errors import DataError
from marin.plugins.collections.build import BuildRequest, build
from marin.plugins.collections.document import Document, Problem
from marin.plugins.collections.queries.account import account
from marin.plugins.collections.queries.documents import Collection, find
from marin.plugins.collections.sources import finding, lines
from tests.plugins.collections.making import root_of

GOOD = [json.dumps({"text": f"text number {number} with some words"}).encode() + b"\n" for number in range(2000)]


def read(path: Path) -> tuple[list[str], list[tuple[int, str]]]:
    items = list(lines.read(path, path.name))
    texts = [item.text for item in items if isinstance(item, Document)]
    return texts, [(item.position, item.reason) for item in items if isinstance(item, Problem)]


def test_each_bad_line_is_a_problem_and_the_good_ones_are_read(tmp_path: Path) -> None:
    path = tmp_path / "a.jsonl"
    bad = [
        b"no json\n",
        b'{"text": 3}\n',
        b'{"other": "x"}\n',
        b'{"text": "\xff"}\n',
        b"[1]\n",
        b'{"text": "  "}\n',
        b"\n",
    ]
    path.write_bytes(b"".join(line for pair in zip(bad, GOOD, strict=False) for line in pair))
    texts, problems = read(path)
    assert len(texts) == len(bad)
    assert problems == [
        (1, "not JSON"),
        (3, "no text"),
        (5, "no text"),
        (7, "not UTF-8"),
        (9, "not an object"),
        (11, "empty text"),
    ]


@pytest.mark.parametrize("kind", ["gz", "zst"])
def test_packed_lines_are_read_and_a_cut_file_is_a_problem_at_its_end(tmp_path: Path, kind: str) -> None:
    data = b"".join(GOOD)
    packed = gzip.compress(data) if kind == "gz" else zstandard.compress(data[:9000]) + zstandard.compress(data[9000:])
    path = tmp_path / f"a.jsonl.{kind}"
    path.write_bytes(packed)
    assert read(path) == ([json.loads(line)["text"] for line in GOOD], [])
    path.write_bytes(packed[:-9])
    texts, problems = read(path)
    assert texts == [json.loads(line)["text"] for line in GOOD[: len(texts)]]
    assert "damaged file" in {reason for _, reason in problems}
    path.write_bytes(b"not packed at all")
    assert read(path) == ([], [(1, "damaged file")])


def test_a_bomb_is_not_unpacked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(lines, "MOST_BYTES", 10_000)
    path = tmp_path / "a.jsonl.gz"
    path.write_bytes(gzip.compress(b" " * 50_000_000))
    monkeypatch.setattr(lines, "MOST_RATIO", 10)
    assert read(path) == ([], [(1, "unpacks to too much")])


def test_parquet_is_read_and_one_cut_short_is_a_problem(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    rows = [{"text": "first", "url": "https://a.example/"}, {"text": None, "url": None}, {"text": "third", "url": "x"}]
    pq.write_table(pa.Table.from_pylist(rows), path)
    items = list(lines.read(path, "a.parquet"))
    assert [type(item) for item in items] == [Document, Problem, Document]
    assert isinstance(items[0], Document) and items[0].metadata["url"] == "https://a.example/"
    path.write_bytes(path.read_bytes()[:-20])
    assert read(path) == ([], [(0, "damaged file")])
    pq.write_table(pa.Table.from_pylist([{"body": "x"}]), path)
    assert read(path) == ([], [(0, "no text")])


def test_slices_are_the_whole_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.jsonl"
    path.write_bytes(b"".join(GOOD))
    whole = list(lines.read(path, "a.jsonl"))
    monkeypatch.setattr(finding, "SLICE", 5000)
    (found,) = finding.find([str(path)])
    parts = [
        item
        for part in found.slices
        for item in lines.read(path, "a.jsonl", start=part.start, end=part.end, first=part.first)
    ]
    assert len(found.slices) > 10 and parts == whole


def test_problems_are_counted_and_named_and_strict_stops_at_the_first(project: Path) -> None:
    (project / "a.jsonl").write_bytes(GOOD[0] + b"no json\n" + GOOD[1])
    (project / "b.txt").write_text("A plain text of several words.")
    globs = (f"{project}/a.jsonl", f"{project}/b.txt")
    made = build(root_of(project), BuildRequest(globs))
    assert (made.read, dict(made.problems)) == (3, {"not JSON": 1})
    with pytest.raises(DataError, match=r"a\.jsonl:2: not JSON"):
        build(root_of(project), BuildRequest(globs, strict=True))


def test_what_is_no_metadata_is_counted_by_its_name(project: Path) -> None:
    (project / "a.jsonl").write_text(
        '{"text":"a b c","tags":["x"],"metadata":{"n":[1],"u":2}}\n{"text":"d e f","position":7}\n'
    )
    root = root_of(project)
    build(root, BuildRequest((f"{project}/a.jsonl",)))
    ((_, event),) = root.history().events(type="collection.source/v1")
    assert event.body["left_out"] == {"metadata.n": 1, "position": 1, "tags": 1}


def test_odd_fields_pass_through_the_whole_build(project: Path) -> None:
    """Half of a surrogate pair where it would become a column or an event; numbers beyond 64 bits and doubles."""
    half = "\\ud83d"
    said = f'"url":"u{half}","licence":"l{half}","robots":"no{half}","added":"{half}","{half}":1'
    line = f'{{"text":"a b c",{said},"n":{2**70},"x":1e999}}\n'
    (project / "a.jsonl").write_text(line)
    root = root_of(project)
    made = build(root, BuildRequest((f"{project}/a.jsonl",)))
    (row,) = Collection(root.store(), made.artifact).documents(("metadata", "added"))
    found = json.loads(row["metadata"])
    assert (found["n"], found["x"], found["url"], found["\ud83d"]) == (2**70, "Infinity", "u\ud83d", 1)
    assert row["added"] == "\\ud83d"
    (shown,) = find(Collection(root.store(), made.artifact), "u\\ud83d")
    assert shown.kept and shown.metadata["n"] == 2**70
    assert account(Collection(root.store(), made.artifact)).licences == {"l\\ud83d": 1}


def test_only_the_columns_that_are_wanted_are_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.parquet"
    columns = {
        "text": ["a"],
        "url": ["u"],
        "picture": [b"\xff"],
        "vector": [[0.5]],
        "metadata": [{"n": 1, "tags": ["t"]}],
    }
    pq.write_table(pa.table(columns), path)
    asked = []

    class File(pq.ParquetFile):  # type: ignore[misc]
        def iter_batches(self, *given: object, columns: list[str], **more: object) -> object:
            asked.append(sorted(columns))
            return super().iter_batches(*given, columns=columns, **more)

    monkeypatch.setattr(pq, "ParquetFile", File)
    (one,) = lines.read(path, "a.parquet")
    assert isinstance(one, Document) and dict(one.metadata) == {"url": "u", "n": 1, "position": 1}
    assert one.left_out == ("picture", "vector", "metadata.tags")
    (one,) = lines.read(path, "a.parquet", fields=("n", "vector"))
    assert isinstance(one, Document) and dict(one.metadata) == {"n": 1, "vector": "[0.5]", "position": 1}
    assert asked == [["metadata.n", "text", "url"], ["metadata.n", "text", "vector"]]
