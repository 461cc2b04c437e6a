"""A collection is made again from its sources: what was forged is found, by step, shard and document."""

from __future__ import annotations

import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from ledger import Draft
from marin.errors import DataMissing
from marin.kinds.families.collection import COLLECTION_COMPLETED, COLLECTION_STARTED, CollectionCompleted
from marin.pipeline.documents import collected
from marin.plugins.collections.build import BuildRequest, BuildResult, build, stream_of_collection
from marin.plugins.collections.queries.documents import Collection
from marin.plugins.collections.queries.leading import led_nowhere
from marin.plugins.collections.replay import Draw, Replayed, every, replay
from marin.plugins.collections.settings import CollectionSettings
from marin.record import events
from tests.plugins.collections.labelled import labelled
from tests.plugins.collections.making import root_of


@pytest.fixture
def built(project: Path) -> BuildResult:
    labelled(3, size=12).write(project / "raw", files=2)
    asked = BuildRequest((f"{project}/raw/*.jsonl",), evaluations=(f"{project}/test.jsonl",))
    return build(root_of(project), asked)


def again(project: Path, artifact: str, draw: Draw = every) -> Replayed:
    root = root_of(project)
    folder = Path(tempfile.mkdtemp(dir=project))
    return replay(root.store_to_read(), root.history(), artifact, folder, draw=draw)


def forge(project: Path, built: BuildResult, change: Callable[[Path], None], **body: Any) -> str:
    """The artifact with a change, recorded as if it had been made."""
    root = root_of(project)
    folder = project / f"forged-{len(list(project.iterdir()))}"
    root.store().checkout(built.artifact, folder, how="copy")
    for path in folder.rglob("*"):
        path.chmod(0o755 if path.is_dir() else 0o644)
    change(folder)
    artifact = root.store().put_tree(folder).digest
    said: dict[str, Any] = {
        "identity": built.identity,
        "artifact": artifact,
        "read": built.read,
        "kept": built.kept,
        "removed": dict(built.removed),
        "problems": dict(built.problems),
    }
    forged = CollectionCompleted(**(said | body))
    stream = stream_of_collection(built.identity)
    root.append([Draft(COLLECTION_COMPLETED, stream, events.write(forged))])
    return artifact


def rewrite(path: Path, change: Callable[[list[dict[str, Any]]], list[dict[str, Any]]]) -> None:
    table = pq.read_table(path)
    pq.write_table(pa.Table.from_pylist(change(table.to_pylist()), schema=table.schema), path)


def test_what_was_made_is_made_again(project: Path, built: BuildResult) -> None:
    found = again(project, built.artifact)
    assert found.wrong == () and found.executed >= 3 and found.taken == 0 and found.same_code


def test_a_sample_takes_the_rest_from_the_store(project: Path, built: BuildResult) -> None:
    found = again(project, built.artifact, lambda kind, count: range(1 if kind == "read" else 0))
    assert found.wrong == () and found.executed == 1 and found.taken >= 3


