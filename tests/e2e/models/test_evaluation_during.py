"""Evaluation while a run trains: measured from recorded states, each once; the training's bits do not know of it; a number
that an operator invents is found and located."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

import pytest
from wandb_records import read_offline_run

from tests.e2e.conftest import PARAMS, Project

pytestmark = pytest.mark.long(together="evaluation during", seconds=55)

SETS = {
    "held": {"kind": "corpus", "documents": 4},
    "own": {"kind": "files", "globs": ["texts/*.txt"]},
    "dev": {"kind": "folder", "path": "texts"},
}
EVENTS = """
import json
from marin.record.root import open_root
for index, event in open_root().history().events(type="evaluation.measured/v1"):
    print(json.dumps([event.stream, event.body]))
"""
STATES = """
import json
from marin.history.runs import load, resolve
from marin.record.root import open_root
history = open_root().history()
run = load(history, resolve(history, "latest"))
print(json.dumps([[fact.body.step, fact.body.state] for fact in run.checkpoints]))
print(json.dumps([fact.body.fingerprints for fact in run.segments]))
print(run.steps["train"].identity, run.steps["evaluate"].identity)
"""
FOLLOWED = """
import os, sys
os.environ |= {"MARIN_TRACKER": "wandb"}
from marin.cli.main import main
main()
"""
CURVES = """
import json, sys
from pathlib import Path
from mlflow import MlflowClient
from marin.record.root import open_root
from marin.plugins.mlflow.projection.database import database_uri
from marin.plugins.mlflow.projection.follow import MlflowProjection
folder = Path(sys.argv[1])
projection = MlflowProjection(folder, open_root().reader(), own=True)
projection.catch_up()
projection.close()
client = MlflowClient(tracking_uri=database_uri(folder))
experiments = [one.experiment_id for one in client.search_experiments()]
(run,) = client.search_runs(experiments, "metrics.`evaluation/held.loss` > 0")
print(run.info.status, json.dumps(
    {key: [(one.step, one.value) for one in client.get_metric_history(run.info.run_id, key)]
     for key in run.data.metrics if key.startswith("evaluation/")}
))
"""
TEXTS_ONCE = """
from marin.history.runs import resolve
from marin.plugins.evaluation.samples.texts import sampled_texts
from marin.record.root import open_root
root, read = open_root(), {}
run = resolve(root.history(), "latest")
before = sampled_texts(root, run, read)
for digest in read:
    read[digest] = []
print(len(before) == 2 and sampled_texts(root, run, read) == [])
"""
FORGE = """
import sys
from ledger import Draft
from marin.history.runs import evaluation_stream, resolve
from marin.record.root import open_root
root = open_root()
run = resolve(root.history(), "latest")
(_, event), *_ = reversed(list(root.history().events(type="evaluation.measured/v1")))
body = dict(event.body)
change = sys.argv[1]
measured = {name: dict(one) for name, one in body["sets"].items()}
if change == "number":
    measured["own"]["numbers"] = {**measured["own"]["numbers"], "bits_per_byte": (1.0).hex()}
elif change == "bytes":
    measured["own"]["bytes"] += 1
elif change == "text":
    measured["own"] = measured["held"]
elif change == "state":
    body["step"] = 3
elif change == "scores":
    blob = bytearray(root.store().read(measured["own"]["scores"]))
    blob[9] ^= 1
    measured["own"]["scores"] = root.store().put_bytes(bytes(blob)).digest
root.append([Draft(event.type, evaluation_stream(run), {**body, "sets": measured})])
"""


def evaluating(project: Project, **sections: Any) -> None:
    """The project's parameters, with an evaluation during training."""
    samples = {"prompts": ["The dog"], "max_tokens": 6}
    asked = {**PARAMS["evaluation"], "every": 3, "sets": SETS, "samples": samples}  # type: ignore[dict-item]
    parameters = {**PARAMS, "evaluation": asked, **sections}
    (project.folder / "params.yaml").write_text(json.dumps(parameters), encoding="utf-8")


