"""Sources elsewhere: pinned files with mirrors, buckets, the Hub at a commit; what cannot be had is counted and named."""

from __future__ import annotations

import hashlib
import json
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from buckets import Bucket
from http_faults import Fault, Service, serving
from hub import Hub, hub_on_loopback
from werkzeug import Request, Response

from ledger import open_storage
from marin.data.network import fetching
from marin.data.reach import Reach
from marin.errors import DataError, DataMissing, MissingEvidence, UsageError
from marin.kinds.families.collection import COLLECTION_SOURCE
from marin.plugins.collections.build import BuildRequest, build
from marin.plugins.collections.queries.documents import Collection
from marin.plugins.collections.replay import Replayed, replay
from marin.plugins.collections.sources import addresses, finding
from tests.plugins.collections.making import root_of, rows


def lines(*texts: str) -> bytes:
    return "".join(json.dumps({"text": text}) + "\n" for text in texts).encode()


@dataclass
class Files:
    """A server of files that knows ranges, and which were asked for."""

    content: dict[str, bytes] = field(default_factory=dict)
    ranges: list[str] = field(default_factory=list)

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        request = Request(environ)
        data = self.content.get(request.path.strip("/"))
        if data is None:
            return Response(status=404)(environ, start)
        self.ranges.append(request.headers.get("Range", ""))
        answer = Response(data)
        answer.make_conditional(environ, accept_ranges=True, complete_length=len(data))
        return answer(environ, start)


@pytest.fixture
def served() -> Iterator[tuple[Files, Service]]:
    files = Files()
    with serving(files) as service:
        yield files, service


@pytest.fixture(autouse=True)
def impatient(monkeypatch: pytest.MonkeyPatch) -> None:
    """No pauses, and a server that hangs is given up at once."""
    monkeypatch.setattr(fetching.time, "sleep", lambda seconds: None)
    monkeypatch.setattr(fetching, "_TIMEOUT", 0.5)


def pinned(project: Path, *listed: dict[str, Any]) -> str:
    (project / "list.jsonl").write_text("".join(json.dumps(line) + "\n" for line in listed))
    return f"pinned:{project}/list.jsonl"


def declared(data: bytes, *urls: str, **more: str) -> dict[str, Any]:
    return {"urls": urls, "size": len(data), "sha256": hashlib.sha256(data).hexdigest(), **more}


def test_a_list_is_fetched_from_its_mirrors_and_only_once(project: Path, served: tuple[Files, Service]) -> None:
    files, service = served
    data, other = lines("one text of many words", "another text"), lines("a third text of some words")
    files.content |= {"a/part.jsonl": data, "b/more.jsonl": other, "bad/part.jsonl": b"x" + data[1:]}
    at = service.address
    source = pinned(
        project,
        declared(data, f"{at}/gone/part.jsonl", f"{at}/bad/part.jsonl", f"{at}/a/part.jsonl", licence="CC0-1.0"),
        declared(other, f"{at}/b/more.jsonl", name="named.jsonl"),
    )
    made = build(root_of(project), BuildRequest((source,)))
    assert made.read == 3 and not made.problems
    told = {event.body["name"]: event.body for _, event in root_of(project).history().events(type=COLLECTION_SOURCE)}
    assert {name: (body["place"], body["licence"]) for name, body in told.items()} == {
        "part.jsonl": (f"{at}/gone/part.jsonl", "CC0-1.0"),
        "named.jsonl": (f"{at}/b/more.jsonl", ""),
    }
    service.requests.clear()
    assert build(root_of(project), BuildRequest((source,))).again and not service.requests


def test_what_broke_off_goes_on_where_it_broke(project: Path, served: tuple[Files, Service]) -> None:
    files, service = served
    data = lines(*(f"text number {number} of many words" for number in range(20_000)))
    files.content["a.jsonl"] = data
    service.faults.add(Fault.CUT, path="/a.jsonl", times=2)
    source = pinned(project, declared(data, f"{service.address}/a.jsonl"))
    (found,) = finding.find([source])
    assert Path(found.path).read_bytes() == data
    assert files.ranges[0] == "" and len(files.ranges) == 3
    begun = [int(asked.removeprefix("bytes=").removesuffix("-")) for asked in files.ranges[1:]]
    assert 0 < begun[0] < begun[1] < len(data)


