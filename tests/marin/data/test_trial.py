"""A tokenizer from elsewhere is opened by a child first. In place of what would end that child stands one that ends by itself:
killed, or with a status, or never."""

from __future__ import annotations

import json
import sys
from pathlib import Path

import pytest

from ledger import Store
from marin.cli.main import run
from marin.data.borrowed import trial
from marin.errors import DataError
from marin.history.runs import load, run_ids
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import open_root
from marin.reporting.lineage.samples import read_samples

WORDS = ("<|endoftext|>", "the", "river", "mill")


def foreign(*more: str) -> bytes:
    """A tokenizer of words, a form that is not trained here. What was tried once is not tried again: each test has its own."""
    parts = dict.fromkeys(("truncation", "padding", "normalizer", "post_processor", "decoder"))
    vocabulary = {name: number for number, name in enumerate((*WORDS, *more))}
    model = {"type": "WordLevel", "vocab": vocabulary, "unk_token": WORDS[0]}
    return json.dumps(
        {"version": "1.0", "added_tokens": [], "pre_tokenizer": {"type": "Whitespace"}, "model": model, **parts}
    ).encode()


@pytest.fixture
def dying(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Every child of this kind is killed before it says anything."""
    stand_in = tmp_path / "python"
    stand_in.write_text("#!/bin/sh\nkill -KILL $$\n")
    stand_in.chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(stand_in))


def test_a_child_that_lives_says_nothing() -> None:
    trial.check(foreign("lives"), where="here")


def test_a_child_that_is_killed_is_an_answer(dying: None) -> None:
    with pytest.raises(DataError, match=r"a tokenizer that cannot be opened: here: .*found status -9"):
        trial.check(foreign("killed"), where="here")


def test_a_child_that_never_ends_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "python").write_text("#!/bin/sh\nexec sleep 600\n")
    (tmp_path / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(tmp_path / "python"))
    monkeypatch.setattr(trial, "SECONDS", 0.1)
    with pytest.raises(DataError, match="no end after"):
        trial.check(foreign("waits"), where="here")


def test_what_was_judged_before_a_child_died_is_printed_and_recorded(
    tmp_path: Path,
    own_keys: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
    request: pytest.FixtureRequest,
) -> None:
    """A run with a borrowed tokenizer: of its verdicts those that do not need it stand; a page says what is missing."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / "root"))
    create_root(str(tmp_path / "root"), origin="marin.test/borrowed")
    folder = tmp_path / "words"
    folder.mkdir()
    (folder / "tokenizer.json").write_bytes(foreign("recorded"))
    store: Store = open_root().store()
    digest = store.put_tree(folder).digest
    (tmp_path / "params.yaml").write_text(
        "dataset: {kind: grammar, train_bytes: 20000, validation_bytes: 2000, minimal_pairs: 3}\n"
        f"tokenizer: {{vocab_size: {len(WORDS) + 1}, artifact: '{digest}'}}\n"
    )
    assert run(["stage", "tokenizer"]) == 0, capsys.readouterr().err
    (name,) = run_ids(open_root().history())
    capsys.readouterr()
    request.getfixturevalue("dying")
    samples = read_samples(load(open_root().history(), name), store, steps=[])
    assert samples.documents and "status -9" in samples.missing
    assert run(["verify", name, "--json"]) != 0
    told = capsys.readouterr()
    report = json.loads(told.out)
    verdicts = report["verdicts"]
    assert (verdicts["ledger"], verdicts["artifacts"], verdicts["data"]) == ("PASS", "PASS", "FAIL")
    assert "status -9" in told.out
    (recorded,) = [event.body for _, event in open_root().reader().events() if event.type == events.REPLAY_COMPLETED]
    assert recorded["verdicts"]["ledger"] == "PASS" and recorded["verdicts"]["data"] == "FAIL"
