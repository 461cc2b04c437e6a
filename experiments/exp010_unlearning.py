"""Does a run from which three documents were unlearned, one after the other, have the bits of one that never saw them?

Question. A model is trained on pages of documentation, cleaned and deduplicated (the default collection of docs/data.md, the kind
of run that exp004 compares). Three of its documents are unlearned in sequence, each from the run that the request before led to.
Is every state on the way the state of a training from the start without these documents?

Hypothesis. Yes: no bit differs, in any of the three, in the state and in what is measured on it.

Regime. A Llama of 0.04 million numbers (conf/model/nano.yaml), 240 train steps, one seed, a vocabulary that no single document
decides: equality needs no statistics.

Metrics. Digest of the final state, held-out loss: equal or not.

Definition of done. The base is trained, the three requests are recorded and their runs made (the commands below), and the same
three recipes are trained from the start, apart; one table has both digests of each, one plot the held-out losses; all four runs
pass `marin verify`, and each of the three has a certificate. On two cores it takes minutes. Before the first run:

    marin data build --source 'data/*.warc.gz' --config web
    marin experiment register experiments/exp010_unlearning.py
    marin run experiments/exp010_unlearning.py --only evaluate/base
    marin unlearn RUN --document FIRST ; marin unlearn RUN-OF-THAT --document SECOND ; marin unlearn RUN-OF-THAT --document THIRD
    marin run experiments/exp010_unlearning.py

Issue. docs/unlearning.md
"""

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train, default_without
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import DocumentsDataset, Evaluation, Model, Optimizer, Trainer
from marin.reporting.experiment import Plot, Report

PAGES = "sha256:dd706d8ed4d80c19542700b2b93dfa9b233a9b99d47899a1eea455bd31b8648f"
"""The collection that `marin data build --source 'data/*.warc.gz' --config web` gives."""
NANO = Model(hidden_dim=32, intermediate_dim=88, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=32)
DOCUMENTS = ("4506d6b9289e5b1e9c229e4a8f971cc7", "f83ea4afd7838babfe22b7c4cd5a809f", "35cdb0a286748e1706a20aed70883273")
"""In the order in which they are unlearned: the three that the base reads latest for the first time, the latest first."""
TRAINER = Trainer(num_steps=240, batch_size=8, steps_per_segment=6)
MEASURE = Evaluation(batch_size=16, max_sequences=64, minimal_pairs=0)


def report(context: Context) -> Result:
    """Digests side by side: nothing is computed but equality."""
    rows: list[tuple[str | int | float, ...]] = []
    losses: dict[str, list[tuple[float, float]]] = {"unlearned": [], "from the start": []}
    for count in range(1, len(context.config["documents"]) + 1):
        one, other = context.inputs[f"unlearned-{count}"], context.inputs[f"start-{count}"]
        found = context.inputs[f"unlearned-{count}-loss"], context.inputs[f"start-{count}-loss"]
        for name, value in zip(losses, found, strict=True):
            losses[name].append((float(count), value.metrics["loss"]))
        equal = one.digest == other.digest and found[0].metrics["loss"] == found[1].metrics["loss"]
        rows.append((count, one.digest, other.digest, found[0].metrics["loss"], "yes" if equal else "NO", one.run))
    alike = all(row[4] == "yes" for row in rows)
    Report(
        title="Three documents unlearned, one after the other",
        question="Does a run from which documents were unlearned have the bits of one that never saw them?",
        findings=[
            f"states and held-out losses equal after each request: {'yes, bit for bit' if alike else 'NO'}",
            f"held-out loss before any request: {context.inputs['base-loss'].metrics['loss']:.4f} nats a token",
        ],
        columns=("documents", "state, unlearned", "state, from the start", "held-out loss", "equal", "run"),
        rows=rows,
        plot=Plot("Held-out loss", "documents unlearned", "loss (nats a token)", losses),
    ).write(context.out)
    return Result(kind="report", value={"equal": alike})


corpus = default_corpus("pages", DocumentsDataset(artifact=PAGES))
tokens = default_tokenize("pages-bpe264", corpus, vocab_size=264)
base = default_train(
    "base",
    tokens,
    model=NANO,
    order=None,
    seed=10,
    trainer=TRAINER,
    optimizer=Optimizer(learning_rate=3e-3, warmup_steps=24),
)
unlearned = {count: default_without(f"without-{count}", base, DOCUMENTS[:count]) for count in (1, 2, 3)}
start = {
    count: default_without(f"without-{count}-from-start", base, DOCUMENTS[:count], apart="from-start")
    for count in unlearned
}
numbers = {"base": default_eval(base, MEASURE)} | {
    f"unlearned-{count}": default_eval(step, MEASURE) for count, step in unlearned.items()
}
apart = {f"start-{count}": default_eval(step, MEASURE) for count, step in start.items()}
experiment = Registration(
    name="exp010_unlearning",
    question="Does a run from which three documents were unlearned have the bits of one that never saw them?",
    hypothesis="Yes: no difference at all, in the final state and in everything that is measured on it.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={name: step.config for name, step in numbers.items()} | {name: step.config for name, step in apart.items()},
    apart=dict.fromkeys(apart, "from-start"),
    baseline="base",
    seeds=(10,),
    cost_cap=CostCap(seconds=7200.0),
)
steps = [
    Step(
        "report/unlearning",
        report,
        {"documents": DOCUMENTS},
        {f"unlearned-{count}": step for count, step in unlearned.items()}
        | {f"start-{count}": step for count, step in start.items()}
        | {f"{name}-loss": step for name, step in (numbers | apart).items()},
    )
]
