"""A run under profile exact: trained on eight devices, verified on one, and by two workers."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

pytestmark = [pytest.mark.e2e, pytest.mark.determinism]
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
