"""How low does held-out loss on text from the grammar fall, for the FLOPs that `marin train model=nano` spends?

Question. A training may cost 3.6e10 FLOPs, a little more than that command's. Which recipe ends lowest on the held-out text?

Hypothesis. Twice the default's learning rate is better by more than 0.02 nats a token. Nobody tuned either, so anyone who enters
finds better ones.

Regime. A track of speedruns: anyone who wants to enters a run. Data, tokenizer, length of a sequence and evaluation are those of
`marin train model=nano`; size, optimizer, batch and the number of train steps are free. Here two recipes, two seeds each.

Metrics. Held-out loss (nats a token), lower is better.

Definition of done. The four trainings here are evaluated on the same held-out text, and each passes `marin verify`; one table has
them, one plot loss over the rate. The track stays open. To enter:

    marin experiment register experiments/exp012_track.py
    marin train model=nano optimizer.learning_rate=0.02
    marin verify RUN
    marin speedrun submit RUN --track exp012

Issue. docs/experiments.md
"""

from msgspec.structs import replace

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration, Track
from marin.recipe.schema import GrammarDataset, Model, Optimizer
from marin.reporting.experiment import Plot, Report

SEEDS = (1, 2)
NANO = Model(hidden_dim=32, intermediate_dim=88, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=32)
"""conf/model/nano.yaml: whatever else is not said here is the default of `marin train` too."""
DEFAULT = Optimizer()
RECIPES = {"default": DEFAULT, "faster": replace(DEFAULT, learning_rate=2 * DEFAULT.learning_rate)}
FLOPS = 3.6e10


def report(context: Context) -> Result:
    """One row for each run, one point for each row."""
    rows = []
    for name, numbers in sorted(context.inputs.items()):
        arm, _, seed = name.partition("-seed")
        rows.append((arm, context.config["rates"][arm], int(seed), numbers.metrics["loss"], numbers.run))
    means = {
        arm: sum(row[3] for row in rows if row[0] == arm) / sum(row[0] == arm for row in rows)
        for arm in context.config["rates"]
    }
    Report(
        title="Loss for the FLOPs of `marin train model=nano`",
        question="Which recipe ends lowest on the held-out text?",
        findings=[f"mean loss {', '.join(f'{arm} {mean:.4f}' for arm, mean in means.items())}"],
        columns=("recipe", "learning rate", "seed", "loss", "run"),
        rows=rows,
        plot=Plot(
            "Validation loss over learning rate",
            "learning rate",
            "loss (nats a token)",
            {"seeds": [(float(row[1]), row[3]) for row in rows]},
        ),
    ).write(context.out)
    return Result(kind="report", metrics={f"loss.{arm}": mean for arm, mean in means.items()})


tokens = default_tokenize("grammar-bpe2k", default_corpus("grammar-2MB", GrammarDataset()))
evaluations = {
    f"{arm}-seed{seed}": default_eval(
        default_train(f"track-{arm}-seed{seed}", tokens, model=NANO, seed=seed, optimizer=optimizer)
    )
    for arm, optimizer in RECIPES.items()
    for seed in SEEDS
}
experiment = Registration(
    name="exp012_track",
    question="How low does held-out loss on text from the grammar fall, for the FLOPs that marin train model=nano spends?",
    hypothesis="Twice the default's learning rate is better by more than 0.02 nats a token.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={arm: evaluations[f"{arm}-seed{SEEDS[0]}"].config for arm in RECIPES},
    baseline="default",
    seeds=SEEDS,
    test="welch",
    alternative="one-sided",
    cost_cap=CostCap(seconds=3600.0),
    track=Track(flops=FLOPS),
)
steps = [
    Step(
        "report/track",
        report,
        {"rates": {arm: optimizer.learning_rate for arm, optimizer in RECIPES.items()}},
        evaluations,
    )
]