def measured(project: Project) -> list[dict[str, Any]]:
    return [json.loads(line)[1] for line in project.forked(EVENTS).stdout.splitlines()]


@pytest.fixture(scope="module")
def during(trained: Project, tmp_path_factory: pytest.TempPathFactory) -> Project:
    """The session's run once more, from an empty root: paused after its first segment, and measured on three sets."""
    project = trained.copy(tmp_path_factory.mktemp("during"))
    shutil.rmtree(project.root)
    texts = project.folder / "texts"
    (texts / "sub").mkdir(parents=True)
    (texts / "one.txt").write_text(
        "The dog runs.\n\nA café is here, <|endoftext|> and " + "so on " * 30, encoding="utf-8"
    )
    (texts / "sub" / "x.jsonl").write_text('{"text": "two cats"}\n', encoding="utf-8")
    evaluating(project)
    assert project.marin("init").returncode == 0
    staged(project, "corpus", "tokenizer", "tokens")
    project.forked(FOLLOWED, "-q", "stage", "train", "--pause-at", "3")
    (project.home / "curves").write_text(project.forked(CURVES, str(project.home / "mlflow")).stdout, encoding="utf-8")
    (texts / "one.txt").write_text((texts / "one.txt").read_text() + " edited", encoding="utf-8")
    staged(project, "train", "evaluate", "export")
    return project


def staged(project: Project, *names: str, more: tuple[str, ...] = ()) -> None:
    for name in names:
        done = project.marin("-q", "stage", name, *more)
        assert done.returncode == 0, done.stderr


def test_every_due_state_is_measured_once_and_training_has_the_same_bits(trained: Project, during: Project) -> None:
    assert during.forked(STATES).stdout == trained.forked(STATES).stdout
    found = measured(during)
    assert [body["step"] for body in found] == [3, 6]
    first, last = (body["sets"] for body in found)
    assert set(first) == set(last) == {"held", "own", "dev/one", "dev/sub"}
    assert {name: one["data"] for name, one in first.items()} == {name: one["data"] for name, one in last.items()}, (
        "a file that was edited meanwhile does not change what the curve is over"
    )
    assert float.fromhex(last["held"]["numbers"]["loss"]) < float.fromhex(first["held"]["numbers"]["loss"])
    again = during.marin("-q", "train", "--config-json", "params.yaml", "--json")
    assert again.returncode == 0 and len(measured(during)) == 2, again.stderr


def test_the_curves_are_drawn_while_it_trains(during: Project) -> None:
    """What W&B and MLflow had been told when the training stood at its first segment: no other process had ended it."""
    first, _ = measured(during)
    told = {
        f"evaluation/{name.replace('/', '.')}.{key}": float.fromhex(value)
        for name, one in first["sets"].items()
        for key, value in one["numbers"].items()
    }
    status, _, curves = (during.home / "curves").read_text().partition(" ")
    assert status == "RUNNING"
    drawn = json.loads(curves)
    ((step, tokens),) = drawn.pop("evaluation/samples.tokens")
    assert step == 3 and 1 <= tokens <= 6
    assert drawn == {key: [[3, value]] for key, value in told.items()}
    (folder,) = (during.home / "cache" / "views").glob("*/wandb/offline-run-*")
    points = [point for point in read_offline_run(folder).points if "evaluation/held.loss" in point]
    assert [{key: point[key] for key in told} | {"evaluated_step": 3} for point in points] == [
        told | {"evaluated_step": 3}
    ]


def test_it_verifies(during: Project) -> None:
    status, report = during.verify("--only", "ledger,evaluation", "--no-record")
    assert (status, report["verdicts"]["evaluation"]) == (0, "PASS"), report
    assert report["evaluation"]["requests_answered"] == report["evaluation"]["requests_total"] > 8
    status, report = during.verify("--only", "evaluation", "--sample", "2", "--no-record")
    assert (status, report["verdicts"]["evaluation"], report["evaluation"]["requests_answered"]) == (4, "PARTIAL", 6), (
        report
    )


