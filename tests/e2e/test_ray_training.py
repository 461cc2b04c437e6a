"""Training as a Ray Train job of two processes with four virtual devices each, one of which is killed on the way.

The oracle is the same training in one process on one device, never disturbed. tests/e2e/test_surviving.py kills everything.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING

sys.path.insert(0, str(Path(__file__).parent))

from raytraining import (
    WORKER,
    bodies,
    listening,
    longer,
    nothing_left,
    processes,
    trained_digest,
    training,
    twin,
)

if TYPE_CHECKING:
    from tests.e2e.conftest import Project


def test_a_worker_is_killed_and_the_bits_are_those_of_one_process(project: Project, tmp_path: Path) -> None:
    longer(project, steps=30, segment=3)
    alone = twin(project, tmp_path / "alone")
    with training(project) as run:
        assert run.until_recorded("train.segment/v1", len(bodies(alone, "train.segment/v1")) + 1)
        # Workers apart: the collectives of JAX on processors listen where the machine's own name leads to.
        addresses = listening(set(processes(project)) - set(processes(project, WORKER)))
        assert addresses and all(address.endswith("0100007F") for address in addresses), addresses
        assert run.kill(WORKER), "there is a worker to kill"
        done = alone.marin("stage", "train")
        assert done.returncode == 0, done.stderr
        status, told = run.ended()
    assert status == 0, told
    assert trained_digest(project) == trained_digest(alone)
    assert nothing_left(project)
    (death,) = bodies(project, "step.preempted/v1")
    assert (death["again"], death["launch"], death["processes"], death["devices"]) == (True, 1, 2, 8)
    assert "worker" in death["reason"]
    first, second = bodies(project, "train.started/v1")[-2:]
    assert (first["first_step"], first["processes"], first["devices"], first["attempt"]) == (0, 2, 8, 1)
    assert (second["first_step"], second["processes"], second["devices"]) == (death["at"], 2, 8)
    assert first["program"] == second["program"] == bodies(alone, "train.started/v1")[-1]["program"]
    started = [body for body in bodies(project, "step.started/v1") if body["step"] == "train"]
    assert started[-1]["attempt"] == 1, "a death of workers is no failure of the attempt"
    assert not list(project.root.rglob("spool/*")), "everything that was spooled is in the log"
