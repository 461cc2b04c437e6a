"""Phases for real: a run that is left before its end, continued with other settings on other machine shapes, and
verified as a chain.

The oracle is the straight run of the session: a phase that changes nothing and keeps the schedule has to end with its
bits.
"""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest
import yaml

if TYPE_CHECKING:
    from tests.e2e.conftest import Project

CONTINUE = """
import json, sys
from pathlib import Path
import msgspec
from marin.execution import phases
from marin.history import runs
from marin.process.arithmetic import apply
from marin.errors import Paused
from marin.execution.executor import run_stage
from marin.recipe.params import load_params
from marin.pipeline.stages import PIPELINE
from marin.recipe.schema import Execution, Phase, from_mapping
from marin.record.root import open_root
root, (devices, pause, changes) = open_root(), json.loads(sys.argv[1])
history = root.history()
run = runs.resolve(history, sys.argv[2]) if sys.argv[2] else None
recipe = load_params(Path("params.yaml"))
if run is not None:
    mapping = msgspec.to_builtins(runs.load(history, run).recipe)
    mapping.pop("phase")
    for key, value in changes.items():
        section, _, name = key.partition(".")
        mapping[section] = (mapping.get(section) or {}) | {name: value} if name else value
    recipe = phases.next_phase(root, run, from_mapping(mapping, where="test"))
execution = Execution(devices=devices, pause_at=pause, continues=run)
apply(recipe.arithmetic, execution)
try:
    for step in PIPELINE.steps:
        outcome = run_stage(step.name, plan=PIPELINE, recipe=recipe, root=root, project=Path.cwd(), execution=execution)
    print(json.dumps({"run": outcome.run, "status": "completed"}))
except Paused as pause:
    print(json.dumps({"run": runs.run_ids(root.history())[-1], "status": "paused", "where": pause.where}))
"""


def go(project: Project, run: str, *, devices: int = 1, pause: int | None = None, **changes: Any) -> dict[str, Any]:
    done = project.python(CONTINUE, json.dumps([devices, pause, changes]), run)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def shown(project: Project, run: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads(project.marin("show", run, "--json").stdout)
    return found


def edit(project: Project, **changes: Any) -> None:
    path = project.folder / "params.yaml"
    params = yaml.safe_load(path.read_text())
    for section, values in changes.items():
        params[section] = (
            values if values is None or not isinstance(values, dict) else (params.get(section) or {}) | values
        )
    path.write_text(yaml.safe_dump(params))


@pytest.mark.determinism
def test_a_chain_of_phases(project: Project, tmp_path: Path) -> None:
    straight = shown(project, "latest")["steps"]["train"]["output"]["digest"]
    # The same run is begun again, paused before its end, and left there. Segments are cut elsewhere, so it is no hit.
    edit(project, trainer={"steps_per_segment": 2})
    first = go(project, "", devices=2, pause=3)
    assert first["status"] == "paused" and "before train step 3" in first["where"]
    assert shown(project, first["run"])["status"] == "open"
    # A phase that changes nothing goes on to the straight run's last state.
    same = go(project, first["run"], devices=4, **{"trainer.num_steps": 3, "phase.schedule": "continue"})
    view = shown(project, same["run"])
    assert view["steps"]["train"]["output"]["digest"] == straight
    assert view["segments"][0]["start"] == 3
    # Another one changes much, is paused and moved.
    changes = {
        "trainer.num_steps": 4,
        "trainer.batch_size": 16,
        "optimizer.learning_rate": 0.001,
        "model.seq_len": 16,
        "arithmetic.compute_dtype": "bfloat16",
    }
    paused = go(project, same["run"], devices=8, pause=8, **changes)
    moved = go(project, same["run"], devices=2, **changes)
    assert paused["run"] == moved["run"] and moved["status"] == "completed"
    view = shown(project, moved["run"])
    assert [(s["start"], s["end"]) for s in view["segments"]] == [(6, 8), (8, 10)]
    assert view["steps"]["train"]["attempts"] == 2
    # Verification walks the chain, and one device is enough for what two, four and eight did.
    status, report = project.verify()
    assert (status, set(report["verdicts"].values())) == (0, {"PASS"}), report
    assert report["training"]["segments_total"] == report["training"]["segments_replayed"] == 6
    # A state in the middle of the chain that is damaged is noticed from its end.
    (checkpoint,) = [c for c in shown(project, first["run"])["checkpoints"] if c["step"] == 3]
    store = project.root / "store"
    files = json.loads(project.marin("show", checkpoint["artifact"], "--json").stdout)["files"]
    digest = max(files, key=lambda file: int(file["size"]))["digest"].partition(":")[2]
    (path,) = [path for path in store.rglob(f"*{digest[8:]}*") if path.is_file()]
    path.chmod(0o644)
    data = path.read_bytes()
    path.write_bytes(data[:-1] + bytes([data[-1] ^ 1]))
    status, report = project.verify("--only", "artifacts")
    assert (status, report["verdicts"]["artifacts"]) == (1, "FAIL"), report


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"model.hidden_dim": 64}, "a phase keeps this: model.hidden_dim"),
        ({"optimizer.name": "lion"}, "a phase keeps this: optimizer.name"),
        ({"tokenizer.vocab_size": 500}, "a phase keeps this: tokenizer"),
    ],
)
def test_what_a_phase_cannot_change(project: Project, changes: dict[str, Any], message: str) -> None:
    done = project.forked(CONTINUE, json.dumps([1, None, changes]), "latest", check=False)
    assert done.returncode != 0
    assert message in done.stderr
