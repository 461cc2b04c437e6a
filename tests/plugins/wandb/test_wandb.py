"""A run as an offline run of W&B, read back from W&B's own files. No network: the export runs without one."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
from wandb_records import read_offline_run

from marin.execution.recording.journal import LedgerJournal
from marin.kinds.known import own_kinds
from marin.plugins.wandb.export import export_wandb
from marin.plugins.wandb.file import logged_points, records
from marin.plugins.wandb.live import LiveJournal
from marin.plugins.wandb.run import rows_of
from marin.record import events
from marin.record.meter import Meter, segment_metrics
from tests.plugins.mlflow.roots import make_artifacts, make_root, record
from tests.plugins.mlflow.story import Log, begin_step, digest, loss, replay, segment, start, whole_run


def test_losses_of_a_loop_stand_by_train_step_whatever_its_recipe_is() -> None:
    segment = events.LoopSegment(run="abcd2345", start=3, end=5, losses=[(2.0).hex(), (1.0).hex()], batches=["", ""])
    named = {
        "loop": {},
        "trainer": {"batch_size": 8},
        "model": {"seq_len": 16},
    }  # which says nothing of tokens a step here
    for recipe in ({"trainer": "sgd", "model": 3}, named):
        assert rows_of(recipe, [segment], []) == {3: {"train/loss": 2.0}, 4: {"train/loss": 1.0}}


def test_a_metric_of_the_name_of_an_axis_is_no_axis() -> None:
    series = [events.Series(key=name, steps=[0], values=[(7.0).hex()]) for name in ("train_step", "evaluated_step")]
    found = rows_of({}, [], [events.MetricsRecorded(run="abcd2345", step="loop", series=series)])
    assert found == {0: {"loop/train_step": 7.0, "loop/evaluated_step": 7.0}}


@pytest.mark.long
def test_an_offline_run_has_id_config_metrics_and_artifacts_by_reference(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("MARIN_ROOT", "MARIN_KEY"):
        monkeypatch.setenv(name, "")
    monkeypatch.setenv("WANDB_API_KEY", "0" * 40)
    monkeypatch.setenv("WANDB_BASE_URL", "https://192.0.2.1")
    root = make_root(tmp_path)
    log = Log()
    made = make_artifacts(root, tmp_path / "made")
    whole_run(log, "abcd2345", steps=30, artifacts=made)
    body = segment_metrics("abcd2345", "train", 0, {"train/grad_norm": [0.5] * 30}, Meter().lap(30, 900))
    log.append(events.METRICS_RECORDED, body)
    replay(log, "abcd2345")
    record(root, log)
    real = socket.socket.connect

    def local_only(self: socket.socket, address: Any) -> Any:
        assert isinstance(address, str) or address[0] in ("127.0.0.1", "::1", "localhost"), address
        return real(self, address)

    monkeypatch.setattr(socket.socket, "connect", local_only)
    run = read_offline_run(export_wandb(root, "abcd", tmp_path / "out"))
    assert run.complete and run.run_id == "abcd2345"
    assert run.config["model.seq_len"] == 128 and run.config["optimizer.learning_rate"] == 0.003, "values, not texts"
    assert run.config["marin.verified"].startswith("PASS")
    assert [point["train/loss"] for point in run.points] == [loss(step) for step in range(30)]
    assert [point["_step"] for point in run.points] == list(range(30))
    assert run.points[3]["train/grad_norm"] == 0.5
    assert run.points[-1]["train/tokens"] == 30 * 16 * 128
    assert run.points[-1]["system/tokens_per_second"] > 0
    assert run.summary["marin.verdict.training"] == "PASS"
    by_artifact = {metadata["marin.artifact"]: references for _, metadata, references in run.artifacts}
    assert by_artifact.keys() >= {made["corpus"], made["export"]}
    assert by_artifact[made["export"]] == [f"marin://artifact/{made['export'].removeprefix('sha256:')}"]
    assert all(metadata["marin.digest"].startswith("sha256:") for _, metadata, _ in run.artifacts)

    again = read_offline_run(export_wandb(root, "abcd", tmp_path / "out"))
    assert (again.run_id, again.points, again.artifacts) == ("abcd2345", [], []), "only what the folder lacks is added"
    assert again.summary["marin.verdict.training"] == "PASS"


def segments(first: int, last: int) -> list[tuple[str, Any]]:
    """What training records of these train steps, in its order."""
    bodies = {kind.type: kind.body for kind in own_kinds()}
    log = Log()
    segment(log, "abcd2345", first, last)
    part, saved = (events.read(bodies[event.type], event.body, where="story") for event in log.entries)
    measured = segment_metrics(
        "abcd2345", "train", first, {"train/grad_norm": [0.5] * (last - first)}, Meter().lap(last - first, 900)
    )
    return [(events.CHECKPOINT_SAVED, saved), (events.TRAIN_SEGMENT, part), (events.METRICS_RECORDED, measured)]


@pytest.mark.long
def test_a_training_that_was_killed_between_ledger_and_wandb_goes_on_without_a_gap(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
):
    for name in ("MARIN_ROOT", "MARIN_KEY"):
        monkeypatch.setenv(name, "")
    root, log = make_root(tmp_path), Log()
    start(log, "abcd2345")
    begin_step(log, "abcd2345", "train")
    record(root, log)
    some = digest("state 0")
    begun = events.TrainStarted(
        run="abcd2345",
        first_step=0,
        num_steps=120,
        state=some,
        manifest=some,
        program={},
        seeds={},
        devices=1,
        attempt=1,
    )
    journal = LedgerJournal(root, "abcd2345", "train")
    first = LiveJournal(journal, root, "abcd2345")
    first.record(events.TRAIN_STARTED, begun)
    for kind, body in segments(0, 30):
        first.record(kind, body)
    first.close()
    for kind, body in segments(30, 60):  # durable in the ledger, and then the process died: W&B was not told
        journal.record(kind, body)
    second = LiveJournal(journal, root, "abcd2345")
    second.record(events.TRAIN_STARTED, begun)
    for kind, body in segments(60, 90):
        second.record(kind, body)
    second.close()
    assert not (root.local / "projections" / "wandb").exists(), "a root travels, and what W&B writes here stays here"
    runs = [read_offline_run(path) for path in sorted((root.views() / "wandb").glob("offline-run-*"))]
    assert {run.run_id for run in runs} == {"abcd2345"}
    steps = [[point["train_step"] for point in run.points] for run in runs]
    assert steps == [list(range(30)), list(range(30, 90))]
    assert [point["train/loss"] for run in runs for point in run.points] == [loss(step) for step in range(90)]
    assert all(point["train/grad_norm"] == 0.5 for run in runs for point in run.points)
    assert [metadata["train_step"] for run in runs for _, metadata, _ in run.artifacts] == [30, 90]


def test_a_file_that_ends_anywhere_counts_as_far_as_it_is_whole(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    for name in ("MARIN_ROOT", "MARIN_KEY"):
        monkeypatch.setenv(name, "")
    root, log = make_root(tmp_path), Log()
    whole_run(log, "abcd2345", steps=30, artifacts=make_artifacts(root, tmp_path / "made"))
    record(root, log)
    (path,) = export_wandb(root, "abcd", tmp_path / "out").glob("*.wandb")
    whole, identity = path.read_bytes(), digest("identity train")
    assert logged_points(tmp_path / "out", "abcd2345", identity).step == 29
    assert logged_points(tmp_path / "out", "other", identity).folders == 0
    assert logged_points(tmp_path / "out", "abcd2345", digest("of another training")).step == -1
    before, steps = 0, set()
    for length in range(0, len(whole), 97):
        path.write_bytes(whole[:length])
        count = sum(1 for _ in records(path))
        assert count >= before
        before = count
        steps.add(logged_points(tmp_path / "out", "abcd2345", identity).step)
    assert len(steps) > 20 and min(steps) == -1
    path.write_bytes(whole[:200] + b"\xff" * 400)
    assert logged_points(tmp_path / "out", "abcd2345", identity).step == -1
