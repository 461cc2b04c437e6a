"""Is a model that is larger, and trained for longer, where the law of smaller ones said that it would be?

Question. exp008_scaling.py fits a law to models of up to 0.43 million numbers and 205 thousand tokens. Is the mean held-out
loss of a model of 0.94 million numbers after 410 thousand tokens in the interval that the law gave before it was trained?

Hypothesis. The mean over three seeds is between 1.8020 and 1.9581 nats a token, 95% of what the law says of it (1.8905 at best).

Regime. A Llama of 0.94 million numbers, 800 train steps of 512 tokens, three seeds: twice the largest size and twice the longest
training of what was fitted. Beside it the same at half of the steps, which the law reaches by its size alone.

Metrics. Held-out loss (nats a token), and how far it is from the prediction.

Definition of done. Three trainings of each length are evaluated on the text of exp008_scaling.py; one table has each beside the
prediction, one plot the predicted and the measured loss. Registered when the law was known and none of these trainings was
begun: the log has the order. On two cores it takes a quarter of an hour.

Issue. docs/experiments.md
"""

import json

import numpy as np

from experiments.exp008_scaling import HELD_OUT, HELD_OUT_STEPS, fitted, measured
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.reporting.experiment import Plot, Report

SEEDS = (4, 5, 6)
PREDICTED = {"prediction": 1.8905, "low": 1.8020, "high": 1.9581}
"""What the law said, as it was registered."""


def report(context: Context) -> Result:
    """One row for each seed, beside what was predicted."""
    law = json.loads((context.inputs["law"].path / "law.json").read_text("utf-8"))
    predicted = context.config["predicted"]
    same = all(abs(law[name] - value) < 5e-5 for name, value in predicted.items())
    found = {name: one for name, one in context.inputs.items() if name.startswith("seed")}
    losses = [one.metrics["loss"] for one in found.values()]
    mean = float(np.mean(losses))
    inside = predicted["low"] <= mean <= predicted["high"]
    Report(
        title="A larger model, beside what the law said of it",
        question="Is its held-out loss where the law of smaller models said?",
        findings=[
            f"predicted {predicted['prediction']:.4f} ({predicted['low']:.4f} to {predicted['high']:.4f}), measured {mean:.4f}",
            f"the law was wrong by {mean / predicted['prediction'] - 1:+.2%}",
            f"inside of its interval: {'yes' if inside else 'no'}",
            f"the prediction is that of the law's step here: {'yes' if same else 'NO'}",
        ],
        columns=("seed", "loss", "less the prediction", "run"),
        rows=[
            (name.removeprefix("seed"), one.metrics["loss"], one.metrics["loss"] - predicted["prediction"], one.run)
            for name, one in found.items()
        ],
        plot=Plot(
            "Held-out loss of three seeds, and what was predicted",
            "seed",
            "loss (nats a token)",
            {
                "measured": [(float(seed), loss) for seed, loss in zip(context.config["seeds"], losses, strict=True)],
                **{
                    name: [(float(seed), value) for seed in context.config["seeds"]]
                    for name, value in predicted.items()
                },
            },
        ),
    ).write(context.out)
    return Result(
        kind="report", value={"inside": inside}, metrics={"mean": mean, "error": mean / predicted["prediction"] - 1}
    )


numbers = {f"seed{seed}": measured(f"held-out-seed{seed}", HELD_OUT, HELD_OUT_STEPS, seed) for seed in SEEDS}
halves = {
    f"half-seed{seed}": measured(f"held-out-half-seed{seed}", HELD_OUT, HELD_OUT_STEPS // 2, seed) for seed in SEEDS
}
experiment = Registration(
    name="exp008_held_out",
    question="Is the mean held-out loss of a larger model in the interval that the law of smaller models gave before?",
    hypothesis="The mean over three seeds is between 1.8020 and 1.9581 nats a token; 1.8905 is the law's best guess.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={"half": halves["half-seed4"].config, "larger": numbers["seed4"].config},
    baseline="half",
    seeds=SEEDS,
    test="welch",
    cost_cap=CostCap(seconds=7200.0),
)
steps = [
    Step("report/held-out", report, {"predicted": PREDICTED, "seeds": SEEDS}, {"law": fitted, **numbers, **halves})
]