def test_what_a_state_said_is_shown_where_runs_are_looked_at(during: Project) -> None:
    shown = json.loads(during.marin("show", "latest", "--json").stdout)["samples"]
    assert [(one["step"], one["prompt"]) for one in shown] == [(3, "The dog"), (6, "The dog")]
    watched = during.marin("watch", "latest")
    assert watched.returncode == 0 and watched.stdout.count("The dog|") == 2
    assert f"The dog|{shown[0]['text']}" in watched.stdout or not shown[0]["text"].isprintable()
    assert during.forked(TEXTS_ONCE).stdout == "True\n"
    again = during.marin(
        "generate", "latest", "--step", "3", "--prompt", "The dog", "--max-tokens", "6", "--temperature", "0.8"
    )
    assert again.stdout.removesuffix("\n") == shown[0]["text"] or not shown[0]["text"].isprintable()


@pytest.mark.table
@pytest.mark.parametrize(
    ("change", "said"),
    [
        ("number", "before train step 6, set own: bits_per_byte"),
        ("bytes", "before train step 6, set own: documents, bytes and tokens"),
        ("text", "set own: its text before train step 3 was"),
        ("state", "expected one that is recorded before train step 3"),
        ("scores", "before train step 6, set own: document 0, token 2"),
    ],
)
def test_every_forgery_is_located(during: Project, tmp_path: Path, change: str, said: str) -> None:
    forged = during.copy(tmp_path)
    forged.forked(FORGE, change)
    status, report = forged.verify("--only", "evaluation", "--no-record")
    assert (status, report["verdicts"]["evaluation"]) == (1, "FAIL"), report
    assert said in report["evaluation"]["first_difference"], report["evaluation"]


def test_mistakes_are_said_before_anything_is_trained(trained: Project, tmp_path: Path) -> None:
    project = trained.copy(tmp_path)
    for asked, said in (
        ({"every": 4}, "a multiple of trainer.steps_per_segment (3)"),
        ({"sets": SETS}, "evaluation.every"),
        ({"every": 3, "sets": {"own": {"kind": "files", "globs": ["nothing/*.txt"]}}}, "no file matches"),
        ({"every": 3, "sets": {"own": {"kind": "folder", "path": "nothing"}}}, "no such folder"),
    ):
        evaluating(project, seed=9, evaluation={**PARAMS["evaluation"], **asked})  # type: ignore[dict-item]
        done = project.marin("-q", "train", "--config-json", "params.yaml")
        assert done.returncode != 0 and said in done.stderr and "Traceback" not in done.stderr, done.stderr


EXPERIMENT = """
from msgspec.structs import replace

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train
from marin.recipe.evaluation import FolderSet
from marin.recipe.params import load_params
from pathlib import Path

asked = load_params(Path("params.yaml"))
tokens = default_tokenize("small", default_corpus("small", asked.dataset), vocab_size=400)
during = replace(asked.evaluation, every=3, sets={"dev": FolderSet(path="texts")}, minimal_pairs=0)
steps = [
    default_eval(
        default_train(f"seed{seed}", tokens, model=asked.model, seed=seed, trainer=asked.trainer, arithmetic=asked.arithmetic,
                      evaluation=during),
        asked.evaluation,
    )
    for seed in (3, 4)
]
"""


def test_a_graph_measures_what_its_training_asks_for_and_what_an_equal_one_did_not(
    trained: Project, tmp_path: Path
) -> None:
    project = trained.copy(tmp_path)
    (project.folder / "texts").mkdir()
    (project.folder / "texts" / "one.txt").write_text("The dog runs.", encoding="utf-8")
    (project.folder / "exp.py").write_text(EXPERIMENT)
    actions: dict[str, str] = {}
    for _ in range(2):
        done = project.marin("-q", "run", "exp.py", "--json")
        assert done.returncode == 0, done.stderr
        assert [body["step"] for body in measured(project)] == [3, 6, 3, 6], done.stdout
        actions = {one["address"]: one["action"] for one in json.loads(done.stdout)["steps"]}
    assert set(actions.values()) == {"cached"}, actions
