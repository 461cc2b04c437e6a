"""From verdicts to exit status, and from errors to verdicts; pins that notice a rolled-back or forked log."""

from __future__ import annotations

from pathlib import Path

import pytest

from ledger import (
    Draft,
    LedgerError,
    Log,
    LogReader,
    MemoryStorage,
    NotFound,
    Signer,
    StorageFailed,
    Tampered,
    Unavailable,
    create_key,
)
from marin.errors import DataError, DataMissing, MissingEvidence, Unsupported, UsageError
from marin.replay.pins import Pins
from marin.replay.verdict import NAMES, Report, TrainingSummary, Verdict
from marin.replay.verify import _judged


def report(**outcomes: str) -> Report:
    verdicts = {name: Verdict(outcomes.get(name, "NOT_RUN")) for name in NAMES}  # type: ignore[arg-type]
    return Report("r", verdicts, TrainingSummary("none", 0, 0, 1, 0.0), None, "o", 1, "00", ())


@pytest.mark.parametrize(("outcomes", "status"), [
    ({}, 0),
    ({"ledger": "PASS", "training": "PASS"}, 0),
    ({"ledger": "PASS", "training": "FAIL", "data": "UNAVAILABLE"}, 1),
    ({"ledger": "PASS", "data": "UNAVAILABLE"}, 3),
    ({"training": "UNSUPPORTED"}, 3),
])
def test_exit_status(outcomes: dict[str, str], status: int) -> None:
    assert report(**outcomes).exit_code() == status


def test_the_json_object_has_the_contract_s_keys() -> None:
    shown = report(ledger="PASS").as_json()
    assert {"run", "verdicts", "training", "first_divergence", "log_checkpoint", "event"} <= shown.keys()
    assert set(shown["verdicts"]) == set(NAMES)
    assert set(shown["training"]) == {"mode", "segments_total", "segments_replayed", "workers", "seconds"}
    assert set(shown["log_checkpoint"]) == {"origin", "size", "root"}


@pytest.mark.parametrize(("error", "outcome"), [
    (Unsupported("no"), "UNSUPPORTED"), (UsageError("no"), "UNSUPPORTED"),
    (Unavailable("no"), "UNAVAILABLE"), (MissingEvidence("no"), "UNAVAILABLE"),
    (NotFound("no"), "UNAVAILABLE"), (StorageFailed("no"), "UNAVAILABLE"),
    (DataMissing("no"), "UNAVAILABLE"), (DataError("no"), "FAIL"), (Tampered("no"), "FAIL"), (LedgerError("no"), "FAIL"),
])
def test_errors_become_the_verdict_that_they_mean(error: LedgerError, outcome: str) -> None:
    def judge() -> Verdict:
        raise error

    verdict = _judged("ledger", judge)
    assert (verdict.outcome, verdict.lines) == (outcome, (str(error),))


@pytest.fixture
def signer(tmp_path: Path) -> Signer:
    return create_key(tmp_path / "key", "test.example/log")


def log_of(signer: Signer, words: list[str]) -> LogReader:
    storage = MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append([Draft("test.word/v1", "words", {"word": word}, id=word) for word in words])
    return LogReader(storage, [signer.verifier])


def test_a_pin_moves_forward_and_never_back(signer: Signer, tmp_path: Path) -> None:
    pins = Pins(tmp_path / "pins")
    short, long = log_of(signer, ["a", "b"]), log_of(signer, ["x", "y", "z"])
    assert "first time" in pins.check(short.checkpoint(), short)
    assert "size 2" in pins.check(short.checkpoint(), short)
    with pytest.raises(Tampered, match="another history"):
        pins.check(long.checkpoint(), long)
    fresh = Pins(tmp_path / "other")
    fresh.check(long.checkpoint(), long)
    with pytest.raises(Tampered, match="rolled back"):
        fresh.check(short.checkpoint(), short)
