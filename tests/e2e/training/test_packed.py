"""A training that keeps its checkpoints packed (`--pack-checkpoints`) is verified as any other."""

from __future__ import annotations

import json
from typing import Any

import pytest

from ledger import PosixStorage, Store

PACKED = """
import json
from pathlib import Path
from marin.process.arithmetic import apply
from marin.execution.executor import run_stage
from marin.recipe.params import load_params
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Execution
from marin.record.root import open_root
recipe, execution = load_params(Path("params.yaml")), Execution(devices=1, pack_checkpoints=True)
apply(recipe.arithmetic, execution)
for step in PIPELINE.steps:
    run_stage(step.name, plan=PIPELINE, recipe=recipe, root=open_root(), project=Path.cwd(), execution=execution)
"""


@pytest.mark.long(seconds=15)
def test_a_run_with_packed_checkpoints_passes(project: Any) -> None:
    params = project.folder / "params.yaml"
    changed = json.loads(params.read_text("utf-8")) | {"optimizer": {"learning_rate": 0.002}}
    params.write_text(json.dumps(changed), encoding="utf-8")
    project.forked(PACKED)
    store = Store(PosixStorage(project.root))
    assert list(store.storage.list("store/packed/")), "tensors are kept as byte planes"
    assert list(store.verify_all()) == []
    status, report = project.verify()
    passed = dict.fromkeys(("ledger", "artifacts", "data", "training", "model", "evaluation"), "PASS")
    assert (status, report["verdicts"], report["training"]["segments_replayed"]) == (0, passed, 2), report
