"""What do public benchmarks say of two checkpoints of one run, and of the same model as a Hugging Face folder?

Question. A small Llama learns text from a grammar. Does a benchmark's number move between its first checkpoint and its last
state, and has the exported folder, read back, the last state's numbers to the bit?

Hypothesis. Loss on held-out text of the grammar is lower after 120 train steps than after 40. BLiMP, HellaSwag, GSM8K and
TruthfulQA stay near chance: the model has seen no English but the grammar's. The folder's numbers are those of the state.

Definition of done. Both trainings are reported; `python -m experiments.exp005_evaluation SOURCES` then evaluates the state
before train step 40, the last one, and the folder by `marin eval` on files that experiments/benchmarks.py names, and prints
one table; `marin verify RUN --only evaluation` computes every recorded number again. On two cores it takes minutes.

    marin run experiments/exp005_evaluation.py
    python -m experiments.exp005_evaluation SOURCES --limit 20 [--folder ANOTHER-HF-FOLDER]
"""

from __future__ import annotations

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path
from typing import Any

from experiments.benchmarks import prepare
from experiments.defaults import default_corpus, default_eval, default_export, default_tokenize, default_train
from marin.errors import DataError, DataMissing, MissingEvidence, StepFailed
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import Evaluation, GrammarDataset, Model, Optimizer, Trainer
from marin.reporting.experiment import Plot, Report

MODEL = Model(hidden_dim=64, intermediate_dim=176, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=256)
STEPS = (40, 120)
"""Train steps of the shorter training; of the longer one, whose state before train step 40 is recorded as well."""


def report(context: Context) -> Result:
    """Held-out loss of both trainings, and which run is to be evaluated."""
    rows = [
        (name, steps, context.inputs[name].metrics["loss"], context.inputs[name].run)
        for name, steps in context.config["steps"].items()
    ]
    (_, _, shorter, _), (_, _, longer, run) = rows
    Report(
        title="Two states of one training",
        question="Is held-out loss lower after more train steps?",
        findings=[f"loss {shorter:.4f}, then {longer:.4f}", f"evaluate run {run} with `marin eval`"],
        columns=("training", "train steps", "loss", "run"),
        rows=rows,
        plot=Plot("Held-out loss", "train steps", "loss (nats a token)", {"loss": [(float(r[1]), r[2]) for r in rows]}),
    ).write(context.out)
    return Result(kind="report", value={"lower": longer < shorter})


corpus = default_corpus("grammar-300kB", GrammarDataset(train_bytes=300_000, validation_bytes=20_000, minimal_pairs=40))
tokens = default_tokenize("grammar-300kB-bpe1024", corpus, vocab_size=1024)
shorter, longer = (
    default_train(
        f"steps{count}",
        tokens,
        model=MODEL,
        seed=5,
        trainer=Trainer(num_steps=count, batch_size=8, steps_per_segment=STEPS[0]),
        optimizer=Optimizer(learning_rate=6e-3, warmup_steps=8),
    )
    for count in STEPS
)
measure = Evaluation(batch_size=8, max_sequences=32, minimal_pairs=40)
experiment = Registration(
    name="exp005_evaluation",
    question="Is held-out loss lower after 120 train steps than after 40?",
    hypothesis="Yes; and benchmarks on English stay near chance.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={"longer": longer.config, "shorter": shorter.config},
    baseline="shorter",
    seeds=(5,),
    cost_cap=CostCap(seconds=3600.0),
)
steps = [
    Step(
        "report/evaluation",
        report,
        {"steps": {"shorter": STEPS[0], "longer": STEPS[1]}},
        {
            "shorter": default_eval(shorter, measure),
            "longer": default_eval(longer, measure),
            "model": default_export(longer),
        },
    )
]


def evaluate(sources: Path, out: Path, *, run: str, folder: Path | None, limit: int, pinned: bool = True) -> list[Any]:
    """What `marin eval` says of each subject, as it prints it; files of results lie below ``out``."""
    tasks = ",".join(prepare(sources, out / "tasks", pinned=pinned))
    if folder is None:
        folder = out / "model"
        _marin("export", run, "--hf", str(folder))
    subjects = {"first": (run, "--step", str(STEPS[0])), "last": (run,), "folder": (str(folder),)}
    asked = ("--tasks", tasks, "--task-path", str(out / "tasks"), "--limit", str(limit), "--json")
    return [
        json.loads(_marin("eval", *subject, *asked, "--output_path", str(out / name)))
        for name, subject in subjects.items()
    ]


def _marin(*arguments: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", "from marin.cli.main import main; main()", *arguments], stdout=subprocess.PIPE, text=True
    )
    if done.returncode:
        raise StepFailed(
            "a command failed", where=f"marin {' '.join(arguments)}", found=f"exit status {done.returncode}"
        )
    return done.stdout


def table(answers: list[Any]) -> str:
    """A line for each number, a column for each subject; paradigms of BLiMP only as their mean."""
    lines = [f"{'task':16} {'metric':32} {'first':>9} {'last':>9} {'folder':>9}"]
    last = answers[1]["results"]
    for task, metrics in last.items():
        for metric in metrics:
            if "," not in metric or task.startswith("blimp_"):
                continue
            values = [answer["results"][task][metric] for answer in answers]
            shown = " ".join(f"{v:9.4f}" if isinstance(v, float) else f"{v!s:>9}" for v in values)
            lines.append(f"{task:16} {metric:32} {shown}")
    lines.append(
        f"{'':16} {'requests, truncated':32} " + " ".join(f"{a['requests']}/{a['truncated']}" for a in answers)
    )
    return "\n".join(lines) + "\n"


def main() -> None:
    """One table, from the command line."""
    asked = argparse.ArgumentParser(description=(__doc__ or "").splitlines()[0])
    asked.add_argument("sources", type=Path, help="a folder with the files that experiments/benchmarks.py names")
    asked.add_argument("--run", default="latest", help="the longer training's run (the report names it)")
    asked.add_argument("--folder", type=Path, help="another Hugging Face folder [default: the run's, exported]")
    asked.add_argument("--limit", type=int, default=20)
    asked.add_argument("--out", type=Path, help="keep tasks, results and samples here")
    given = asked.parse_args()
    try:
        with tempfile.TemporaryDirectory(prefix="exp005-") as base:
            out = given.out or Path(base)
            answers = evaluate(given.sources, out, run=given.run, folder=given.folder, limit=given.limit)
    except (DataError, DataMissing, MissingEvidence, StepFailed) as error:
        sys.exit(f"exp005: {error}")
    sys.stdout.write(table(answers))


if __name__ == "__main__":
    main()
