"""How does loss fall with size, on text from a grammar?

Question. On equal data, for an equal number of train steps, does a larger Llama reach a lower validation loss on text
from the embedded grammar, and is the difference larger than that between seeds?

Hypothesis. Yes: at 0.06, 0.17 and 0.44 million parameters mean validation loss falls with every step up, and the ranges
over three seeds do not overlap between the smallest and the largest.

Regime. Three sizes of Llama below a million numbers, three seeds each, 80 train steps on 400 kB from a grammar.

Metrics. Held-out loss (nats a token), lower is better; perplexity beside it.

Definition of done. Nine trainings (three sizes, three seeds) are evaluated on the same held-out text; one table has
every one of them, one plot shows loss over parameters; each run passes `marin verify`. On two cores it takes minutes.

Issue. docs/experiments.md
"""

from itertools import pairwise

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import Evaluation, GrammarDataset, Model, Optimizer, Trainer
from marin.reporting.experiment import Plot, Report

SEEDS = (1, 2, 3)
SIZES = {
    "tiny": Model(hidden_dim=32, intermediate_dim=88, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=64),
    "small": Model(hidden_dim=64, intermediate_dim=176, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=64),
    "medium": Model(hidden_dim=96, intermediate_dim=264, num_layers=3, num_heads=3, num_kv_heads=3, seq_len=64),
}
VOCABULARY = 512


def parameters(model: Model, vocabulary: int) -> int:
    """How many numbers are trained: embedding and output, and in each layer four square and three wide matrices and two
    gains."""
    layer = 4 * model.hidden_dim**2 + 3 * model.hidden_dim * model.intermediate_dim + 2 * model.hidden_dim
    return 2 * vocabulary * model.hidden_dim + model.num_layers * layer + model.hidden_dim


def report(context: Context) -> Result:
    """One row for each run, one point for each row."""
    rows = []
    for name, numbers in sorted(context.inputs.items()):
        size, _, seed = name.partition("-seed")
        count = parameters(context.config["sizes"][size], context.config["vocabulary"])
        rows.append((size, count, int(seed), numbers.metrics["loss"], numbers.metrics["perplexity"], numbers.run))
    rows.sort(key=lambda row: (row[1], row[2]))
    means = {
        size: sum(row[3] for row in rows if row[0] == size) / sum(row[0] == size for row in rows)
        for size in dict.fromkeys(row[0] for row in rows)
    }
    falls = all(later < earlier for earlier, later in pairwise(means.values()))
    first, *_, last = means
    apart = max(row[3] for row in rows if row[0] == last) < min(row[3] for row in rows if row[0] == first)
    Report(
        title="Loss and size on text from a grammar",
        question="Does a larger model reach a lower validation loss after the same number of train steps?",
        findings=[
            f"mean loss {', '.join(f'{size} {mean:.4f}' for size, mean in means.items())}",
            f"it falls with every step up: {'yes' if falls else 'no'}",
            f"the seeds of {first} and {last} do not overlap: {'yes' if apart else 'no'}",
        ],
        columns=("size", "parameters", "seed", "loss", "perplexity", "run"),
        rows=rows,
        plot=Plot(
            "Validation loss over parameters",
            "parameters",
            "loss (nats a token)",
            {"seeds": [(float(row[1]), row[3]) for row in rows]},
            log_x=True,
        ),
    ).write(context.out)
    return Result(
        kind="report",
        value={"falls": falls, "apart": apart},
        metrics={f"loss.{size}": mean for size, mean in means.items()},
    )


corpus = default_corpus("grammar-400kB", GrammarDataset(train_bytes=400_000, validation_bytes=30_000, minimal_pairs=60))
tokens = default_tokenize("grammar-bpe512", corpus, vocab_size=VOCABULARY)
evaluations = {
    f"{size}-seed{seed}": default_eval(
        default_train(
            f"{size}-seed{seed}",
            tokens,
            model=model,
            order=None,
            seed=seed,
            trainer=Trainer(num_steps=80, batch_size=8, steps_per_segment=40),
            optimizer=Optimizer(learning_rate=6e-3, warmup_steps=8),
        ),
        Evaluation(batch_size=16, max_sequences=64, minimal_pairs=60),
    )
    for size, model in SIZES.items()
    for seed in SEEDS
}
experiment = Registration(
    name="exp001_grammar_scaling",
    question="Does a larger Llama reach a lower validation loss on text from the grammar, at equal data and train steps?",
    hypothesis="At 0.06, 0.17 and 0.44 million parameters mean validation loss falls with every step up.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    secondary=(Metric(name="evaluate.pairs_won", direction="higher"),),
    arms={size: evaluations[f"{size}-seed{SEEDS[0]}"].config for size in SIZES},
    baseline="tiny",
    seeds=SEEDS,
    # Models of different shapes share no initial weights, so a seed pairs nothing; and three pairs could show nothing.
    test="welch",
    alternative="one-sided",
    cost_cap=CostCap(seconds=3600.0),
)
steps = [Step("report/grammar-scaling", report, {"sizes": SIZES, "vocabulary": VOCABULARY}, evaluations)]
