"""Do Muon, MuonH and AdamH end lower than AdamW at equal FLOPs, at ten million numbers?

Question. The same as exp013_optimizers.py's, at ten times its size and without the mixtures: how far are held-out losses from
that of AdamW?

Hypothesis. Muon and MuonH end below AdamW after 1.19 times their train steps.

Regime. A Llama of ten million numbers, 60 train steps of 256 tokens, half of them books and half a grammar, under profile
exact; six ways to train, one seed, at the learning rates that exp013_rates.py found for a million numbers.

Metrics. Held-out loss (nats a token), lower is better. One seed tells no difference from chance, and none is claimed.

Definition of done. Six ways are evaluated on the same held-out text; tables and a plot as there. Rates were searched at a
tenth of the size alone, and there is one seed, which the result says.

Issue. docs/exact.md
"""

from experiments.exp013_optimizers import arms_of, reported
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import Model

MODEL = Model(hidden_dim=320, intermediate_dim=864, num_layers=7, num_heads=5, num_kv_heads=5, seq_len=32)
STEPS, SEEDS = 60, (21,)

trained = arms_of(MODEL, "10m", steps=STEPS, seeds=SEEDS, mixtures=False)
experiment = Registration(
    name="exp013_10m",
    question="How far are held-out losses of Muon, MuonH and AdamH from AdamW's, at equal FLOPs and ten million numbers?",
    hypothesis="Muon and MuonH end below AdamW after 1.19 times their train steps.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={arm: seeds[SEEDS[0]].config for arm, seeds in trained.items()},
    baseline="adamw",
    seeds=SEEDS,
    # One seed tests nothing: what is reported is a number for each arm.
    test="welch",
    cost_cap=CostCap(seconds=691200.0),
)
steps = [reported("10m", trained, SEEDS)]