def alter(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
    rows[3]["text"] += " more"
    return rows


@pytest.mark.parametrize(
    ("change", "says"),
    [
        (alter, "was altered: text"),
        (lambda rows: [*rows[:3], *rows[4:]], "was dropped"),
        (lambda rows: [*rows[:3], rows[3] | {"id": "0" * 32}, *rows[3:]], "was added"),
        (lambda rows: [*rows[:3], rows[4], rows[3], *rows[5:]], "equal documents in another order"),
    ],
    ids=["altered", "dropped", "added", "reordered"],
)
def test_another_document_is_named(project: Path, built: BuildResult, change: Any, says: str) -> None:
    artifact = forge(project, built, lambda folder: rewrite(folder / "documents/00000.parquet", change))
    found = again(project, artifact)
    assert any(line.startswith("write: shard 00000") and says in line for line in found.wrong), found.wrong


def test_two_documents_that_were_swapped_are_both_named(project: Path, built: BuildResult) -> None:
    names: list[str] = []

    def swap(rows: list[dict[str, Any]]) -> list[dict[str, Any]]:
        one, other = rows[3], rows[7]
        names[:] = one["id"], other["id"]
        one["text"], other["text"] = other["text"], one["text"]
        return rows

    found = again(project, forge(project, built, lambda folder: rewrite(folder / "documents/00000.parquet", swap)))
    assert len(found.wrong) == 2, found.wrong
    for name, line in zip(names, found.wrong, strict=True):
        assert line.startswith("write: shard 00000") and f"document {name} was altered: text" in line


def test_another_cluster_is_named(project: Path, built: BuildResult) -> None:
    def change(folder: Path) -> None:
        rewrite(folder / "duplicates/near-000000.parquet", lambda rows: [rows[0] | {"cluster": "0" * 32}, *rows[1:]])

    found = again(project, forge(project, built, change))
    assert any(line.startswith("near: shard near-000000") and "cluster expected" in line for line in found.wrong)


def test_a_duplicate_of_what_is_not_kept_is_named(project: Path, built: BuildResult) -> None:
    def change(folder: Path) -> None:
        for name in ("near-000000", "exact"):
            rewrite(folder / f"duplicates/{name}.parquet", lambda rows: [rows[0] | {"kept": "0" * 32}, *rows[1:]])

    store = root_of(project).store()
    assert not list(led_nowhere(Collection(store, built.artifact)))
    forged = list(led_nowhere(Collection(store, forge(project, built, change))))
    assert [line.partition(":")[0] for line in forged] == ["exact", "near"], forged
    assert all(f"was removed for {'0' * 32}, which is not kept" in line for line in forged)


def test_a_forged_count_is_named(project: Path, built: BuildResult) -> None:
    artifact = forge(project, built, lambda folder: None, kept=built.kept - 1)
    assert any(f"recorded documents kept {built.kept - 1}" in line for line in again(project, artifact).wrong)


def test_another_threshold_is_named(project: Path, built: BuildResult) -> None:
    root = root_of(project)
    (event,) = [event for _, event in root.history().events(type=COLLECTION_STARTED)]
    settings = {**event.body["settings"], "near": {**event.body["settings"]["near"], "threshold": (0.5).hex()}}
    identity = "sha256:" + "1" * 64
    body = {**event.body, "settings": settings, "identity": identity}
    root.append([Draft(COLLECTION_STARTED, "collection/forged", body)])
    first, second = again(project, forge(project, built, lambda folder: None, identity=identity)).wrong
    assert "expected identity" in first
    assert second == "collection.started: setting near.threshold: recorded 0.5, collection.json has 0.8"


def test_another_threshold_in_the_description_is_named(project: Path, built: BuildResult) -> None:
    def change(folder: Path) -> None:
        path = folder / "collection.json"
        path.write_text(path.read_text().replace((0.8).hex(), (0.7).hex()))

    wrong = again(project, forge(project, built, change)).wrong
    assert "collection.started: setting near.threshold: recorded 0.8, collection.json has 0.7" in wrong


def test_other_sources_are_named_and_missing_ones_said(project: Path, built: BuildResult) -> None:
    path = project / "raw" / "part-1.jsonl"
    path.write_text(path.read_text().replace("a", "b", 1))
    (line,) = again(project, built.artifact).wrong
    assert line.startswith("read: source part-1.jsonl: recorded sha256:")
    shutil.rmtree(project / "raw")
    with pytest.raises(DataMissing):
        again(project, built.artifact)


def test_what_was_recorded_by_the_first_definition_is_made_again_by_it(project: Path) -> None:
    """Lines that it refuses, numbers that it rounds, a column that ends its file: recorded so, replayed so."""
    lines = [
        b'{"text":"one two three","id":18446744073709551617}',
        b'{"text":"a b c","x":NaN}',
        b'{"text":"d e f","x":"\\ud800"}',
    ]
    (project / "a.jsonl").write_bytes(b"\n".join(lines))
    table = {
        "text": ["g h i"],
        "day": pa.array([2_932_896], pa.date32()),
        "z": pa.array([0], pa.timestamp("ms", tz="utc")),
    }
    pq.write_table(pa.table(table), project / "b.parquet")
    globs = (f"{project}/a.jsonl", f"{project}/b.parquet")
    old = build(root_of(project), BuildRequest(globs, definition=1))
    assert (old.kept, dict(old.problems)) == (1, {"not JSON": 2, "damaged file": 1})
    new = build(root_of(project), BuildRequest(globs))
    assert (new.kept, dict(new.problems)) == (4, {})
    assert new.identity != old.identity
    for built in (old, new):
        assert again(project, built.artifact).wrong == ()


def test_pages_and_texts_of_the_second_definition_are_made_again_by_it(project: Path) -> None:
    """Letters with an element of their own that are lost, XHTML by HTML's rules, carriage returns: recorded so, replayed so."""
    xhtml = b"<html><head><title/></head><body><p>Of XML.</p></body></html>"
    http = b"HTTP/1.1 200 OK\r\nContent-Type: application/xhtml+xml\r\n\r\n" + xhtml
    head = b"WARC/1.0\r\nWARC-Type: response\r\nContent-Type: application/http\r\nContent-Length: %d\r\n\r\n" % len(
        http
    )
    (project / "a.warc").write_bytes(head + http + b"\r\n\r\n")
    (project / "b.html").write_bytes("<meta charset=utf-8><p>我<b>爱</b>你们大家".encode())
    (project / "c.txt").write_bytes(b"one\r\ntwo")
    globs = tuple(f"{project}/{name}" for name in ("a.warc", "b.html", "c.txt"))
    settings = CollectionSettings(steps=({"kind": "html"},))
    found = {}
    for definition in (2, 3):
        made = build(root_of(project), BuildRequest(globs, settings, definition=definition))
        assert again(project, made.artifact).wrong == ()
        found[definition] = sorted(document.text for _, document in collected(root_of(project).store(), made.artifact))
    assert found == {2: ["one\r\ntwo", "你们大家"], 3: ["Of XML.", "one\ntwo", "我爱你们大家"]}
