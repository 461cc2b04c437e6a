"""The honest runs that forgeries are made from, executed once: a whole one, another that takes most of its results over,
and a phase that goes on from its last state. They are those of the fault bench, so they are tiny. Where lm-evaluation-harness
is installed (`make evaluation`), an evaluation of the second run is recorded.
"""

from __future__ import annotations

import json
import os
import tempfile
from collections.abc import Mapping
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import msgspec

from ledger import Draft
from marin.execution import phases
from marin.execution.executor import run_stage
from marin.history.runs import evaluation_stream, load, run_ids
from marin.kinds.families.measured import EVALUATION_RECORDED
from marin.pipeline.stages import PIPELINE
from marin.plugins.evaluation.harness.tasks import checked
from marin.plugins.evaluation.recorded.task import EvaluationTask
from marin.recipe.schema import Execution, Recipe
from marin.record.events import write
from marin.record.root import Root, open_root
from tests.adversary.faults.params import EXECUTION, recipe
from tests.adversary.faults.world import World
from tests.adversary.forgeries.workshop import Base


def make(folder: Path) -> Base:
    """Execute them in ``folder``, or take those that lie there already. The caller has applied the arithmetic
    contract."""
    os.environ["MARIN_KEY"] = str(folder / "operator.key")
    location = folder / "honest" / ".marin"
    if not (location / "vkey").exists():
        World.make(folder)
    root = open_root(str(location))
    names = run_ids(root.history())
    if len(names) == 1:
        other = recipe().evaluation
        evaluated = msgspec.structs.replace(recipe(), evaluation=msgspec.structs.replace(other, max_sequences=4))
        _executed(root, evaluated, EXECUTION)
        shorter = msgspec.structs.replace(recipe().trainer, num_steps=4)
        later = _phase(root, names[0], msgspec.structs.replace(recipe(), trainer=shorter))
        _executed(root, later, msgspec.structs.replace(EXECUTION, continues=names[0]))
        names = run_ids(root.history())
    if find_spec("lm_eval") is not None:
        _evaluate(root, names[1])
    return Base(folder, location, folder / "operator.key", *names[:3])


def make_one(folder: Path) -> Base:
    """The first of them alone."""
    os.environ["MARIN_KEY"] = str(folder / "operator.key")
    location = folder / "honest" / ".marin"
    if not (location / "vkey").exists():
        World.make(folder)
    run = run_ids(open_root(str(location)).history())[0]
    return Base(folder, location, folder / "operator.key", run)


PAIRS = [{"good": f"the dog {word}s", "bad": f"the dog {word}"} for word in ("runs", "sits", "waits", "sees")]
QUESTIONS = [{"q": word, "a": end} for word, end in (("one", "two"), ("a", "b"), ("so", "it"), ("he", "is"))]
METRIC = {"aggregation": "mean", "higher_is_better": True}
TASKS: Mapping[str, tuple[Mapping[str, Any], list[dict[str, str]]]] = {
    "pairs": (
        {
            "output_type": "multiple_choice",
            "doc_to_text": "",
            "doc_to_target": 0,
            "doc_to_choice": "{{[good, bad]}}",
            "metric_list": [{"metric": "acc", **METRIC}],
        },
        PAIRS,
    ),
    "said": (
        {
            "output_type": "generate_until",
            "fewshot_split": "test",
            "num_fewshot": 1,
            "doc_to_text": "{{q}}",
            "doc_to_target": "{{a}}",
            "generation_kwargs": {"until": ["z"], "max_gen_toks": 3},
            "metric_list": [{"metric": "exact_match", **METRIC}],
        },
        QUESTIONS,
    ),
}


def _evaluate(root: Root, run: str) -> None:
    """Record an evaluation of the last state of ``run``, as `marin eval` does, unless there is one."""
    history = root.history()
    if list(history.events(stream=evaluation_stream(run))):
        return
    from marin.evaluation.scoring import Scorer
    from marin.evaluation.subject import open_subject
    from marin.plugins.evaluation.harness.recording import evaluated
    from marin.plugins.evaluation.recorded.evaluated import numbers
    from marin.plugins.evaluation.recorded.records import Settings, write_tree

    tasks = []
    for name, (config, rows) in TASKS.items():
        data = "".join(json.dumps(row) + "\n" for row in rows).encode()
        tasks.append(checked(EvaluationTask(name, {"test_split": "test", **config}, {"test": data}), name))
    subject = open_subject(load(history, run), root.store())
    found = evaluated(subject, Scorer(subject.model, subject.recipe), tasks, Settings())
    with tempfile.TemporaryDirectory(dir=root.local) as base:
        write_tree(Path(base), tasks, found.samples, numbers(found.results))
        body = found.body(subject, root.store().put_tree(Path(base)).digest)
    root.append([Draft(EVALUATION_RECORDED, evaluation_stream(run), write(body))])


def _phase(root: Root, run: str, changed: Recipe) -> Recipe:
    """The recipe of a phase that continues ``run`` from a state before its end, so that not all of it counts."""
    view = load(root.history(), run)
    saved = view.checkpoints[1].body
    recipe_of = phases.successor(view.recipe, changed, at=saved.step)
    assert recipe_of.phase is not None
    begins = msgspec.structs.replace(recipe_of.phase, state=saved.state, tokenizer=view.output("tokenizer").digest)
    return msgspec.structs.replace(recipe_of, phase=begins)


def _executed(root: Root, chosen: Recipe, execution: Execution) -> None:
    project = Path(root.location).parent
    for step in PIPELINE.steps:
        run_stage(step.name, plan=PIPELINE, recipe=chosen, root=root, project=project, execution=execution)
