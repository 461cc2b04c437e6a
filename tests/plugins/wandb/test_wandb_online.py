"""W&B live: the real client tells a stub of its server what the ledger has; groups, tags, artifacts, lineage by digest."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from wandb_server import ENTITY, KEY, Told, wandb_server

from marin.errors import UsageError
from marin.execution import tracker
from marin.execution.recording.journal import LedgerJournal
from marin.execution.tracker import choose
from marin.plugins.wandb.choice import VARIABLE, Choice, choice, from_words
from marin.plugins.wandb.export import export_wandb
from marin.plugins.wandb.live import LiveJournal
from marin.record import events
from marin.record.root import Root
from tests.plugins.mlflow.roots import make_artifacts, make_root, record
from tests.plugins.mlflow.story import Log, begin_step, digest, loss, start, whole_run

from .test_wandb import segments

RUN = "abcd2345"


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[Told]:
    for name in ("MARIN_ROOT", "MARIN_KEY", "MARIN_TRACKER", VARIABLE):
        monkeypatch.setenv(name, "")
    with wandb_server() as (address, told):
        monkeypatch.setenv("WANDB_BASE_URL", address)
        monkeypatch.setenv("WANDB_API_KEY", KEY)
        yield told


def begun(root: Root) -> tuple[LedgerJournal, events.TrainStarted]:
    """A run whose training has started."""
    log, some = Log(), digest("state 0")
    start(log, RUN)
    begin_step(log, RUN, "train")
    record(root, log)
    body = events.TrainStarted(
        run=RUN, first_step=0, num_steps=120, state=some, manifest=some, program={}, seeds={}, devices=1, attempt=1
    )
    return LedgerJournal(root, RUN, "train"), body


@pytest.mark.long
def test_a_training_is_told_while_it_goes_on_and_after_an_interruption(server: Told, tmp_path: Path) -> None:
    root = make_root(tmp_path)
    journal, started = begun(root)
    assert choose(("wandb.mode=online", "wandb.tag=first-try", "seed=1")) == ("seed=1",)
    assert tracker.choose_tracker() == "wandb" and choice() == Choice(mode="online", tag="first-try")
    assert VARIABLE in tracker.environment() and KEY not in str(tracker.environment())
    for first, last in ((0, 30), (30, 60)):
        live = LiveJournal(journal, root, RUN)
        live.record(events.TRAIN_STARTED, started)
        for kind, body in segments(first, last):
            live.record(kind, body)
        live.close()
    (run,) = server.runs.values()
    assert (run.name, run.tags, server.refused) == (RUN, ["marin", "first-try"], 0)
    assert run.group is not None and run.group.startswith("first-try-") and run.display == f"{run.group}-run-0"
    assert [point["train_step"] for point in run.points] == list(range(60)), "one run, nothing twice, nothing left out"
    assert [point["train/loss"] for point in run.points] == [loss(step) for step in range(60)]
    saved = [one for one in server.committed() if one.kind == "checkpoint"]
    assert [(one.metadata["train_step"], one.logged_by) for one in saved] == [(30, RUN)], "equal bytes are one version"
    assert not list(root.local.rglob("*wandb*")), "a root travels"


@pytest.mark.long
def test_what_runs_share_is_one_artifact_by_its_digest(server: Told, tmp_path: Path) -> None:
    root, log = make_root(tmp_path), Log()
    made = make_artifacts(root, tmp_path / "made")
    whole_run(log, RUN, steps=30, artifacts=made)
    whole_run(log, "efgh6789", steps=30, artifacts=made)
    record(root, log)
    asked = Choice(mode="online", project="shared", group="both")
    for run in (RUN, "efgh6789"):
        export_wandb(root, run, tmp_path / "out", asked)
    assert {(run.project, run.group) for run in server.runs.values()} == {("shared", "both")}
    assert all(run.finished and run.summary["marin.state"] == "completed" for run in server.runs.values())
    for name, stored in made.items():
        if name in ("tokens", "train"):
            continue  # of other content in each of the story's runs
        (one,) = [one for one in server.committed() if one.metadata["marin.artifact"] == stored and one.kind == name]
        assert one.references == [f"marin://artifact/{stored.removeprefix('sha256:')}"], "equal outputs are one version"
        assert one.logged_by == RUN and one.metadata["marin.digest"].startswith("sha256:")


@pytest.mark.long
def test_what_was_taken_over_is_used_and_not_made(
    server: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from dataclasses import replace

    from marin.history.run import Run
    from marin.history.runs import load_named
    from marin.plugins.wandb import export

    root, log = make_root(tmp_path), Log()
    whole_run(log, RUN, steps=30, artifacts=make_artifacts(root, tmp_path / "made"))
    record(root, log)

    def taken_over(*words: Any) -> Run:
        run = load_named(*words)
        states = {
            name: replace(state, result=replace(state.result, cached=name == "corpus") if state.result else None)
            for name, state in run.states.items()
        }
        return replace(run, states=states)

    monkeypatch.setattr(export, "load_named", taken_over)
    export_wandb(root, RUN, tmp_path / "out", Choice(mode="online"))
    (run,) = server.runs.values()
    used = [server.artifacts[one] for one in run.used]
    assert [one.kind for one in used] == ["corpus"] and used[0].logged_by == ""
    assert {one.kind for one in server.committed() if one.logged_by == RUN} >= {"state", "export"}


@pytest.mark.long
def test_an_offline_run_is_sent_by_wandb_sync(server: Told, tmp_path: Path) -> None:
    root, log = make_root(tmp_path), Log()
    whole_run(log, RUN, steps=30, artifacts=make_artifacts(root, tmp_path / "made"))
    record(root, log)
    folder = export_wandb(root, RUN, tmp_path / "out", Choice(tag="later"))
    assert not server.runs, "nothing was sent before somebody wanted it"
    command = [sys.executable, "-m", "wandb", "sync", str(folder)]
    environment = os.environ | {"WANDB_ERROR_REPORTING": "false", "HOME": str(tmp_path)}
    done = subprocess.run(
        command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600, check=False
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (run,) = server.runs.values()
    assert run.name == RUN and "later" in run.tags
    assert [point["train/loss"] for point in run.points] == [loss(step) for step in range(30)]
    assert run.config["marin.root"] == root.verifier.name
    assert {one.kind for one in server.committed()} >= {"corpus", "checkpoint", "export"}
    assert ENTITY in done.stdout + done.stderr


def test_without_a_key_nothing_is_sent_and_with_a_wrong_one_the_run_goes_on(
    server: Told, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setenv("WANDB_API_KEY", "")
    with pytest.raises(UsageError, match="WANDB_API_KEY"):
        choose(("wandb.mode=online",))
    assert choose(("wandb.log=false",)) == () and tracker.choose_tracker() == "none"
    with pytest.raises(UsageError, match=r"wandb\.log=true"):
        from_words({"colour": "red"})
    monkeypatch.setenv("WANDB_API_KEY", "f" * 40)
    root = make_root(tmp_path)
    journal, started = begun(root)
    choose(("wandb.mode=online",))
    live = LiveJournal(journal, root, RUN)
    live.record(events.TRAIN_STARTED, started)
    for kind, body in segments(0, 30):
        live.record(kind, body)
    live.close()
    assert len(list(journal.history(events.TRAIN_SEGMENT))) == 1, "what matters is recorded"
    assert not server.runs and server.refused
    assert any("W&B does not follow any more" in message for message in caplog.messages)
