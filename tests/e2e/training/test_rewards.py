"""A training that learns from rewards, killed with all that draws for it: another shape goes on to the same bits."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.training.test_stops import stopped

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = [pytest.mark.e2e, pytest.mark.determinism]
RECIPE = (
    *("profile=exact", "arithmetic.microbatch_size=4", "trainer.batch_size=8", "trainer.num_steps=8"),
    *("trainer.steps_per_segment=4", "objective.max_completion_length=4", "objective.updates_behind=1"),
    "+objective=grpo",
)


def trained(project: Project, *arguments: str) -> str:
    done = project.marin("-q", "train", "--config-json", "params.yaml", "--json", *RECIPE, *arguments)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["failed"] is None
    shown = json.loads(project.marin("show", "latest", "--json").stdout)
    return str(shown["steps"]["train"]["digest"])


def test_killed_with_its_samplers_it_goes_on_to_the_same_bits_on_other_devices(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    straight = trained(project.copy(tmp_path_factory.mktemp("straight")))
    given = ("train", "--config-json", "params.yaml", *RECIPE, "--samplers", "2")
    status, messages = stopped(project, signal.SIGKILL, *given, command=())
    assert status == -signal.SIGKILL, messages
    assert trained(project, "--devices", "2", "--samplers", "1") == straight
    status, report = project.verify("--only", "training", "--workers", "2", "--no-record", apart=True)
    assert (status, report["verdicts"]["training"]) == (0, "PASS"), report
