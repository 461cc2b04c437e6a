"""Recipes that name no order of their data, as every one did until 9f3ab419: the same bits as then, and they verify."""

from __future__ import annotations

import json
from typing import Any

import pytest

from marin.history.runs import load, run_ids
from marin.recipe.params import load_params
from marin.record.root import open_root

AGAIN = """
from pathlib import Path
from marin.process.arithmetic import apply
from marin.execution.executor import run_stage
from marin.recipe.params import load_params
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Execution
from marin.record.root import open_root
recipe, execution = load_params(Path("params.yaml")), Execution(devices=2)
apply(recipe.arithmetic, execution)
for step in PIPELINE.steps:
    run_stage(step.name, plan=PIPELINE, recipe=recipe, root=open_root(), project=Path.cwd(), execution=execution)
"""
OF_9F3AB419 = {
    "train": "sha256:cfc4f0ff08e9ad00d56f39bc746f50cbc2674fe383a3de6b5b1f0c523ff65e80",
    "export": "sha256:17a2d3c8f1769336f3b2e91e1b996d484a8ece9c55e6ef92bdafe8d34be00656",
}


@pytest.mark.long(seconds=20)
def test_an_order_without_a_name_is_replayed(project: Any) -> None:
    params = project.folder / "params.yaml"
    values = json.loads(params.read_text("utf-8"))
    assert values.pop("order") == "swap-or-not"
    named = load_params(params)
    params.write_text(json.dumps(values), encoding="utf-8")
    assert load_params(params).order is None and named.order == "swap-or-not"
    project.forked(AGAIN, "--devices", "2")
    history = open_root(str(project.root)).history()
    new, old = (load(history, run) for run in run_ids(history))
    assert "order" not in old.started.body.recipe and new.started.body.recipe["order"] == "swap-or-not"
    assert {name: old.output(name).digest for name in OF_9F3AB419} == OF_9F3AB419
    assert old.output("tokens") == new.output("tokens") and old.output("train") != new.output("train")
    passed = dict.fromkeys(("ledger", "artifacts", "data", "training", "model", "evaluation"), "PASS")
    status, report = project.verify()
    assert (status, report["verdicts"]) == (0, passed), report
    done = project.marin("show", old.run, "--data", "--step", "4", "--json")
    shown = json.loads(done.stdout)
    assert shown["digest"] == shown["recorded"]
