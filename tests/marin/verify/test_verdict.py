"""From verdicts to exit status, and from errors to verdicts; pins that notice a rolled-back or forked log."""

from __future__ import annotations

import pytest

from ledger import LedgerError, NotFound, StorageFailed, Tampered, Unavailable
from marin.errors import DataError, DataMissing, MissingEvidence, Unsupported, UsageError
from marin.record.verdicts import NAMES
from marin.verify.verdict import Report, TrainingSummary, Verdict, explained, judge_safely


def report(wanted: tuple[str, ...] = NAMES, **outcomes: str) -> Report:
    verdicts = {name: Verdict(outcomes.get(name, "NOT_RUN")) for name in NAMES}  # type: ignore[arg-type]
    return Report("r", verdicts, TrainingSummary("none", 0, 0, 1, 0.0), None, "o", 1, "00", (), wanted=wanted)


@pytest.mark.parametrize(
    ("outcomes", "status"),
    [
        (dict.fromkeys(NAMES, "PASS"), 0),
        ({}, 3),
        ({"ledger": "PASS", "training": "PASS"}, 3),
        ({"ledger": "PASS", "training": "FAIL", "data": "UNAVAILABLE"}, 1),
        ({"ledger": "PASS", "data": "UNAVAILABLE"}, 3),
        ({"training": "UNSUPPORTED"}, 3),
        (dict.fromkeys(NAMES, "PASS") | {"training": "PARTIAL"}, 4),
        (dict.fromkeys(NAMES, "PASS") | {"training": "PARTIAL", "model": "NOT_RUN"}, 3),
        (dict.fromkeys(NAMES, "PASS") | {"training": "PARTIAL", "model": "FAIL"}, 1),
    ],
)
def test_exit_status(outcomes: dict[str, str], status: int) -> None:
    assert report(**outcomes).exit_code() == status


def test_what_nobody_asked_for_does_not_count_unless_it_fails() -> None:
    assert report(("ledger", "training"), ledger="PASS", training="PASS").exit_code() == 0
    assert report(("ledger",), ledger="PASS", training="FAIL").exit_code() == 1
    assert report(("training",), training="NOT_RUN").exit_code() == 3


def test_the_json_object_has_the_contract_s_keys() -> None:
    shown = report(ledger="PASS").as_json()
    assert {"run", "verdicts", "training", "first_divergence", "log_checkpoint", "event"} <= shown.keys()
    assert set(shown["verdicts"]) == {*NAMES, "evaluation"}
    assert set(shown["training"]) == {"mode", "segments_total", "segments_replayed", "workers", "seconds"}
    assert set(shown["log_checkpoint"]) == {"origin", "size", "root"}


@pytest.mark.parametrize(
    ("error", "outcome"),
    [
        (Unsupported("no"), "UNSUPPORTED"),
        (UsageError("no"), "UNSUPPORTED"),
        (Unavailable("no"), "UNAVAILABLE"),
        (MissingEvidence("no"), "UNAVAILABLE"),
        (NotFound("no"), "UNAVAILABLE"),
        (StorageFailed("no"), "UNAVAILABLE"),
        (DataMissing("no"), "UNAVAILABLE"),
        (DataError("no"), "FAIL"),
        (Tampered("no"), "FAIL"),
        (LedgerError("no"), "FAIL"),
    ],
)
def test_errors_become_the_verdict_that_they_mean(error: LedgerError, outcome: str) -> None:
    def judge() -> Verdict:
        raise error

    verdict = judge_safely(judge)
    assert (verdict.outcome, verdict.lines) == (outcome, (str(error),))


@pytest.mark.parametrize(
    "error", [ValueError("no JSON"), TypeError("5"), KeyError("x"), OSError("gone"), MemoryError()]
)
def test_whatever_foreign_bytes_make_of_a_library_ends_in_words(error: Exception) -> None:
    def judge() -> Verdict:
        raise error

    verdict = judge_safely(judge)
    assert verdict.outcome == "UNAVAILABLE" and len(verdict.lines) == 1
    assert str(error) in verdict.lines[0]


@pytest.mark.parametrize("error", [MemoryError(), RecursionError(), ValueError("a list of tensors"), Tampered("x")])
def test_what_says_more_of_a_difference_never_takes_it_away(error: Exception) -> None:
    def explain() -> tuple[str, ...]:
        raise error

    assert explained(explain, ()) == ()
    assert explained(lambda: ("in the third layer",), ()) == ("in the third layer",)


def test_asked_to_stop_it_stops() -> None:
    def judge() -> Verdict:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        judge_safely(judge)
