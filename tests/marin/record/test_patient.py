"""Events of work that goes on wait in the journal: readers see them at once, and a log does not keep a partial bundle for
each of them (tlog-tiles: a partial tile of a published size stays until the complete one is there)."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from ledger import Draft, LogReader, check
from marin.record import events
from marin.record.creation import create_root
from marin.record.root import Root, open_root

DIGEST = "sha256:" + "0" * 64


@pytest.fixture
def root(own_keys: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Root:
    monkeypatch.setenv("MARIN_ROOT", str(tmp_path / "root"))
    return create_root(origin="marin.test/patient")


def begin(number: int) -> Draft:
    body = events.StepStarted(
        run="r", step="train", identity=DIGEST, config_digest=DIGEST, config={}, inputs={}, code=DIGEST, attempt=number
    )
    return Draft(events.STEP_STARTED, "run/r", events.write(body))


def end() -> Draft:
    return Draft(events.RUN_COMPLETED, "run/r", events.write(events.RunCompleted(run="r", outputs={}, metrics={})))


def bundles(root: Root) -> list[str]:
    folder = root.local / "log" / "tile" / "entries"
    return sorted(path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file())


def published(root: Root) -> int:
    """The size that foreign tools see."""
    return int((root.local / "log" / "checkpoint").read_text().split("\n")[1])


def test_what_goes_on_is_read_at_once_and_published_with_its_end(root: Root) -> None:
    for number in range(30):
        assert root.append([begin(number)])[0].index == number
        assert root.reader().checkpoint().size == number + 1, "our own readers see it"
    assert (published(root), bundles(root)) == (0, [])
    assert [event.body["attempt"] for _, event in root.history().events(stream="run/r")] == list(range(30))
    assert check(root.storage, [root.verifier]) == []
    root.append([end()])
    assert (published(root), bundles(root)) == (31, ["000.p/31"])
    assert not (root.local / "log" / "journal").exists()
    assert check(root.storage, [root.verifier]) == []


@pytest.mark.long
def test_a_log_of_many_events_keeps_few_bundles_and_a_complete_one_alone(root: Root) -> None:
    for number in range(250):
        root.append([begin(number)])
    assert len(bundles(root)) <= 4, "one for sixty-four events"
    for number in range(250, 600):
        root.append([begin(number)])
    names = bundles(root)
    assert {"000", "001"} <= set(names) and not [name for name in names if name.startswith(("000.p", "001.p"))]
    assert len(names) <= 2 + 4
    assert check(root.storage, [root.verifier]) == []
    assert LogReader(root.storage, [root.verifier]).checkpoint().size == 600


def test_the_same_drafts_again_are_the_same_events_while_they_wait(root: Root) -> None:
    drafts = [begin(number) for number in range(5)]
    first = [root.append([draft])[0] for draft in drafts]
    again = [root.append([draft])[0] for draft in drafts]
    assert [receipt.index for receipt in first] == [receipt.index for receipt in again] == list(range(5))


def test_whoever_opens_the_log_otherwise_publishes_what_waits(root: Root) -> None:
    for number in range(3):
        root.append([begin(number)])
    with root.log() as log:
        assert log.checkpoint.size == 3
    assert (published(root), bundles(root)) == (3, ["000.p/3"])


KILLED = """
import os, signal, sys
from marin.record.root import open_root
sys.path.insert(0, {folder!r})
from test_patient import begin
root = open_root()
for number in range(1000):
    root.append([begin(number)])
    print(number, flush=True)
"""


def test_a_writer_that_is_killed_loses_nothing_that_it_acknowledged(root: Root) -> None:
    script = KILLED.format(folder=str(Path(__file__).parent))
    process = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True, env=dict(os.environ))
    assert process.stdout is not None
    told = [int(process.stdout.readline()) for _ in range(40)]
    process.send_signal(signal.SIGKILL)
    rest = process.communicate()[0].split()
    acknowledged = max([*told, *map(int, rest)])
    again = open_root()
    size = again.reader().checkpoint().size
    assert size in (acknowledged + 1, acknowledged + 2)
    assert check(again.storage, [again.verifier]) == []
    assert again.append([end()])[0].index == size
    assert check(again.storage, [again.verifier]) == [] and published(again) == size + 1
