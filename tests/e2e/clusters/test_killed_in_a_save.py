"""A training of four processes dies while it saves: three of them have written their slices, the fourth never will. The
training goes on from the checkpoint before, in two processes, and is judged on one device.

The fourth is stopped (SIGSTOP) in the middle of its save, so that what was written is seen to be part of it, and then killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

sys.path.insert(0, str(Path(__file__).parent))

from raytraining import PATIENCE_SECONDS, WORKER, RayTraining, bodies, longer, nothing_left, processes, training

from marin.record.root import open_root

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = pytest.mark.survival

PROJECT = Path(__file__).resolve().parents[3]
STEPS, HOSTS = 8, 4
REAP_SECONDS = 120.0
WRITE_SECONDS = 60.0
"""Within which processes that may go on have written their slices."""
WHOLE: dict[str, Any] = yaml.safe_load((PROJECT / "conf" / "model" / "25m.yaml").read_text("utf-8"))
SIZES = {"small": {"hidden_dim": 256, "intermediate_dim": 768}, "25m": WHOLE | {"embedding_rows": 8192}}
"""Models whose save takes long enough to be seen; the corpus has a smaller vocabulary than `model=25m` is meant for."""


def being_written(project: Project) -> list[Path]:
    """Folders of processes that write slices now."""
    return [folder for folder in project.root.rglob(str(Path("worker-*", "work", "slices"))) if any(folder.glob("0*"))]


def last_changes(project: Project) -> dict[Path, int]:
    """When each process last made or removed the folder of its slices, in nanoseconds."""
    return {folder: folder.stat().st_mtime_ns for folder in project.root.rglob("worker-*/work")}


def is_written(project: Project, left: Path, before: dict[Path, int]) -> bool:
    """Whether all processes but that of ``left`` have written their slices: each made and removed its folder since ``before``."""
    others = {folder: when for folder, when in last_changes(project).items() if folder != left.parent}
    return len(others) == HOSTS - 1 and all(
        not (folder / "slices").exists() and when != before.get(folder) for folder, when in others.items()
    )


def stop(workers: Sequence[int], number: signal.Signals) -> None:
    for worker in workers:
        os.kill(worker, number)


def half_written(run: RayTraining) -> int:
    """Wait for a save that one process alone has not written yet, and leave that one stopped: its number."""
    deadline = time.monotonic() + PATIENCE_SECONDS
    while time.monotonic() < deadline:
        assert run.process.poll() is None, run.ended()[1]
        workers = sorted(processes(run.project, WORKER))
        if len(workers) < HOSTS:
            time.sleep(0.2)
            continue
        until = time.monotonic() + 5.0
        before = last_changes(run.project)
        while not being_written(run.project) and time.monotonic() < until:
            before = last_changes(run.project)
            time.sleep(0.001)
        stop(workers, signal.SIGSTOP)
        *others, last = workers
        stop(others, signal.SIGCONT)
        until = time.monotonic() + WRITE_SECONDS
        while (left := being_written(run.project)) and time.monotonic() < until:
            if len(left) == 1 and is_written(run.project, left[0], before):
                return last
            time.sleep(0.01)
        stop([last], signal.SIGCONT)
    raise AssertionError("no save was ever half written")


def unnamed(project: Project) -> tuple[int, set[str]]:
    """How many blobs no tree names, and which states' trees no event does."""
    store = open_root(str(project.root)).store()
    there = list(store.digests())
    trees = {digest: store.manifest(digest) for digest, kind in there if kind == "tree"}
    named = {entry.digest for entries in trees.values() for entry in entries}
    states = {digest for digest, entries in trees.items() if any(entry.path == "slices.json" for entry in entries)}
    saved = {body["artifact"] for body in bodies(project, "checkpoint.saved/v1")}
    return sum(kind == "blob" and digest not in named for digest, kind in there), states - saved


@pytest.mark.parametrize("size", SIZES)
def test_three_of_four_hosts_have_written(trained: Project, size: str, tmp_path: Path) -> None:
    project = longer(trained.copy(tmp_path), STEPS, 1)
    path = project.folder / "params.yaml"
    params = json.loads(path.read_text(encoding="utf-8"))
    params["model"] |= SIZES[size]
    path.write_text(json.dumps(params), encoding="utf-8")
    first_blobs, _ = unnamed(project)
    before = len(bodies(project, "train.segment/v1"))
    with training(project, processes=HOSTS) as run:
        assert run.until_recorded("train.segment/v1", before + 1)
        last = half_written(run)
        saved = len(bodies(project, "checkpoint.saved/v1"))
        blobs, trees = unnamed(project)
        assert blobs > first_blobs and not trees, "slices lie there, and nothing names them"
        os.kill(last, signal.SIGKILL)
        assert run.until_recorded("step.preempted/v1", 1)
        run.process.kill()  # before another launch saves
        run.process.wait()
    assert nothing_left(project, REAP_SECONDS), processes(project)
    at = bodies(project, "train.segment/v1")[-1]["end"]
    assert len(bodies(project, "checkpoint.saved/v1")) == saved and at < STEPS, "half a checkpoint does not count"
    assert unnamed(project)[1] == set()

    done = project.marin("stage", "train", "--runner", "ray", "--processes", "2", "--devices", "8")
    assert done.returncode == 0, done.stderr
    started = bodies(project, "train.started/v1")[-1]
    assert (started["processes"], started["devices"], started["first_step"]) == (2, 8, at)
    # On one device, straight from each recorded state: had a bit been lost in the save, it would not come out.
    status, report = project.verify("--only", "ledger,artifacts,data,training")
    asked = {name: verdict for name, verdict in report["verdicts"].items() if verdict != "NOT_RUN"}
    assert status == 0 and set(asked) >= {"ledger", "training"} and set(asked.values()) == {"PASS"}, report
