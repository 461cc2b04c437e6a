"""A tokenizer from elsewhere is opened by a child first. In place of what would end that child stands one that ends by itself:
killed, or with a status, or never."""

from __future__ import annotations

import json
import resource
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledger import Store, Unavailable
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
    """Every child of this kind aborts before it says anything."""
    stands_in(tmp_path, monkeypatch, "kill -ABRT $$")


def stands_in(folder: Path, monkeypatch: pytest.MonkeyPatch, words: str) -> None:
    """A shell with these words in the place of every Python that is started."""
    (folder / "python").write_text(f"#!/bin/sh\n{words}\n")
    (folder / "python").chmod(0o755)
    monkeypatch.setattr(sys, "executable", str(folder / "python"))


def test_a_child_that_lives_says_nothing() -> None:
    trial.check(foreign("lives"), where="here")


def test_a_child_that_aborts_is_an_answer(dying: None) -> None:
    with pytest.raises(DataError, match=r"a tokenizer that cannot be opened: here: .*found status -6"):
        trial.check(foreign("aborts"), where="here")


def test_a_child_that_computes_without_end_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """What the kernel does to it when its processor's time is over."""
    stands_in(tmp_path, monkeypatch, "kill -XCPU $$")
    with pytest.raises(DataError, match="no end after 120 s of a processor"):
        trial.check(foreign("computes"), where="here")


def test_a_processors_time_is_the_bound_of_a_child() -> None:
    script = "from marin.data.borrowed import trial\ntrial.SECONDS = 1\ntrial.bound()\nwhile True: pass"
    assert subprocess.run([sys.executable, "-c", script], check=False).returncode == -signal.SIGXCPU


@pytest.mark.parametrize("signal_name", ["KILL", "TERM", "INT", "HUP"])
def test_a_child_that_somebody_ends_says_nothing_of_the_file(
    signal_name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands_in(tmp_path, monkeypatch, f"kill -{signal_name} $$")
    number = signal.Signals[f"SIG{signal_name}"]
    for _ in range(2):  # and it is not remembered
        with pytest.raises(Unavailable, match=rf"is not known.*found status -{number:d}"):
            trial.check(foreign(f"ended by {signal_name}"), where="here")


def test_a_child_that_waits_for_a_busy_machine_says_nothing_of_the_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stands_in(tmp_path, monkeypatch, "exec sleep 600")
    monkeypatch.setattr(trial, "CLOCK_SECONDS", 0.1)
    with pytest.raises(Unavailable, match=r"no end after 0.1 s by the clock"):
        trial.check(foreign("waits"), where="here")


def test_less_time_than_a_trial_takes_says_nothing_of_the_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stands_in(tmp_path, monkeypatch, "kill -XCPU $$")
    monkeypatch.setattr(resource, "getrlimit", lambda which: (40, 40))
    with pytest.raises(Unavailable, match="is not known"):
        trial.check(foreign("has less time"), where="here")


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
    assert samples.documents and samples.missing == "a tokenizer that cannot be opened"
    assert run(["verify", name, "--json"]) != 0
    told = capsys.readouterr()
    report = json.loads(told.out)
    verdicts = report["verdicts"]
    assert (verdicts["ledger"], verdicts["artifacts"], verdicts["data"]) == ("PASS", "PASS", "FAIL")
    assert "status -6" in told.out
    (recorded,) = [event.body for _, event in open_root().reader().events() if event.type == events.REPLAY_COMPLETED]
    assert recorded["verdicts"]["ledger"] == "PASS" and recorded["verdicts"]["data"] == "FAIL"
