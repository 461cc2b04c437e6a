"""Does fresh text in the second half make good for repeated text in the first?

Question. A small corpus that is seen again and again and a large one that is not are mixed. Two mixtures: nine tenths
from the small one, nine tenths from the large one. Does a run that changes from the first mixture to the second in the
middle end as low as one that had the second from the beginning?

Hypothesis. It ends lower than the run that stays with repeated text, and not quite as low as the run on fresh text.

Regime. A Llama of 0.17 million numbers, 80 train steps, two seeds, 30 kB and 600 kB from two grammars.

Metrics. Held-out loss (nats a token), lower is better; perplexity beside it.

Definition of done. For each of two seeds: both mixtures held to the end, and one run that changes in mid-run as a phase
that continues the state of the first; all are evaluated on the same held-out text; the table has the three ends for
each seed, the plot shows the training losses with the change marked; `marin verify` walks through the phases. On two
cores it takes minutes.

Issue. docs/experiments.md
"""

from experiments.defaults import default_continue, default_corpus, default_eval, default_tokenize, default_train
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import Evaluation, GrammarDataset, Mixture, MixtureDataset, Model, Optimizer, Trainer
from marin.reporting.experiment import Plot, Report

SEEDS = (1, 2)
STEPS, CHANGE = 80, 40
MODEL = Model(hidden_dim=64, intermediate_dim=176, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=64)
REPEATED = Mixture(weights={"few": 0.9, "many": 0.1}, block_size=16)
FRESH = Mixture(weights={"few": 0.1, "many": 0.9}, block_size=16)
ARMS = ("repeated", "changed", "fresh")


def report(context: Context) -> Result:
    """One row for each seed and arm; the losses of the first seed step by step."""
    seeds, change = context.config["seeds"], context.config["change"]
    rows = [
        (seed, arm, numbers.metrics["loss"], numbers.metrics["perplexity"], numbers.run)
        for seed in seeds
        for arm in ARMS
        if (numbers := context.inputs[f"{arm}-seed{seed}"])
    ]
    means = {arm: sum(row[2] for row in rows if row[1] == arm) / len(seeds) for arm in ARMS}
    ordered = all(
        by_arm["fresh"] < by_arm["changed"] < by_arm["repeated"]
        for seed in seeds
        if (by_arm := {row[1]: row[2] for row in rows if row[0] == seed})
    )
    curves = {
        arm: _losses(context, [f"{arm}-train"] if arm != "changed" else ["before-train", "changed-train"])
        for arm in ARMS
    }
    Report(
        title="A change of mixture in mid-run",
        question="Does fresh text in the second half make good for repeated text in the first?",
        findings=[
            f"mean validation loss {', '.join(f'{arm} {mean:.4f}' for arm, mean in means.items())}",
            f"fresh below changed below repeated, for every seed: {'yes' if ordered else 'no'}",
        ],
        columns=("seed", "arm", "loss", "perplexity", "run"),
        rows=rows,
        plot=Plot(
            f"Training loss, seed {seeds[0]}", "train step", "loss (nats a token)", curves, marks=(float(change),)
        ),
    ).write(context.out)
    return Result(
        kind="report", value={"ordered": ordered}, metrics={f"loss.{arm}": mean for arm, mean in means.items()}
    )


def _losses(context: Context, names: list[str]) -> list[tuple[float, float]]:
    lines = [line for name in names for line in context.inputs[name].tables["loss"]().splitlines()[1:]]
    return [(float(step), float(loss)) for step, loss in (line.split(",") for line in lines)]


def trainer(steps: int) -> Trainer:
    """So many train steps, a recorded state after every forty."""
    return Trainer(num_steps=steps, batch_size=8, steps_per_segment=40)


corpus = default_corpus(
    "few-and-many",
    MixtureDataset(
        name="few-and-many",
        parts={
            "few": GrammarDataset(name="few", seed=11, train_bytes=30_000, validation_bytes=1_000, minimal_pairs=0),
            "many": GrammarDataset(
                name="many", seed=12, train_bytes=600_000, validation_bytes=30_000, minimal_pairs=60
            ),
        },
    ),
)
tokens = default_tokenize("few-and-many-bpe512", corpus, vocab_size=512)
numbers: dict[str, Step] = {}
for seed in SEEDS:
    rate = Optimizer(learning_rate=6e-3, warmup_steps=8, schedule="constant")
    held = {
        name: default_train(
            f"{name}-seed{seed}",
            tokens,
            model=MODEL,
            order=None,
            seed=seed,
            trainer=trainer(STEPS),
            optimizer=rate,
            mixture=mixture,
        )
        for name, mixture in (("repeated", REPEATED), ("fresh", FRESH))
    }
    before = default_train(
        f"before-seed{seed}",
        tokens,
        model=MODEL,
        order=None,
        seed=seed,
        trainer=trainer(CHANGE),
        optimizer=rate,
        mixture=REPEATED,
    )
    changed = default_continue(f"changed-seed{seed}", before, mixture=FRESH, trainer=trainer(STEPS - CHANGE))
    trainings = {**held, "changed": changed}
    numbers |= {
        f"{name}-seed{seed}": default_eval(step, Evaluation(batch_size=16, max_sequences=64, minimal_pairs=0))
        for name, step in trainings.items()
    }
    if seed == SEEDS[0]:
        numbers |= {"before-train": before} | {f"{name}-train": step for name, step in trainings.items()}
experiment = Registration(
    name="exp002_mixture",
    question="Does fresh text in the second half make good for repeated text in the first?",
    hypothesis="The run that changes ends lower than the one that stays with repeated text, not as low as the one on fresh text.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={arm: numbers[f"{arm}-seed{SEEDS[0]}"].config for arm in ARMS},
    baseline="repeated",
    seeds=SEEDS,
    cost_cap=CostCap(seconds=3600.0),
)
steps = [Step("report/mixture", report, {"seeds": SEEDS, "change": CHANGE}, numbers)]
