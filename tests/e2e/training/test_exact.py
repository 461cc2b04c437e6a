"""A run under profile exact: trained on eight devices, verified on one, by two workers; and one that learns from rewards, killed
with all that draws for it, on its way to the same bits in another shape."""

from __future__ import annotations

import json
import signal
from typing import TYPE_CHECKING, Any

import pytest

from tests.e2e.training.test_stops import stopped

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = [pytest.mark.e2e, pytest.mark.determinism]
REWARDED = (
    *("profile=exact", "arithmetic.microbatch_size=4", "trainer.batch_size=8", "trainer.num_steps=8"),
    *("trainer.steps_per_segment=4", "objective.max_completion_length=4", "objective.updates_behind=1"),
    "+objective=grpo",
)
PROFILE = ("profile=exact", "arithmetic.microbatch_size=8", "trainer.batch_size=8")


@pytest.fixture
def exact(project: Project) -> Project:
    """The same project with a second run, of this profile."""
    done = project.marin("-q", "train", "--config-json", "params.yaml", "--json", *PROFILE, "--devices", "8")
    assert done.returncode == 0, done.stderr
    assert json.loads(done.stdout)["failed"] is None
    return project


def test_trained_on_eight_devices_verified_on_one_and_by_two_workers(exact: Project) -> None:
    shown = json.loads(exact.marin("show", "latest", "--json").stdout)
    assert shown["recipe"]["arithmetic"]["profile"] == "exact"
    status, report = exact.verify("--no-record", apart=True)
    judged = {name: outcome for name, outcome in report["verdicts"].items() if name != "evaluation"}
    assert (status, set(judged.values())) == (0, {"PASS"}), report
    status, report = exact.verify("--only", "training", "--workers", "2", "--no-record", apart=True)
    assert (status, report["verdicts"]["training"]) == (0, "PASS"), report


def rewarded(project: Project, *arguments: str) -> str:
    done = project.marin("-q", "train", "--config-json", "params.yaml", "--json", *REWARDED, *arguments)
    assert done.returncode == 0, done.stderr
    said: dict[str, Any] = json.loads(done.stdout)
    assert said["failed"] is None
    listed = json.loads(project.marin("ls", "--json").stdout)
    return str(listed[-1]["outputs"]["train"])


def test_killed_with_its_samplers_it_goes_on_to_the_same_bits_on_other_devices(
    project: Project, tmp_path_factory: pytest.TempPathFactory
) -> None:
    straight = rewarded(project.copy(tmp_path_factory.mktemp("straight")))
    given = ("train", "--config-json", "params.yaml", *REWARDED, "--samplers", "2")
    status, messages = stopped(project, signal.SIGKILL, *given, command=())
    assert status == -signal.SIGKILL, messages
    assert rewarded(project, "--devices", "2", "--samplers", "1") == straight
    status, report = project.verify("--only", "training", "--workers", "2", "--no-record", apart=True)
    assert (status, report["verdicts"]["training"]) == (0, "PASS"), report
