"""What is found in a copy of one's own log is about that copy: of the log itself it says what bytes elsewhere can say."""

from __future__ import annotations

import json
import runpy
import shlex
import shutil
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

import marin
from marin.cli import main
from marin.history.runs import load, resolve
from marin.plugins.mlflow.folding.fold import Fold
from marin.record import events
from marin.record.root import open_root
from marin.record.verdicts import COPY, of_the_log

PROGRAM = """
from pathlib import Path
import marin
with marin.start_run("mine") as run:
    for step in range(4):
        run.log(step, loss=1 / (step + {more}))
    Path("model.txt").write_text("weights")
    run.save("model", "model.txt")
"""
Call = Callable[..., Any]


@pytest.fixture
def call(project: Path, monkeypatch: pytest.MonkeyPatch, capsysbinary: pytest.CaptureFixture[bytes]) -> Call:
    """`marin --json ARGUMENT...` beside a recorded loop; the value that it prints."""
    monkeypatch.chdir(project)
    (project / "train.py").write_text(PROGRAM.format(more=1))
    runpy.run_path("train.py")

    def execute(*arguments: object) -> Any:
        capsysbinary.readouterr()
        with monkeypatch.context() as one_process:
            one_process.setenv("MARIN_ROOT", ".marin")
            main.run([*map(str, arguments), "--json"])
        out, err = capsysbinary.readouterr()
        assert out, err.decode()
        return json.loads(out)

    return execute


def shown(call: Call) -> object:
    """What lists, the library, the run's page and MLflow's view say of the run."""
    (row,) = call("ls")
    root = open_root(".marin")
    history = root.history()
    view = load(history, resolve(history, "latest"))
    fold = Fold(root.verifier.name, own=root.reader())
    for index, event in history.events():
        fold.apply(index, event)
    (projected,) = fold.runs.values()
    return (
        row["verdicts"],
        marin.open(".marin").run().verified,
        len(view.verdicts),
        len(view.claimed),
        projected.verified,
    )


def copied(name: str) -> Path:
    shutil.copytree(".marin", name)
    return Path(name)


def last_verdict() -> events.ReplayCompleted:
    (*_, (index, event)) = open_root(".marin").history().events(type=events.REPLAY_COMPLETED)
    return events.read(events.ReplayCompleted, event.body, where=str(index))


def test_damaged_bytes_of_a_copy_say_nothing_of_the_original(call: Call, project: Path) -> None:
    before = shown(call)
    copy = copied("copy")
    for blob in (path for path in (copy / "store").rglob("*") if path.is_file()):
        blob.chmod(0o600)
        blob.write_bytes(b"damaged")
    files = {path: path.read_bytes() for path in Path(".marin/log").rglob("*") if path.is_file()}
    found = call("verify", "latest", "--root", copy)
    assert (found["verdicts"]["artifacts"], found["event"]) == ("FAIL", None)
    assert {path: path.read_bytes() for path in Path(".marin/log").rglob("*") if path.is_file()} == files
    assert shown(call) == before
    assert call("verify", "latest", "--only", "artifacts")["verdicts"]["artifacts"] == "PASS"
    after = shown(call)
    assert after != before
    call("verify", "latest", "--root", copy, "--only", "artifacts")
    assert shown(call) == after, "nor is a PASS of the original's own bytes taken back"


def test_what_does_not_rest_on_bytes_fails_in_the_original_too(call: Call, project: Path) -> None:
    copy = copied("copy")
    (project / "other.py").write_text(PROGRAM.format(more=2))
    by = f"{shlex.quote(sys.executable)} other.py"
    found = call("verify", "latest", "--root", copy, "--by", by)
    assert (found["verdicts"]["artifacts"], found["verdicts"]["training"]) == ("PASS", "FAIL")
    assert COPY in last_verdict().log_checkpoint
    (row,) = call("ls")
    assert row["verdicts"]["training"] == "FAIL"
    assert "artifacts" not in row["verdicts"], "nobody looked at the original's own"


def test_a_published_copy_is_a_copy(call: Call, project: Path) -> None:
    """Recorded in the log that it is a copy of, whichever root is named to record in."""
    before = shown(call)
    copy = copied("elsewhere")
    call("verify", "latest", "--root", copy, "--record-in", ".marin", "--only", "ledger")
    assert last_verdict().log_checkpoint[COPY] == "elsewhere"
    assert shown(call) == before


@pytest.mark.parametrize(
    ("words", "kept"),
    [
        ({"artifacts": "FAIL", "training": "FAIL"}, {}),
        ({"artifacts": "UNAVAILABLE", "ledger": "FAIL"}, {}),
        ({"ledger": "FAIL"}, {}),
        ({"artifacts": "PASS", "ledger": "PASS"}, {}),
        ({"artifacts": "PASS", "ledger": "FAIL", "evaluation": "FAIL"}, {"ledger": "FAIL"}),
    ],
)
def test_what_of_a_copy_counts(words: dict[str, str], kept: dict[str, str]) -> None:
    assert of_the_log(words, {COPY: "copy"}) == kept
    assert of_the_log(words, {}) == words