@pytest.mark.table
@pytest.mark.parametrize(
    ("spoil", "reason"),
    [
        (lambda files, service: files.content.pop("b.jsonl"), "status 404"),
        (lambda files, service: service.faults.add(Fault.STATUS, path="/b.jsonl", status=500), "status 500"),
        (lambda files, service: files.content.update({"b.jsonl": b"other bytes"}), "other bytes"),
        (lambda files, service: service.faults.add(Fault.HANG, path="/b.jsonl"), "no answer"),
    ],
    ids=["404", "5xx", "other bytes", "never"],
)
def test_what_cannot_be_had_is_counted_and_named_and_strict_stops(
    project: Path, served: tuple[Files, Service], spoil: Callable[[Files, Service], None], reason: str
) -> None:
    files, service = served
    good, gone = lines("a text that is there", "and one more"), lines("a text that is not")
    files.content |= {"a.jsonl": good, "b.jsonl": gone}
    source = pinned(
        project, *(declared(data, f"{service.address}/{name}.jsonl") for name, data in (("a", good), ("b", gone)))
    )
    spoil(files, service)
    root = root_of(project)
    made = build(root, BuildRequest((source,)))
    assert (made.read, dict(made.problems)) == (2, {"not fetched": 1})
    collection = Collection(root.store(), made.artifact)
    with root.store().open_file(made.artifact, "problems/sources.jsonl") as file:
        assert json.loads(file.read()) == {"found": reason, "position": 0, "reason": "not fetched", "source": "b.jsonl"}
    assert {row["source"] for row in rows(collection, "documents")} == {"a.jsonl"}
    with pytest.raises(DataMissing, match="cannot be fetched") as caught:
        build(root, BuildRequest((source,), strict=True))
    assert caught.value.found == reason
    # Anyone who makes it again asks for what it was made of, and not for the other one.
    service.faults.clear()
    files.content["b.jsonl"] = gone
    service.requests.clear()
    again = replay(root.store_to_read(), root.history(), made.artifact, project / "again")
    assert again.wrong == () and not service.requests
    whole = build(root, BuildRequest((source,)))
    assert whole.read == 3 and whole.artifact != made.artifact


def test_a_verifier_asks_nobody_that_was_not_allowed(
    project: Path, served: tuple[Files, Service], monkeypatch: Any
) -> None:
    files, service = served
    files.content["a.jsonl"] = data = lines("a text", "another")
    source = pinned(project, declared(data, f"{service.address}/a.jsonl"))
    root = root_of(project)
    made = build(root, BuildRequest((source,)))
    monkeypatch.setenv("MARIN_CACHE", str(project / "other-cache"))
    service.requests.clear()
    (project / "again").mkdir()

    def again(*hosts: str) -> Replayed:
        reach = Reach(folders=(str(project),), hosts=hosts)
        return replay(root.store_to_read(), root.history(), made.artifact, project / "again", reach=reach)

    with pytest.raises(DataMissing, match="outside of what this verification may reach"):
        again()
    assert not service.requests
    assert again("127.0.0.1").wrong == () and service.requests


@pytest.mark.parametrize(
    ("glob", "path", "fits"),
    [
        ("a/*.jsonl", "a/b.jsonl", True),
        ("a/*.jsonl", "a/b/c.jsonl", False),
        ("a/**/*.jsonl", "a/b/c.jsonl", True),
        ("part-[01].jsonl", "part-1.jsonl", True),
        ("part-[01].jsonl", "part-2.jsonl", False),
        ("part-[!0-4].jsonl", "part-7.jsonl", True),
        ("part-[!0-4].jsonl", "part-3.jsonl", False),
        ("a[!b]c", "a/c", False),
        ("a[^b]c", "a^c", True),
        ("a[^b]c", "adc", False),
        ("a[b", "a[b", True),
        ("a[].jsonl", "a[].jsonl", True),
        ("a?c", "abc", True),
    ],
)
def test_a_glob_of_objects_means_what_it_means_of_files(glob: str, path: str, fits: bool) -> None:
    assert (re.fullmatch(addresses._expression(glob), path) is not None) == fits


