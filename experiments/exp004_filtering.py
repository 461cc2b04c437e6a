"""Does filtering help at equal tokens?

Question. Pages of documentation (a WARC) and two books (Parquet) become two collections: all documents, and those that are left
when the rules of Gopher and FineWeb have removed whole documents. Two models read equally many tokens of them. Which is better
on held-out documents that passed the filter?

Hypothesis. The model that read filtered documents has the lower held-out loss.

Regime. A Llama of 0.17 million numbers, 200 train steps of 512 tokens, three seeds; the filter removes 50 of 395 documents. One
tokenizer for both, trained on all; the held-out documents are the same for both and in the training of neither.

Metrics. Held-out loss (nats a token), lower is better.

Definition of done. Both arms are evaluated with every seed on the same held-out documents, one table, one plot; every run passes
`marin verify RUN --experiment experiments/exp004_filtering.py` with six PASS. Minutes on two cores. Before the first run:

    python data/make_books.py crawl/books.parquet && cp data/pages.warc.gz crawl/
    marin data build --source 'crawl/*' --config exp004-all
    marin data build --source 'crawl/*' --config exp004-filtered
    marin experiment register experiments/exp004_filtering.py

Issue. docs/data.md
"""

import json
from itertools import pairwise

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import DocumentsDataset, Evaluation, Model, Optimizer, Trainer
from marin.reporting.experiment import Plot, Report

ALL = "sha256:dbf540f2cfe8c20818d9cf4cb0cadee2befb755dea7bfda33272cea4acf22e3e"
"""What the first `marin data build` prints."""
FILTERED = "sha256:af16f2207862297573a5c8c089fbb1a04b98448a8e4f7d996de13864ec6ab462"
"""And the second: some of the same documents, in the same splits, since a split is drawn by the text."""
ARMS = ("all", "filtered")
SEEDS = (1, 2, 3)
MODEL = Model(hidden_dim=64, intermediate_dim=176, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=64)


def choose(context: Context) -> Result:
    """Token caches of an arm: its own documents of the train split, and the held-out ones that passed the filter."""
    from marin.training.tokens.building import write_cache
    from marin.training.tokens.cache import read_tokens

    counts = {}
    for split in ("train", "validation"):
        names = {
            arm: [
                json.loads(line)["metadata"]["id"]
                for line in (context.inputs[f"corpus-{arm}"].path / f"{split}.jsonl").read_bytes().splitlines()
            ]
            for arm in ("all", "filtered")
        }
        kept = set(names["filtered"] if split == "validation" else names[context.config["arm"]])
        if not kept <= set(names["all"]):
            raise ValueError(f"{split}: the filtered documents are not some of all")
        tokens, offsets = read_tokens(context.inputs["tokens"].path / split)
        found = (
            tokens[first:end]
            for name, (first, end) in zip(names["all"], pairwise(offsets.tolist()), strict=True)
            if name in kept
        )
        counts[split] = dict(zip(("tokens", "documents"), write_cache(context.out / split, found), strict=True))
    return Result(kind="tokens", value=counts)


def report(context: Context) -> Result:
    """One row for each arm and seed; the mean of each arm."""
    rows: list[tuple[str | int | float, ...]] = []
    series: dict[str, list[tuple[float, float]]] = {}
    for arm in context.config["arms"]:
        for seed in context.config["seeds"]:
            numbers = context.inputs[f"{arm}-seed{seed}"]
            rows.append((arm, seed, numbers.metrics["loss"], numbers.metrics["perplexity"], numbers.run))
            series.setdefault(arm, []).append((float(seed), numbers.metrics["loss"]))
    means = {arm: sum(loss for _, loss in points) / len(points) for arm, points in series.items()}
    lower = [mine < theirs for (_, theirs), (_, mine) in zip(series["all"], series["filtered"], strict=True)]
    Report(
        title="Filtering at equal tokens",
        question="Does filtering help at equal tokens?",
        findings=[
            *(f"mean held-out loss, {arm}: {mean:.4f} nats a token" for arm, mean in means.items()),
            f"filtered is lower in {sum(lower)} of {len(lower)} seeds",
        ],
        columns=("arm", "seed", "loss", "perplexity", "run"),
        rows=rows,
        plot=Plot("Held-out loss", "seed", "loss (nats a token)", series),
    ).write(context.out)
    return Result(kind="report", value=means, metrics={f"loss.{arm}": mean for arm, mean in means.items()})


corpora = {
    "all": default_corpus("exp004-all", DocumentsDataset(name="pages", artifact=ALL)),
    "filtered": default_corpus("exp004-filtered", DocumentsDataset(name="pages", artifact=FILTERED)),
}
tokens = default_tokenize("exp004-bpe1024", corpora["all"], vocab_size=1024)
tokenizer = tokens.inputs["tokenizer"]
numbers: dict[str, Step] = {}
for arm in ARMS:
    chosen = Step(
        f"tokens/exp004-{arm}",
        choose,
        {"arm": arm},
        {"tokens": tokens, "tokenizer": tokenizer, **{f"corpus-{name}": step for name, step in corpora.items()}},
    )
    for seed in SEEDS:
        trained = default_train(
            f"exp004-{arm}-seed{seed}",
            chosen,
            model=MODEL,
            order=None,
            seed=seed,
            trainer=Trainer(num_steps=200, batch_size=8, steps_per_segment=100),
            optimizer=Optimizer(learning_rate=4e-3, warmup_steps=20),
        )
        numbers[f"{arm}-seed{seed}"] = default_eval(
            trained, Evaluation(batch_size=16, max_sequences=256, minimal_pairs=0)
        )
experiment = Registration(
    name="exp004_filtering",
    question="Does filtering help at equal tokens?",
    hypothesis="The model that read filtered documents has the lower held-out loss.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={arm: numbers[f"{arm}-seed{SEEDS[0]}"].config for arm in ARMS},
    baseline="all",
    seeds=SEEDS,
    test="welch",
    cost_cap=CostCap(seconds=3600.0),
)
steps = [Step("report/filtering", report, {"arms": list(ARMS), "seeds": SEEDS}, numbers)]
