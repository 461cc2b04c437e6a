"""One `marin ui` for the tests of pages, and a browser that has opened it."""

# Taken by their commands: marin.plugins.mlflow.

from __future__ import annotations

import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from ui import MANY, Served, address_of, ended, left_behind, roots, started, story

from ledger import Draft
from marin.history.runs import evaluation_stream
from marin.kinds.families.measured import EVALUATION_MEASURED, EvaluationMeasured, MeasuredSet
from marin.record import events as types
from marin.record.meter import Meter, segment_metrics


def held_out(step: int) -> EvaluationMeasured:
    """What one held-out set measured of the state before ``step``, while run abcd2345 trained."""
    stored = story.digest("stored")
    numbers = {"loss": story.loss(step).hex(), "bits_per_byte": (story.loss(step) / 4).hex()}
    one = MeasuredSet(data=stored, scores=stored, documents=9, bytes=900, tokens=300, numbers=numbers)
    state = story.digest(f"state {step}")
    return EvaluationMeasured(
        run="abcd2345", step=step, state=state, tokenizer=stored, code=stored, lock=stored, sets={"children": one}
    )


@pytest.fixture(scope="session")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    folder = tmp_path_factory.mktemp("ui")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARIN_ROOT", "")
        patch.setenv("MARIN_KEY", "")
        patch.setenv("XDG_STATE_HOME", str(folder / "state"))  # what is left of another session is no copy of this log
        root = roots.make_root(folder)
        log = story.Log()
        made = roots.make_artifacts(root, folder / "made")
        story.whole_run(log, "abcd2345", artifacts=made)
        story.whole_run(log, "efgh6723", steps=60, artifacts=made)
        story.start(log, "manyj234")
        for start in range(0, MANY, 1000):
            story.segment(log, "manyj234", start, start + 1000)
        roots.record(root, log)
        root.append(
            [
                Draft(
                    types.METRICS_RECORDED,
                    "run/abcd2345",
                    types.write(
                        segment_metrics(
                            "abcd2345", "train", start, {"train/grad_norm": [0.5] * 30}, Meter().lap(30, 900)
                        )
                    ),
                )
                for start in range(0, 120, 30)
            ]
        )
        root.append(
            [
                Draft(EVALUATION_MEASURED, evaluation_stream("abcd2345"), types.write(held_out(step)))
                for step in (60, 120)
            ]
        )
        recorded_by_now = len(log.entries)
        story.replay(log, "abcd2345")
        story.replay(log, "efgh6723", {"ledger": "PASS", "artifacts": "PASS", "training": "PARTIAL"})
        roots.record(root, log, recorded_by_now)
        process = started(dict(os.environ), "--port", "0")
    try:
        yield Served(process, address_of(process), root, folder, log)
        status, complaint = ended(process, signal.SIGINT)
        assert status == 0
        progress = ("starting MLflow's server", "loading marin ui")  # of a busy machine
        assert [line for line in complaint.splitlines() if not line.startswith(progress)] == []
        assert left_behind(process.pid) == []
    finally:
        if process.poll() is None:
            os.killpg(process.pid, signal.SIGKILL)


@pytest.fixture
def served(server: Served, monkeypatch: pytest.MonkeyPatch) -> Served:
    """The same, with its root and key in the environment of this test alone: other tests come while it serves."""
    monkeypatch.setenv("MARIN_ROOT", str(server.root.location))
    monkeypatch.setenv("MARIN_KEY", str(server.folder / "key.pem"))
    monkeypatch.setenv("XDG_STATE_HOME", str(server.folder / "state"))
    return server


@pytest.fixture(scope="session")
def page(server: Served, chromium: Any) -> Iterator[Any]:
    page = chromium.new_page(viewport={"width": 1400, "height": 900})
    page.goto(server.printed)  # leaves its token in a cookie
    page.get_by_role("heading", name="Runs", exact=True).wait_for()
    assert page.url.startswith(f"{server.room}/#/experiments/1/runs")
    yield page
    page.close()


@pytest.fixture
def shots(tmp_path: Path) -> Path:
    folder = Path(os.environ.get("MARIN_SCREENSHOTS", tmp_path))
    folder.mkdir(parents=True, exist_ok=True)
    return folder