def test_objects_of_a_bucket_are_sources(project: Path, bucket: Bucket) -> None:
    storage = open_storage(bucket.url)
    for name in ("crawl/2026/a.jsonl", "crawl/2026/deep/b.jsonl", "crawl/other/c.jsonl", "crawl/2026/notes.md"):
        storage.create(name, lines(f"the text of {name}"))
    made = build(root_of(project), BuildRequest((f"{bucket.url}/crawl/2026/**/*.jsonl",)))
    assert [source.name for source in made.sources] == ["a.jsonl", "deep/b.jsonl"]
    places = [event.body["place"] for _, event in root_of(project).history().events(type=COLLECTION_SOURCE)]
    assert places == [f"{bucket.url}/crawl/2026/a.jsonl", f"{bucket.url}/crawl/2026/deep/b.jsonl"]
    storage.replace("crawl/2026/a.jsonl", lines("a text that came later", "and another"))
    assert build(root_of(project), BuildRequest((f"{bucket.url}/crawl/2026/**/*.jsonl",))).read == 3
    with pytest.raises(DataMissing, match="nothing matches"):
        finding.find([f"{bucket.url}/crawl/nothing/*.jsonl"])
    with pytest.raises(DataError, match="unknown kind of file"):
        finding.find([f"{bucket.url}/crawl/2026/*.md"])


@pytest.fixture
def hub(monkeypatch: pytest.MonkeyPatch) -> Iterator[Hub]:
    with hub_on_loopback() as found:
        monkeypatch.setenv("HF_ENDPOINT", found.address)
        monkeypatch.delenv("HF_TOKEN", raising=False)
        yield found


def test_a_data_set_of_the_hub_at_a_commit_is_a_source(project: Path, hub: Hub) -> None:
    large = lines(*(f"text number {number} of the large file" for number in range(300)))
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"text": ["a row", "another row"]}), sink)
    files = {
        "data/small.jsonl": lines("a small one"),
        "data/large.jsonl": large,
        "data/rows.parquet": sink.getvalue().to_pybytes(),
    }
    commit = hub.commit("lab/texts", "main", files | {"README.md": b"---\nlicense: cc-by-4.0\n---\n# texts"})
    made = build(root_of(project), BuildRequest((f"hf:datasets/lab/texts@{commit}/data/*",)))
    assert made.read == 303 and [source.name for source in made.sources] == sorted(files)
    licences = [event.body["licence"] for _, event in root_of(project).history().events(type=COLLECTION_SOURCE)]
    assert licences == ["cc-by-4.0"] * 3
    before = len(hub.asked)
    assert build(root_of(project), BuildRequest((f"hf:datasets/lab/texts@{commit}/data/*",))).again
    assert [asked for asked in hub.asked[before:] if "resolve" in asked] == []
    with pytest.raises(UsageError, match="pinned by its commit"):
        finding.find(["hf:datasets/lab/texts@main/data/*"])
    with pytest.raises((UsageError, MissingEvidence)):
        finding.find([f"hf:datasets/lab/texts@{'0' * 40}/data/*"])
    for number, (card, said) in enumerate(
        ((b"# no front matter", ""), (b"---\n[\n---\n", ""), (b"---\nlicense: [mit, gpl-3.0]\n---\n", "mit, gpl-3.0"))
    ):
        commit = hub.commit(f"lab/more{number}", "main", {"a.jsonl": lines("a text"), "README.md": card})
        (found,) = finding.find([f"hf:datasets/lab/more{number}@{commit}/*.jsonl"])
        assert found.licence == said


def test_a_list_that_is_none_is_named_by_its_line(project: Path) -> None:
    good = declared(b"", "https://a.example/a.jsonl")
    for bad in (
        {**good, "sha256": "0"},
        {**good, "urls": []},
        {**good, "urls": ["file:///etc/passwd"]},
        {**good, "more": 1},
    ):
        with pytest.raises(DataError, match=r"list\.jsonl:2"):
            finding.find([pinned(project, good, bad)])
    with pytest.raises(DataMissing, match="cannot be read"):
        finding.find(["pinned:nowhere.jsonl"])
    with pytest.raises(DataError, match="two sources have one name"):
        finding.find([pinned(project, good, {**good, "urls": ["https://b.example/a.jsonl"]})])


def test_parquet_is_cut_at_row_groups(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from marin.plugins.collections.sources import lines as reading

    table = pa.table({"text": [f"text number {number}" for number in range(1000)]})
    pq.write_table(table, tmp_path / "a.parquet", row_group_size=90)
    whole = list(reading.read(tmp_path / "a.parquet", "a.parquet"))
    monkeypatch.setattr(finding, "SLICE", 3000)
    (found,) = finding.find([str(tmp_path / "*.parquet")])
    parts = [
        item
        for part in found.slices
        for item in reading.read(tmp_path / "a.parquet", "a.parquet", start=part.start, end=part.end, first=part.first)
    ]
    assert len(found.slices) > 3 and parts == whole and len(whole) == 1000
