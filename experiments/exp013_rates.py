"""Which learning rate does each optimizer get in exp013_optimizers.py?

Question. AdamW, Muon, MuonH and AdamH are to be compared. At which of three learning rates does each end lowest, on a seed
that the comparison does not have?

Hypothesis. Each ends lowest at the middle one of its three rates, so that none of them is at an edge of what was searched.

Regime. The dense Llama of a million numbers of exp013_optimizers.py, 200 train steps of 256 tokens, half of them books
and half a grammar, under profile exact; for each optimizer three rates, each three times the one before, and one seed. That is
the beginning of a training, 51,200 tokens: what a processor that many people share can do in an hour.

Metrics. Held-out loss (nats a token), lower is better.

Definition of done. Twelve trainings are evaluated on the same held-out text; one table has them, one plot loss over the
rate. The rule: the rate with the lowest held-out loss is the optimizer's, in exp013_optimizers.py and exp013_10m.py,
whatever else is seen; where it is at an edge, that is said beside every result. The books are the two that ship with the
repository.

Issue. docs/exact.md
"""

import json

from msgspec.structs import replace

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train
from marin.graph import Context, Resources, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.form.optimizer import completed
from marin.recipe.schema import (
    Arithmetic,
    Evaluation,
    FilesDataset,
    GrammarDataset,
    Mixture,
    MixtureDataset,
    Model,
    Optimizer,
    Trainer,
)
from marin.reporting.experiment import Plot, Report

SEED = 20
DENSE = Model(seq_len=32)
BATCH, STEPS, WARMUP, SEGMENT = 8, 200, 10, 256
EXACT = Arithmetic(
    profile="exact", logical_shards=1, microbatch_size=BATCH, reduction="integer", isa="any", xla_flags=()
)
HALVES = Mixture(weights={"books": 0.5, "grammar": 0.5}, block_size=64)
MEASURE = Evaluation(batch_size=16, max_sequences=256, minimal_pairs=8)
RATES = {
    "adamw": (2e-3, 6e-3, 1.8e-2),
    "muon": (6.7e-3, 2e-2, 6e-2),
    "muonh": (6.7e-3, 2e-2, 6e-2),
    "adamh": (6.7e-3, 2e-2, 6e-2),
}
"""The middle ones are those of conf/optimizer."""
OF_ADAM = 0.3
"""The rate of the tensors that Adam moves beside that of the matrices, as in conf/optimizer."""


def optimizer(name: str, rate: float) -> Optimizer:
    """An optimizer at a rate, with the defaults of its own otherwise; none decays weights, for two of them cannot."""
    rule = completed(
        Optimizer(name=name, learning_rate=rate, warmup_steps=WARMUP, weight_decay=0.0, rounding="nearest")  # type: ignore[arg-type]
    )
    return rule if rule.adam_lr is None else replace(rule, adam_lr=OF_ADAM * rate)


tokens = default_tokenize(
    "books-and-grammar-bpe2k",
    default_corpus(
        "books-and-grammar",
        MixtureDataset(
            name="books-and-grammar",
            parts={
                "books": FilesDataset(
                    name="books", globs=("data/babylm_sample/train/*.train",), split="lines", validation_fraction=0.05
                ),
                "grammar": GrammarDataset(train_bytes=2_000_000, validation_bytes=60_000, minimal_pairs=60),
            },
        ),
    ),
)


def measured(name: str, model: Model, rule: Optimizer, seed: int, steps: int = STEPS) -> Step:
    """A training under profile exact, and its held-out loss."""
    trained = default_train(
        name,
        tokens,
        model=model,
        seed=seed,
        trainer=Trainer(num_steps=steps, batch_size=BATCH, steps_per_segment=min(steps, SEGMENT)),
        optimizer=rule,
        arithmetic=EXACT,
        mixture=HALVES,
        resources=Resources(cpus=1),
    )
    return default_eval(trained, MEASURE)


def called(name: str, rate: float) -> str:
    """The name of an arm; a number has no point there."""
    return f"{name}-{round(rate * 1e4)}e-4"


def report(context: Context) -> Result:
    """One row for each training; for each optimizer the rate that ended lowest."""
    rows, lowest, curves = [], {}, {}
    for name, rates in context.config["rates"].items():
        losses = [
            (context.inputs[called(name, rate)].metrics["loss"], float(rate), context.inputs[called(name, rate)].run)
            for rate in rates
        ]
        rows += [(name, rate, loss, run) for loss, rate, run in losses]
        lowest[name] = min(losses)[1]
        curves[name] = [(rate, loss) for loss, rate, _ in losses]
    edges = [name for name, rate in lowest.items() if rate != sorted(context.config["rates"][name])[1]]
    (context.out / "rates.json").write_text(json.dumps(lowest, indent=2) + "\n", encoding="utf-8")
    Report(
        title="Learning rates for four optimizers",
        question="At which of three rates does each end lowest?",
        findings=[
            *(f"{name}: {rate:g}" for name, rate in lowest.items()),
            f"at an edge of what was searched: {', '.join(edges) or 'none'}",
        ],
        columns=("optimizer", "learning rate", "loss", "run"),
        rows=rows,
        plot=Plot("Held-out loss over learning rate", "learning rate", "loss (nats a token)", curves, log_x=True),
    ).write(context.out)
    return Result(kind="report", value=lowest, metrics={f"rate.{name}": rate for name, rate in lowest.items()})


numbers = {
    called(name, rate): measured(f"rates-{called(name, rate)}", DENSE, optimizer(name, rate), SEED)
    for name, rates in RATES.items()
    for rate in rates
}
searched = Step("report/rates", report, {"rates": RATES}, numbers)
experiment = Registration(
    name="exp013_rates",
    question="At which of three learning rates does each of AdamW, Muon, MuonH and AdamH end lowest?",
    hypothesis="Each ends lowest at the middle one of its three rates.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={name: step.config for name, step in numbers.items()},
    baseline=called("adamw", RATES["adamw"][1]),
    seeds=(SEED,),
    # One seed tests nothing: the rule takes the lowest, whatever its distance.
    test="welch",
    cost_cap=CostCap(seconds=86400.0),
)
steps = [searched]
