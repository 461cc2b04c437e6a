"""The ledger's writer and the workers' journal without a Ray: batches of many at a time, and nothing acknowledged is
lost.

The connection is a fake with the true one's faults: it may fail before or after the writer has committed.
"""

from __future__ import annotations

import threading
from collections.abc import Sequence
from pathlib import Path

import pytest

from ledger import Draft, Malformed, Receipt, Refused, Spool, Unavailable
from marin.plugins.ray.writer import LedgerWriter, SpooledJournal, writer_name
from marin.record.events import STEP_FAILED, StepFailed, write
from marin.record.root import Root, open_root
from marin.runners.jobs import error_of, parts_of

DIGEST = "sha256:" + "0" * 64


def fact(number: int) -> StepFailed:
    return StepFailed(run="r", step="train", identity=DIGEST, error=str(number))


class Connection:
    """A way to a writer that fails as often as it is told, before or after the commit."""

    def __init__(self, writer: LedgerWriter, faults: list[str]) -> None:
        self.writer, self.faults = writer, faults

    def append(self, drafts: Sequence[Draft]) -> list[Receipt]:
        fault = self.faults.pop(0) if self.faults else ""
        if fault == "before":
            raise Unavailable("it died before")
        receipts, parts = self.writer.append(drafts)
        if fault == "after":
            raise Unavailable("it died after")
        if parts:
            raise error_of(parts)
        return receipts

    def close(self) -> None:
        pass


@pytest.fixture
def root(project: Path) -> Root:
    return open_root(str(project / ".marin"))


def recorded(root: Root) -> list[str]:
    return [str(event.body["error"]) for _, event in root.reader().events()]


def test_what_dies_on_the_way_is_sent_again_and_recorded_once(root: Root, tmp_path: Path) -> None:
    writer, faults = LedgerWriter(str(root.location)), ["before", "after", "after", "before"]
    journal = SpooledJournal(root, "r", tmp_path / "spool", "own", lambda: Connection(writer, faults))
    indices = [journal.record(STEP_FAILED, fact(number)) for number in range(4)]
    assert faults == []
    assert indices == [0, 1, 2, 3]
    assert recorded(root) == ["0", "1", "2", "3"]
    assert [body.error for body in journal.history(STEP_FAILED)] == ["0", "1", "2", "3"]  # type: ignore[attr-defined]
    journal.close()
    assert list((tmp_path / "spool").iterdir()) == []


def test_the_next_worker_sends_what_a_dead_one_had_spooled(root: Root, tmp_path: Path) -> None:
    dead = Spool(tmp_path / "spool" / "dead", lambda: Connection(writer, []))
    writer = LedgerWriter(str(root.location))
    dead.put([Draft(STEP_FAILED, "run/r", write(fact(7)))])
    faults = ["before", "after"]
    journal = SpooledJournal(root, "r", tmp_path / "spool", "own", lambda: Connection(writer, faults))
    assert recorded(root) == ["7"]
    assert sorted(path.name for path in (tmp_path / "spool").iterdir()) == ["own"]
    journal.record(STEP_FAILED, fact(8))
    assert recorded(root) == ["7", "8"]


def test_many_workers_are_committed_together(root: Root) -> None:
    writer = LedgerWriter(str(root.location))
    answers: list[tuple[list[Receipt], list[str]]] = []

    def work(number: int) -> None:
        answers.append(writer.append([Draft(STEP_FAILED, f"run/{number}", write(fact(number)))]))

    threads = [threading.Thread(target=work, args=(number,)) for number in range(24)]
    for thread in threads:
        thread.start()
    root.append([Draft(STEP_FAILED, "run/driver", write(fact(99)))])  # the driver writes between its commits
    for thread in threads:
        thread.join()
    assert all(parts == [] for _, parts in answers)
    assert sorted(receipt.index for receipts, _ in answers for receipt in receipts) == sorted(
        set(range(25)) - {recorded(root).index("99")}
    )


def test_what_the_log_refuses_is_told_as_what_it_is(root: Root) -> None:
    receipts, parts = LedgerWriter(str(root.location)).append([Draft(STEP_FAILED, "run/r", {"nothing": 1})])
    assert receipts == []
    with pytest.raises(Refused, match="body of an event does not fit its type"):
        raise error_of(parts)
    assert recorded(root) == []


def test_errors_survive_the_journey() -> None:
    error = Malformed("what", where="where", expected="this", found="that", cure="cure")
    again = error_of(parts_of(error))
    assert (type(again), str(again)) == (Malformed, str(error))


def test_a_writer_without_its_key_says_so(root: Root, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setenv("MARIN_KEY", str(tmp_path / "nowhere"))
    with pytest.raises(Unavailable, match="no signing key"):
        LedgerWriter(str(root.location))


def test_one_name_for_each_log(root: Root) -> None:
    assert writer_name(root) == writer_name(open_root(root.location))
    assert writer_name(root).startswith("ledger-writer-")
