"""Input that does not fit: schemas that differ, documents beyond every limit, a disk that fills. Each is counted and named, and
what stands beside it is kept."""

from __future__ import annotations

import json
import os
import shlex
import subprocess
import sys
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from marin.plugins.collections.build import BuildRequest, build
from marin.plugins.collections.comparing.contamination import passed_over
from marin.plugins.collections.document import Document, Problem
from marin.plugins.collections.settings import Contamination
from marin.plugins.collections.sources import lines
from tests.fault.test_real_mounts import mounts_work
from tests.plugins.collections.making import root_of

WORDS = "a text of some words that is document number"


def found(path: Path) -> tuple[list[str], list[tuple[int, str]]]:
    items = list(lines.read(path, path.name))
    texts = [item.text for item in items if isinstance(item, Document)]
    return texts, [(item.position, item.reason) for item in items if isinstance(item, Problem)]


def test_files_of_other_schemas_are_read_as_far_as_they_have_texts(project: Path) -> None:
    raw = project / "raw"
    raw.mkdir()
    pq.write_table(pa.table({"text": [f"{WORDS} 1", f"{WORDS} 2"], "year": [1, 2]}), raw / "a.parquet")
    pq.write_table(pa.table({"text": pa.array([f"{WORDS} 3"], pa.large_string()), "year": ["x"]}), raw / "b.parquet")
    pq.write_table(pa.table({"text": [[f"{WORDS} 4"]], "tags": [{"a": [1]}]}), raw / "c.parquet")
    pq.write_table(pa.table({"body": [f"{WORDS} 5"]}), raw / "d.parquet")
    pq.write_table(pa.table({"text": pa.array([f"{WORDS} 6", None]).dictionary_encode()}), raw / "e.parquet")
    rows = [
        {"text": f"{WORDS} 7", "metadata": {"year": 3}},
        {"text": {"en": "x"}},
        {"text": f"{WORDS} 8", "metadata": "x"},
    ]
    (raw / "f.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    made = build(root_of(project), BuildRequest((f"{raw}/*",)))
    assert (made.kept, dict(made.problems)) == (6, {"no text": 4})


def test_a_row_that_is_no_utf8_costs_no_other_row(tmp_path: Path) -> None:
    texts = [f"{WORDS} {number}".encode() for number in range(1200)]
    for bad in (0, 700, 701):
        texts[bad] = b"\xff\xfe"
    binary = pa.array(texts, pa.binary())
    text = pa.StringArray.from_buffers(len(binary), binary.buffers()[1], binary.buffers()[2])
    pq.write_table(pa.table({"text": text}), tmp_path / "a.parquet")
    read, problems = found(tmp_path / "a.parquet")
    assert (len(read), problems) == (1197, [(1, "not UTF-8"), (701, "not UTF-8"), (702, "not UTF-8")])


@pytest.mark.parametrize("kind", ["jsonl", "jsonl.gz", "parquet", "txt"])
def test_no_document_is_larger_than_the_limit_and_its_neighbours_are_read(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str
) -> None:
    monkeypatch.setattr(lines, "MOST_BYTES", 1000)
    monkeypatch.setattr(lines, "MOST_RATIO", 1_000_000)
    texts = ["first", "é" * 501, "x" * 5000, "fourth"]
    path = tmp_path / f"a.{kind}"
    if kind == "parquet":
        pq.write_table(pa.table({"text": texts}), path)
    elif kind == "txt":
        path.write_text("x" * 1001)
        assert found(path) == ([], [(1, "too large")])
        return
    else:
        import gzip

        data = "".join(json.dumps({"text": text}, ensure_ascii=False) + "\n" for text in texts).encode()
        path.write_bytes(gzip.compress(data) if kind.endswith("gz") else data)
    assert found(path) == (["first", "fourth"], [(2, "too large"), (3, "too large")])


@pytest.mark.long
@pytest.mark.skipif(not mounts_work(), reason="this system has no mounts in user namespaces")
def test_a_disk_that_fills_is_said_and_the_same_command_goes_on(project: Path) -> None:
    """A file system of 3 MiB that becomes larger after the first call."""
    raw = project / "raw"
    raw.mkdir()
    for part in range(4):
        rows = [{"text": f"{WORDS} {os.urandom(700).hex()} {part}"} for _ in range(600)]
        (raw / f"{part}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    wanted = build(root_of(project), BuildRequest((f"{raw}/*",))).artifact
    (project / "disk").mkdir()
    marin = f"{shlex.quote(sys.executable)} -m marin.cli.main"
    script = f"""
        mount -t tmpfs -o size=3m tmpfs disk && cd disk && {marin} -q init --here
        {marin} data build --source '../raw/*' --json; echo "ended $?" >&2
        mount -o remount,size=200m . && {marin} -q data build --source '../raw/*' --json"""
    own = {
        "MARIN_CACHE": str(project / "cache"),
        "XDG_STATE_HOME": str(project / "s"),
        "XDG_CONFIG_HOME": str(project / "c"),
    }
    done = subprocess.run(
        ["unshare", "-Urm", "bash", "-c", script],
        cwd=project,
        env=os.environ | own,
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert "Traceback" not in done.stderr and "ended 0" not in done.stderr, done.stderr
    assert "space" in done.stderr.partition("ended")[0], done.stderr
    assert json.loads(done.stdout.splitlines()[-1])["artifact"] == wanted


def test_records_of_an_evaluation_that_are_looked_for_nowhere_are_said(tmp_path: Path) -> None:
    """A field by another name beside one that is there, and records that say too little to be found by."""
    asked = "what is the name of the tall mountain beyond the lake"
    records = [{"doc": {"question": asked}, "answer": "K2"}, {"answer": asked}, {"answer": "K3"}]
    path = tmp_path / "test.jsonl"
    path.write_text("".join(json.dumps(record) + "\n" for record in records))
    (one,) = passed_over([(path, "test.jsonl")], ("question", "answer"), Contamination())
    assert str(one) == "test.jsonl: of 2 of 3 records nothing is looked for; none has question"
    (one,) = passed_over([(path, "test.jsonl")], ("answer",), Contamination(shortest=2, words=2))
    assert (one.passed_over, one.lacking) == (2, ())
    path.write_text(json.dumps({"question": asked, "answer": "K2"}))
    assert not list(passed_over([(path, "test.jsonl")], ("question", "answer"), Contamination()))
