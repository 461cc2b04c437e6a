"""What does the arithmetic of profile exact cost a model, and how many bits does it need?

Question. A model of about a million numbers is trained in float32, in bfloat16 and under profile exact (docs/exact.md), whose
factors of contractions have 15 bits; then with 12, 10 and 8 bits, rounded to nearest and by random bits. How far are the
held-out losses from that of float32, over three seeds?

Hypothesis. With 15, 12 and 10 bits, and in bfloat16, mean held-out loss is within 0.03 nats a token of float32's. With 8 bits
it is higher than with 15, by less than 0.1. Random rounding changes none of them by more than 0.03.

Regime. A Llama of a million numbers, 1,000 train steps of 512 tokens, nine ways of computing, three seeds each.

Metrics. Held-out loss (nats a token), lower is better, and its difference from float32's, seed by seed.

Definition of done. Nine ways of computing, three seeds each, are evaluated on the same held-out text; one table has every
run, one the means with 95% intervals, one plot the learning curves. 1,000 train steps of 512 tokens. exp011_exact_25m.py asks
the same of a model of 25 million.

Earlier forms, with seeds 1, 2 and 3, were looked at before they ended. A training has the same bits whenever it is made, so
this one is registered anew with seeds that no training here has had, and with the same hypothesis.

Issue. docs/exact.md
"""

import math
import statistics

from msgspec.structs import replace

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train
from marin.graph import Context, Resources, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import Arithmetic, Evaluation, GrammarDataset, Model, Optimizer, Trainer
from marin.reporting.experiment import Plot, Report

SEEDS = (11, 12, 13)
MODEL = Model(seq_len=64)
BATCH, STEPS = 8, 1000
EXACT = Arithmetic(
    profile="exact", logical_shards=1, microbatch_size=BATCH, reduction="integer", isa="any", xla_flags=()
)
ARMS = {
    "float32": Arithmetic(),
    "bfloat16": Arithmetic(compute_dtype="bfloat16"),
    "exact": EXACT,
    **{f"exact-{bits}": replace(EXACT, factor_bits=bits) for bits in (12, 10, 8)},
    **{f"exact-{bits}-random": replace(EXACT, factor_bits=bits, factor_rounding="stochastic") for bits in (12, 10, 8)},
}
SMOOTHED = 25
"""Train steps whose mean loss is one point of a curve."""
STUDENT = {2: 12.706, 3: 4.303}
"""The 97.5% quantile of Student's t for the mean of so many."""


def interval(values: list[float]) -> str:
    """Mean and half of the 95% interval (Student's t)."""
    if len(values) not in STUDENT:
        return f"{statistics.fmean(values):.4f}"
    half = STUDENT[len(values)] * statistics.stdev(values) / math.sqrt(len(values))
    return f"{statistics.fmean(values):.4f} ± {half:.4f}"


def curve(losses: list[list[float]], smoothed: int) -> list[tuple[float, float]]:
    """Mean over seeds and over ``smoothed`` train steps."""
    mean = [statistics.fmean(row) for row in zip(*losses, strict=True)]
    return [
        (float(end), statistics.fmean(mean[end - smoothed : end])) for end in range(smoothed, len(mean) + 1, smoothed)
    ]


def report(context: Context) -> Result:
    """One row for each run; means of the arms, and of their differences from float32 with the same seed."""
    rows = []
    losses: dict[str, list[float]] = {}
    curves: dict[str, list[list[float]]] = {}
    for arm in context.config["arms"]:
        for seed in context.config["seeds"]:
            numbers, trained = context.inputs[f"{arm}-seed{seed}"], context.inputs[f"{arm}-seed{seed}-train"]
            losses.setdefault(arm, []).append(numbers.metrics["loss"])
            lines = trained.tables["loss"]().splitlines()[1:]
            curves.setdefault(arm, []).append([float(line.split(",")[1]) for line in lines])
            rows.append((arm, seed, numbers.metrics["loss"], numbers.metrics["perplexity"], numbers.run))
    plain = losses["float32"]
    Report(
        title=f"How many bits a model of {context.config['size']} needs",
        question="How far is the held-out loss under profile exact from that of float32, by bits of its factors?",
        findings=[
            f"{arm}: {interval(found)}; less that of float32, seed by seed: "
            f"{interval([one - other for one, other in zip(found, plain, strict=True)])}"
            for arm, found in losses.items()
        ],
        columns=("arithmetic", "seed", "loss", "perplexity", "run"),
        rows=rows,
        plot=Plot(
            f"Training loss, mean over seeds and {context.config['smoothed']} steps",
            "train step",
            "loss (nats a token)",
            {arm: curve(found, context.config["smoothed"]) for arm, found in curves.items()},
        ),
    ).write(context.out)
    means = {arm: statistics.fmean(found) for arm, found in losses.items()}
    return Result(kind="report", value=means, metrics={f"loss.{arm}": mean for arm, mean in means.items()})


corpus = default_corpus("grammar-800kB", GrammarDataset(train_bytes=800_000, validation_bytes=60_000, minimal_pairs=60))
tokens = default_tokenize("grammar-800kB-bpe512", corpus, vocab_size=512)
trained = {
    f"{arm}-seed{seed}": default_train(
        f"{arm}-seed{seed}",
        tokens,
        model=MODEL,
        order=None,
        seed=seed,
        trainer=Trainer(num_steps=STEPS, batch_size=BATCH, steps_per_segment=250),
        optimizer=Optimizer(learning_rate=6e-3, warmup_steps=100),
        arithmetic=arithmetic,
        resources=Resources(cpus=1),
    )
    for seed in SEEDS
    for arm, arithmetic in ARMS.items()
}
measure = Evaluation(batch_size=16, max_sequences=128, minimal_pairs=60)
numbers = {name: default_eval(step, measure) for name, step in trained.items()}
experiment = Registration(
    name="exp011_exact_bits",
    question="How far is the held-out loss under profile exact from that of float32, by bits of its factors?",
    hypothesis=(
        "Mean held-out loss with 15, 12 and 10 bits and in bfloat16 is within 0.03 nats a token of float32's; with 8 bits it is "
        "higher than with 15, by less than 0.1; random rounding changes none of them by more than 0.03."
    ),
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={arm: numbers[f"{arm}-seed{SEEDS[0]}"].config for arm in ARMS},
    baseline="float32",
    seeds=SEEDS,
    # Three pairs can show nothing by their signs; the report has the differences seed by seed, with intervals.
    test="welch",
    cost_cap=CostCap(seconds=86400.0),
)
steps = [
    Step(
        "report/exact-bits",
        report,
        {"size": "1M", "arms": list(ARMS), "seeds": SEEDS, "smoothed": SMOOTHED},
        {**numbers, **{f"{name}-train": step for name, step in trained.items()}},
    )
]
