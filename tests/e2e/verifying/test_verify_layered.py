"""A run that was trained layer by layer on two slices of two devices is judged on one device; and what a verifier says
whose compiler makes another program of it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

COMPUTING = {"first", "layer", "last", "layer_back", "first_back", "square", "update"}
OTHER_COMPILER = """
import sys
from marin.process.arithmetic import apply
from marin.recipe.schema import Arithmetic, Execution
apply(Arithmetic(), Execution(devices=1))
from marin.plugins.scale.layered import LayeredStep
made = LayeredStep.optimised.func
LayeredStep.optimised = property(lambda step: made(step) | {"layer": "sha256:" + "0" * 64})
from marin.training.loop import Training
start = Training.start
Training.start = lambda *given: sys.stderr.write("a state is made\\n") and start(*given)
from marin.cli.main import main
sys.argv[0] = "marin"
main()
"""


@pytest.mark.determinism
def test_trained_by_layer_on_two_slices_of_two_verified_on_one_device(project: Project) -> None:
    params = json.loads((project.folder / "params.yaml").read_text())
    params["arithmetic"] |= {"gather": "layer"}
    (project.folder / "params.yaml").write_text(json.dumps(params))
    for stage, shape in (("train", ("--devices", "4", "--slices", "2")), ("evaluate", ()), ("export", ())):
        done = project.marin("stage", stage, "--json", *shape)
        assert done.returncode == 0, done.stderr
    status, report = project.verify()
    assert (status, set(report["verdicts"].values())) == (0, {"PASS"}), report
    assert not [line for line in report["details"]["training"] if "program" in line]

    events = [json.loads(line) for line in project.marin("log", "--json").stdout.splitlines()]
    (started,) = [
        event["body"] for event in events if event["type"] == "train.started/v1" and event["body"]["devices"] == 4
    ]
    assert set(started["program"]["optimised"]) == COMPUTING
    assert (started["program"]["device_kind"], started["program"]["compiler"]) == ("cpu", "cpu")

    done = project.forked(
        OTHER_COMPILER, "verify", "latest", "--json", "--no-record", "--fresh", "--only", "training", check=False
    )
    judged = json.loads(done.stdout)
    said = done.stderr.index("another program: optimised.layer: recorded sha256:")
    assert said < done.stderr.index("a state is made"), "before anything is executed"
    assert (done.returncode, judged["verdicts"]["training"]) == (0, "PASS"), "the bits are those of the record"
    assert any("different program: optimised.layer" in line for line in judged["details"]["training"])
