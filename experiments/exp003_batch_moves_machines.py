"""Does a run that moves between machines of other shapes in mid-run have the bits of one that stayed?

Question. One recipe is trained twice: straight through on one device, and paused twice and moved from one device to two
and to four. Are the two final states, and what is measured on them, equal bit for bit?

Hypothesis. Yes: the batch is cut into eight logical shards whatever the machine has, and a state is digested without
regard to where its parts lay.

Regime. A Llama of 0.06 million numbers, 60 train steps, one seed: equality needs no statistics.

Metrics. Digest of the final state, every train loss, held-out loss: equal or not.

Definition of done. Both trainings are recorded, the second with its pauses and its device counts; one table has the
digests of both final states and their evaluations, one plot shows both loss curves, which must coincide; both runs pass
`marin verify` on one device. On two cores it takes minutes.

Issue. docs/determinism.md
"""

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train
from marin.graph import Context, Resources, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import Evaluation, GrammarDataset, Model, Optimizer, Trainer
from marin.reporting.experiment import Plot, Report

MODEL = Model(hidden_dim=32, intermediate_dim=88, num_layers=2, num_heads=2, num_kv_heads=2, seq_len=64)
MOVES = ((20, 1), (40, 2))
"""One device before train step 20, two before train step 40, then four."""
LAST_DEVICES = 4


def report(context: Context) -> Result:
    """Digests side by side: nothing is computed but equality."""
    names = ("straight", "moved")
    states = {name: context.inputs[name].digest for name in names}
    tables = {name: context.inputs[name].tables["loss"]() for name in names}
    rows = [
        (
            name,
            context.config["devices"][name],
            states[name],
            context.inputs[f"{name}-numbers"].metrics["loss"],
            context.inputs[f"{name}-numbers"].metrics["loss"].hex(),
            context.inputs[name].run,
        )
        for name in names
    ]
    equal = states["straight"] == states["moved"]
    curves_equal = tables["straight"] == tables["moved"]
    measured_equal = rows[0][4] == rows[1][4]
    Report(
        title="A run that moves between machines",
        question="Does a run that is paused and moved between device counts end with the bits of one that stayed?",
        findings=[
            f"final states equal: {_said(equal)}",
            f"every train loss equal: {_said(curves_equal)}",
            f"validation losses equal: {_said(measured_equal)}",
        ],
        columns=("training", "devices", "final state", "validation loss", "its bits", "run"),
        rows=rows,
        plot=Plot(
            "Training loss: two curves, one line",
            "train step",
            "loss (nats a token)",
            {
                name: [
                    (float(step), float(loss))
                    for step, loss in (line.split(",") for line in tables[name].splitlines()[1:])
                ]
                for name in names
            },
            marks=[float(step) for step, _ in context.config["moves"]],
        ),
    ).write(context.out)
    return Result(kind="report", value={"equal": equal and curves_equal and measured_equal})


def _said(equal: bool) -> str:
    return "yes, bit for bit" if equal else "NO"


corpus = default_corpus("grammar-200kB", GrammarDataset(train_bytes=200_000, validation_bytes=20_000, minimal_pairs=40))
tokens = default_tokenize("grammar-200kB-bpe512", corpus, vocab_size=512)
trainer, optimizer = (
    Trainer(num_steps=60, batch_size=8, steps_per_segment=20),
    Optimizer(learning_rate=6e-3, warmup_steps=8),
)
straight = default_train("straight", tokens, model=MODEL, order=None, seed=7, trainer=trainer, optimizer=optimizer)
moved = default_train(
    "moved",
    tokens,
    model=MODEL,
    order=None,
    seed=7,
    trainer=trainer,
    optimizer=optimizer,
    apart="moved",
    resources=Resources(cpus=2, devices=LAST_DEVICES, moves=MOVES),
)
measure = Evaluation(batch_size=16, max_sequences=64, minimal_pairs=40)
numbers = {"straight": default_eval(straight, measure), "moved": default_eval(moved, measure)}
experiment = Registration(
    name="exp003_batch_moves_machines",
    question="Does a run that moves between machines of other shapes in mid-run have the bits of one that stayed?",
    hypothesis="Yes: no difference at all, in the final state and in everything that is measured on it.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={name: step.config for name, step in numbers.items()},
    apart={"moved": moved.apart},
    baseline="straight",
    seeds=(7,),
    cost_cap=CostCap(seconds=3600.0),
)
steps = [
    Step(
        "report/moves",
        report,
        {"moves": MOVES, "devices": {"straight": "1", "moved": f"1, 2, {LAST_DEVICES}"}},
        {"straight": straight, "moved": moved, **{f"{name}-numbers": step for name, step in numbers.items()}},
    )
]
