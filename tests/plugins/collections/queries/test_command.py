"""`marin data`: what is printed is what tools rely on."""

from __future__ import annotations

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

from tests.plugins.collections.labelled import labelled

Marin = Any


@pytest.fixture
def built(marin: Marin, root: Path, tmp_path: Path) -> Any:
    labelled(5, size=10).write(tmp_path / "raw")
    done = marin(
        "data", "build", "--source", tmp_path / "raw/*.jsonl", "--evaluation", tmp_path / "test.jsonl", "--json"
    )
    return done.json


def test_build_prints_one_object(built: Any) -> None:
    assert {"artifact", "documents", "removed", "sources", "seconds"} <= built.keys()
    assert built["artifact"].startswith("sha256:") and built["removed"].keys() == {
        "contaminated",
        "exact_duplicate",
        "near_duplicate",
    }
    assert built["documents"]["read"] == built["documents"]["kept"] + sum(built["removed"].values())
    assert [source["name"] for source in built["sources"]] == ["part-0.jsonl"]


def test_a_build_that_is_asked_to_stop_gives_its_lease_back(
    marin: Marin, root: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    labelled(5, size=10).write(tmp_path / "raw")
    command = ("data", "build", "--source", tmp_path / "raw/*.jsonl", "--json")
    with monkeypatch.context() as patch:
        patch.setattr(
            "marin.plugins.collections.build.LedgerShelf.complete", lambda *_: os.kill(os.getpid(), signal.SIGTERM)
        )
        stopped = marin(*command)
    assert (stopped.status, stopped.err.splitlines()[-1]) == (130, "marin: interrupted by SIGTERM")
    taken, *others, released = [event["type"] for event in marin("log", "--json").lines if event["stream"] == "leases"]
    assert (taken, others, released) == ("lease.taken/v1", [], "lease.released/v1")
    again = marin(*command)
    assert again.status == 0 and again.json["documents"]["read"] > 0


def test_documents_are_listed_and_shown(marin: Marin, built: Any, tmp_path: Path) -> None:
    listed = marin("data", "list", built["artifact"], "--json").lines
    assert len(listed) == built["documents"]["kept"] and listed[0].keys() == {"id", "source", "split"}
    assert marin("data", "list", built["artifact"], "--limit", 3, "--json").lines == listed[:3]
    assert {row["split"] for row in listed} == {"train", "validation"}
    first = marin("data", "show", listed[0]["id"], "--json").json
    assert first["kept"] and first["id"] == listed[0]["id"]
    file = tmp_path / "page.txt"
    file.write_text(first["text"] + "\n")
    assert marin("data", "show", file, "--json").json["id"] in {first["id"], *(one["id"] for one in first["also"])}
    texts = [json.loads(line)["text"] for line in (tmp_path / "raw/part-0.jsonl").read_text().splitlines()]
    file.write_text(next(text for text in texts if texts.count(text) > 1))
    shown = marin("data", "show", file, "--json").json
    assert shown["also"] and {decision["reason"] for decision in shown["decisions"]} <= {
        "contaminated",
        "exact_duplicate",
        "near_duplicate",
    }
    missing = marin("data", "show", "0" * 32)
    assert missing.status == 2 and "no such document" in missing.err


@pytest.mark.long
def test_a_report_accounts_for_every_document(marin: Marin, built: Any, tmp_path: Path) -> None:
    told = marin("data", "report", built["artifact"], "--html", tmp_path / "page.html", "--json").json
    kept, removed = built["documents"]["kept"], built["removed"]
    assert told["documents"] == built["documents"]
    assert {row["reason"]: row["documents"] for row in told["steps"] if row["action"] == "remove"} == removed
    assert [sum(source[name] for source in told["sources"]) for name in ("read", "kept")] == [
        built["documents"]["read"],
        kept,
    ]
    listed = [
        marin("data", "show", row["id"], "--json").json
        for row in marin("data", "list", built["artifact"], "--json").lines
    ]
    assert sum(source["bytes"] for source in told["sources"]) == sum(len(one["text"].encode()) for one in listed)
    lengths = [len(one["text"].encode()) for one in listed]
    for least, count in told["lengths"].items():
        assert count == sum(int(least) <= length < 2 * int(least) for length in lengths)
    assert sum(told["lengths"].values()) == sum(told["licences"].values()) == sum(told["splits"].values()) == kept
    for reason, examples in told["examples"].items():
        assert 1 <= len(examples) <= 3 and examples == sorted(examples, key=lambda one: one["id"])
        shown = marin("data", "show", examples[0]["id"], "--json").json
        assert not shown["kept"] and reason in {decision["reason"] for decision in shown["decisions"]}
        assert examples[0]["text"] == " ".join(shown["text"][:560].split())[:280]
        texts = [marin("data", "show", one["id"], "--json").json["text"] for one in examples]
        of_reason = {row["reason"]: row for row in told["steps"] if row["action"] == "remove"}[reason]
        size = sum(len(text.encode()) for text in texts)
        assert of_reason["bytes"] == size if of_reason["documents"] == len(examples) else of_reason["bytes"] > size
    page = (tmp_path / "page.html").read_text()
    assert "<script" not in page and all(reason in page for reason in removed)


def test_a_collection_is_made_again(marin: Marin, built: Any, tmp_path: Path) -> None:
    told = marin("data", "verify", built["artifact"], "--json").json
    assert told["same"] and told["executed"] >= 2 and told["bound"] is None
    labelled(6, size=4).write(tmp_path / "more", files=2)
    more = marin("data", "build", "--source", tmp_path / "more/*.jsonl", "--json").json["artifact"]
    partly = marin("data", "verify", more, "--sample", "1", "--json")
    some = partly.json
    assert partly.status == 4
    assert (
        some["same"]
        and some["taken"]
        and some["bound"].startswith("a wrong fraction f of them is met with probability")
    )
    path = tmp_path / "raw/part-0.jsonl"
    path.write_text(path.read_text() + json.dumps({"text": "one more"}) + "\n")
    again = marin("data", "verify", built["artifact"])
    assert again.status == 1 and "part-0.jsonl" in again.out


@pytest.mark.parametrize(
    ("settings", "says"),
    [("near: {threshold: 2}", "near.threshold"), ("steps: [{kind: odd}]", "unknown kind of step"), ("[", "not YAML")],
)
def test_a_wrong_setting_is_named(marin: Marin, root: Path, tmp_path: Path, settings: str, says: str) -> None:
    (tmp_path / "own.yaml").write_text(settings)
    done = marin("data", "build", "--source", tmp_path / "*.jsonl", "--config", tmp_path / "own.yaml")
    assert done.status == 2 and says in done.err
