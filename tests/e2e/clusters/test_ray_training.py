"""Training as a Ray Train job of two processes with four virtual devices each, one of which is killed on the way.

The oracle is the same training in one process, never disturbed, with other checkpoints. tests/e2e/clusters/test_surviving.py
kills everything.
"""

from __future__ import annotations

import sys
import warnings
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

sys.path.insert(0, str(Path(__file__).parent))

from raytraining import WORKER, bodies, listening, longer, nothing_left, processes, trained_digest, training

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = pytest.mark.long(together="training on Ray", seconds=145)


def test_a_worker_is_killed_and_the_bits_are_those_of_one_process(trained: Project, project: Project) -> None:
    longer(project, steps=6, segment=1)
    already = len(bodies(project, "train.segment/v1"))
    with training(project) as run:
        assert run.until_recorded("train.segment/v1", already + 1)
        # Workers apart: the collectives of JAX on processors listen where the machine's own name leads to.
        addresses = listening(set(processes(project)) - set(processes(project, WORKER)))
        assert addresses and all(address.endswith("0100007F") for address in addresses), addresses
        assert run.kill(WORKER), "there is a worker to kill"
        status, told = run.ended()
    assert status == 0, told
    assert trained_digest(project) == trained_digest(trained)
    assert nothing_left(project)
    deaths = bodies(project, "step.preempted/v1")
    assert [death["launch"] for death in deaths] == list(range(1, len(deaths) + 1)) and deaths, told
    assert {(death["again"], death["processes"], death["devices"]) for death in deaths} == {(True, 2, 8)}
    assert all("worker" in death["reason"].lower() for death in deaths), deaths
    if len(deaths) > 1:  # survived too, as promised; but nobody killed those
        warnings.warn(f"deaths beside the one we caused: {[death['reason'] for death in deaths]}", stacklevel=1)
    alone, *launches = bodies(project, "train.started/v1")
    begun = [launch["first_step"] for launch in launches]  # a launch may die before it begins to train
    assert (begun[0], begun[-1]) == (0, deaths[-1]["at"]) and set(begun[1:]) <= {death["at"] for death in deaths}, begun
    assert {(launch["processes"], launch["devices"], launch["attempt"]) for launch in launches} == {(2, 8, 1)}
    assert all(launch["program"] == alone["program"] for launch in launches)
    started = [body for body in bodies(project, "step.started/v1") if body["step"] == "train"]
    assert started[-1]["attempt"] == 1, "a death of workers is no failure of the attempt"
    assert not list(project.root.rglob("spool/*")), "everything that was spooled is in the log"
