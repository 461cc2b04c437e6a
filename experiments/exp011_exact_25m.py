"""What does the arithmetic of profile exact cost a model of 25 million numbers?

Question. The same as exp011_exact_bits.py's, at 25 times its size and for three ways of computing: float32, bfloat16, and
profile exact with its 15 bits. How far are the held-out losses from that of float32, over three seeds?

Hypothesis. Mean held-out loss under exact and in bfloat16 is within 0.03 nats a token of float32's.

Regime. A Llama of 25 million numbers, 240 train steps of 512 tokens, three ways of computing, three seeds each.

Metrics. Held-out loss (nats a token), lower is better, and its difference from float32's, seed by seed.

Definition of done. Three ways, three seeds each, are evaluated on the same held-out text; tables and a plot as there. 240
train steps of 512 tokens: the beginning of a training, which is what two cores can do in an hour or two.

Issue. docs/exact.md
"""

from experiments.defaults import default_eval, default_train
from experiments.exp011_exact_bits import ARMS, BATCH, SEEDS, measure, report, tokens
from marin.graph import Resources, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import Model, Optimizer, Trainer

MODEL = Model(hidden_dim=512, intermediate_dim=1376, num_layers=8, num_heads=8, num_kv_heads=8, seq_len=64)
STEPS = 240
WAYS = {arm: ARMS[arm] for arm in ("float32", "bfloat16", "exact")}

trained = {
    f"25m-{arm}-seed{seed}": default_train(
        f"25m-{arm}-seed{seed}",
        tokens,
        model=MODEL,
        order=None,
        seed=seed,
        trainer=Trainer(num_steps=STEPS, batch_size=BATCH, steps_per_segment=STEPS),
        optimizer=Optimizer(learning_rate=2e-3, warmup_steps=24),
        arithmetic=arithmetic,
        resources=Resources(cpus=1),
    )
    for seed in SEEDS
    for arm, arithmetic in WAYS.items()
}
numbers = {name: default_eval(step, measure) for name, step in trained.items()}
experiment = Registration(
    name="exp011_exact_25m",
    question="How far is the held-out loss of a model of 25M under profile exact from that of float32?",
    hypothesis="Mean held-out loss under exact and in bfloat16 is within 0.03 nats a token of float32's.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={arm: numbers[f"25m-{arm}-seed{SEEDS[0]}"].config for arm in WAYS},
    baseline="float32",
    seeds=SEEDS,
    test="welch",
    cost_cap=CostCap(seconds=86400.0),
)
steps = [
    Step(
        "report/exact-25m",
        report,
        {"size": "25M", "arms": list(WAYS), "seeds": SEEDS, "smoothed": 12},
        {
            **{name.removeprefix("25m-"): step for name, step in numbers.items()},
            **{f"{name.removeprefix('25m-')}-train": step for name, step in trained.items()},
        },
    )
]
