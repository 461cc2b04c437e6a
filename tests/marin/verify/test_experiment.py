"""What a run took from the store and a step of an experiment made: executed from the verifier's own file, or not at
all."""

from __future__ import annotations

from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from marin.graph.execution.loop import execute_graph
from marin.graph.files import load_graph
from marin.history import runs
from marin.recipe.schema import Execution
from marin.record.creation import create_root
from marin.record.root import Root
from marin.record.trust.evidence import NOBODY
from marin.verify.judges.data import judged_steps
from marin.verify.judges.experiment import judge_artifacts_taken
from marin.verify.verdict import Verdict
from marin.verify.verification import Options, Verification

EXPERIMENT = """
import json, os
from experiments.defaults import default_corpus, default_tokenize
from marin.graph import Resources, Step
from marin.recipe.schema import GrammarDataset

def keep_long(context):
    shortest = int(os.environ.get("SHORTEST", context.config["shortest"]))
    for name in ("train.jsonl", "validation.jsonl"):
        lines = (context.inputs["corpus"].path / name).read_text().splitlines()
        kept = [line for line in lines if len(json.loads(line)["text"]) >= shortest]
        (context.out / name).write_text("\\n".join(kept) + "\\n")

corpus = default_corpus("small", GrammarDataset(train_bytes=20_000, validation_bytes=2_000, minimal_pairs=3))
long = Step("corpus/long", keep_long, {"shortest": 1300}, {"corpus": corpus}, Resources(in_process=True))
steps = [default_tokenize("long", long, vocab_size=300).inputs["tokenizer"]]
"""


def executed(folder: Path) -> tuple[Root, Path]:
    """A root with the runs of the experiment, and its file."""
    root = create_root(str(folder / "root"), origin="marin.test/experiment")
    file = folder / "exp_own.py"
    file.write_text(EXPERIMENT)
    assert execute_graph(load_graph(file), root, file=file).failures == {}
    return root, file


def judged(root: Root, file: Path | None, workshop: Path) -> Verdict:
    (run,) = [view for view in runs.load_all(root.history()) if "tokenizer" in view.steps]
    case: Any = SimpleNamespace(root=root, history=root.history(), run=run, workshop=workshop, collections=[])
    verdict = judge_artifacts_taken(case, file)
    assert verdict is not None
    return verdict


@pytest.mark.long
def test_a_step_is_executed_from_the_verifiers_file_alone(
    tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, file = executed(tmp_path)

    unasked = judged(root, None, tmp_path)
    assert unasked.outcome == "UNAVAILABLE"
    assert "made by keep_long, a step of an experiment: not executed; `--experiment FILE`" in unasked.lines[0]

    same = judged(root, file, tmp_path)
    assert same.outcome == "PASS", same.lines
    assert "made again by keep_long of exp_own.py" in same.lines[0]

    monkeypatch.setenv("SHORTEST", "1100")  # the same identity, other bits: what was recorded is not what it makes
    assert judged(root, file, tmp_path).outcome == "FAIL"
    monkeypatch.delenv("SHORTEST")

    other = tmp_path / "exp_other.py"
    other.write_text(EXPERIMENT.replace(">= shortest", "> shortest"))
    proves_nothing = judged(root, other, tmp_path)
    assert proves_nothing.outcome == "UNAVAILABLE"
    assert "another step of that name" in proves_nothing.lines[0]

    other.write_text("from marin.graph import Step\ndef f(context): return 1\nsteps = [Step('f', f)]\n")
    assert "the file has no such step" in judged(root, other, tmp_path).lines[0]
    assert not list((tmp_path).glob("experiment-*")), "nothing is left behind"


@pytest.mark.long
def test_a_run_that_made_a_corpus_for_others_is_judged_by_what_it_made(
    tmp_path: Path, own_keys: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    root, file = executed(tmp_path)
    options = Options(execution=Execution(), remember=False, experiment=file, sources=NOBODY)
    found = {
        tuple(view.steps): Verification(root, view.run, options).report() for view in runs.load_all(root.history())
    }
    assert set(found) == {("corpus",), ("corpus", "tokenizer")}
    for made, report in found.items():
        outcomes = {name: report.verdict(name).outcome for name in ("artifacts", "data", "training", "model")}
        assert outcomes == {"artifacts": "PASS", "data": "PASS", "training": "NOT_RUN", "model": "NOT_RUN"}, report
        assert [line.partition(":")[0] for line in report.verdict("data").lines][: len(made)] == list(made)


def test_data_that_a_run_has_planned_or_used_and_not_made_are_missing_evidence() -> None:
    assert judged_steps({"corpus"}) == ("corpus",)
    assert judged_steps({"tokenizer"}) == ("corpus", "tokenizer")
    whole = ("corpus", "tokenizer", "tokens")
    assert judged_steps(set()) == judged_steps({"tokens"}) == judged_steps({"corpus", "train"}) == whole
