"""Why a step is executed: what differs from the run that it continues, or from the newest beginning of it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from ledger import Draft, Store, canonical_digest, open_storage
from marin.history.changes import keep_listing, read_listing, reason
from marin.history.runs import stream_of
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import Root

CODE = "sha256:" + "c" * 64


def begun(run: str, rate: float) -> Draft:
    body = events.StepStarted(
        run=run,
        step="train",
        identity=CODE,
        config_digest=CODE,
        config={"optimizer": {"learning_rate": rate}},
        inputs={},
        code=CODE,
        attempt=1,
    )
    return Draft(events.STEP_STARTED, stream_of(run), events.write(body))


def why(root: Root, **more: Any) -> str:
    config = {"optimizer": {"learning_rate": 0.3}}
    return reason(
        root.history(), root.store(), "train", config=config, inputs={}, code=CODE, lock="", listing=(), **more
    )


def test_a_phase_is_explained_against_the_run_that_it_continues(tmp_path: Path, own_keys: Path) -> None:
    root = create_root(str(tmp_path / ".marin"), origin="marin.test/changes")
    assert why(root) == "never made here"
    assert why(root, named=["tokens"]) == "", "before its inputs are made that is no news"
    root.append([begun("aaaa2345", 0.1), begun("bbbb2345", 0.2)])
    assert why(root) == "config changed: optimizer.learning_rate 0.2 -> 0.3"
    told = why(root, against="aaaa2345")
    assert told == "against run aaaa2345, config changed: optimizer.learning_rate 0.1 -> 0.3"
    assert why(root, against="zzzz2345") == why(root), "a run without that step explains nothing"
    assert why(root, against="aaaa2345", named=["tokens"]) == told, "what is known to differ before inputs are made"


@pytest.mark.parametrize(
    "kept", [b'[["a",["b"]]]', b'[[1,"x"],["a","y"]]', b"[" * 100_000, b"\xff", b'{"a":"b"}', b'[["a"]]', b""]
)
def test_what_is_no_list_of_code_files_is_none(tmp_path: Path, kept: bytes) -> None:
    """A root that somebody brought may have anything under the digest that its events name as code."""
    store = Store(open_storage(str(tmp_path)))
    assert read_listing(store, store.put_bytes(kept).digest) == {}
    keep_listing(store, listing := [("a.py", "sha256:1"), ("b.py", "sha256:2")])
    assert read_listing(store, canonical_digest([list(item) for item in listing])) == dict(listing)
