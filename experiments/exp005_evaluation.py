"""What do public benchmarks say of two checkpoints of one run, and of the same model as a Hugging Face folder?

Question. A small Llama learns text from a grammar. Does a benchmark's number move between its first checkpoint and its last
state, and has the exported folder, read back, the last state's numbers to the bit?

Hypothesis. Loss on held-out text of the grammar is lower after 120 train steps than after 40. BLiMP, HellaSwag, GSM8K and
TruthfulQA (mc1) stay near chance: the model has seen no English but the grammar's. The folder's numbers are those of the state.

Regime. A Llama of 0.2 million numbers, 40 and 120 train steps, one seed, text from a grammar.

Metrics. Held-out loss (nats a token), lower is better; accuracies of the benchmarks, which are beside it.

Definition of done. Both trainings are reported; `python -m experiments.benchmarks.table SOURCES` then evaluates the state
before train step 40, the last one, and the folder by `marin eval` on files that experiments/benchmarks/ names, and prints
one table; `marin verify RUN --only evaluation` computes every recorded number again. On two cores it takes minutes.

    marin run experiments/exp005_evaluation.py
    python -m experiments.benchmarks.table SOURCES --limit 20 [--folder ANOTHER-HF-FOLDER]

Issue. docs/evaluation.md
"""

from __future__ import annotations

from experiments.defaults import default_corpus, default_eval, default_export, default_tokenize, default_train
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
        order=None,
        seed=5,
        trainer=Trainer(num_steps=count, batch_size=8, steps_per_segment=STEPS[0]),
        optimizer=Optimizer(learning_rate=6e-3, warmup_steps=8),
    )
    for count in STEPS
)
measure = Evaluation(batch_size=8, max_sequences=32, minimal_pairs=40)
numbers = {"shorter": default_eval(shorter, measure), "longer": default_eval(longer, measure)}
experiment = Registration(
    name="exp005_evaluation",
    question="Is held-out loss lower after 120 train steps than after 40?",
    hypothesis="Yes; and benchmarks on English stay near chance.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={name: step.config for name, step in numbers.items()},
    baseline="shorter",
    seeds=(5,),
    cost_cap=CostCap(seconds=3600.0),
)
steps = [
    Step(
        "report/evaluation",
        report,
        {"steps": {"shorter": STEPS[0], "longer": STEPS[1]}},
        {**numbers, "model": default_export(longer)},
    )
]
