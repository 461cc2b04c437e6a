"""The whole promise in one go: train with eight virtual devices in two Ray workers with two kills on the way; then a
fresh clone, which has only the published log, store and public key, verifies all of it with other workers and devices.

    make survival            the times are printed with -s
"""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from raytraining import MARIN, WORKER, bodies, longer, nothing_left, training

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = pytest.mark.survival

REPOSITORY = Path(__file__).resolve().parents[3]


def test_trained_under_fire_and_verified_by_a_stranger(project: Project, mirror: Any, tmp_path: Path) -> None:
    times: dict[str, float] = {}
    longer(project, steps=48, segment=3)
    began = time.monotonic()
    kills = 0
    with training(project) as run:
        for wanted, count in ((3, 1), (8, 0)):  # one worker, then both
            already = len(bodies(project, "step.preempted/v1"))
            assert run.until(lambda wanted=wanted: recorded(project) >= wanted)  # type: ignore[misc]
            kills += bool(run.kill(WORKER, count))
            assert run.until_recorded("step.preempted/v1", already + 1)
        status, told = run.ended()
    times["training, two kills"] = time.monotonic() - began
    assert (status, kills) == (0, 2), told
    assert nothing_left(project)
    for step in ("evaluate", "export"):
        done = project.marin("stage", step, "--json")
        assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["run_completed"]
    begun = bodies(project, "train.started/v1")
    begun = [body for body in begun if body["run"] == begun[-1]["run"]]
    assert {body["processes"] for body in begun} == {2}
    steps = [body["first_step"] for body in begun]
    assert steps == sorted(steps) and steps[0] == 0, steps
    assert len({*steps}) >= 3, "both kills cost a launch; on a busy machine Ray may lose another"

    for part in ("log", "store", "vkey"):
        source = project.root / part
        shutil.copytree(source, mirror.folder / part) if source.is_dir() else shutil.copy(source, mirror.folder / part)
    clone, stranger = tmp_path / "clone", tmp_path / "stranger"
    subprocess.run(["git", "clone", "--quiet", "--no-hardlinks", str(REPOSITORY), str(clone)], check=True)
    key = (project.root / "vkey").read_text(encoding="utf-8").strip()
    environment = {name: value for name, value in project.environment().items() if not name.startswith("MARIN")} | {
        "HOME": str(stranger),
        "XDG_CONFIG_HOME": str(stranger / "config"),
        "XDG_STATE_HOME": str(stranger / "state"),
        "XDG_CACHE_HOME": str(stranger / "cache"),
        "PYTHONPATH": str(clone),
    }
    began = time.monotonic()
    done = subprocess.run(
        [
            sys.executable,
            "-c",
            MARIN,
            "verify",
            "latest",
            "--root",
            mirror.url,
            "--vkey",
            key,
            "--workers",
            "2",
            "--devices",
            "1",
            "--no-record",
            "--json",
        ],
        cwd=clone,
        env=environment,
        capture_output=True,
        text=True,
        timeout=1800,
    )
    times["verify --workers 2 --devices 1"] = time.monotonic() - began
    assert done.stdout, done.stderr
    report = json.loads(done.stdout)
    assert report["verdicts"] == dict.fromkeys(
        ("ledger", "artifacts", "data", "training", "model", "evaluation"), "PASS"
    ), report["details"]
    assert done.returncode == 0
    assert report["training"]["segments_replayed"] == report["training"]["segments_total"] == 16
    sys.stdout.write(
        json.dumps(
            {
                "seconds": {name: round(value, 1) for name, value in times.items()},
                "deaths": [body["reason"][:120] for body in bodies(project, "step.preempted/v1")],
                "verdicts": report["verdicts"],
                "training": report["training"],
            },
            indent=1,
        )
        + "\n"
    )


def recorded(project: Project) -> int:
    """Segments of the newest run."""
    run = bodies(project, "run.started/v1")[-1]["run"]
    return sum(body["run"] == run for body in bodies(project, "train.segment/v1"))
