"""What does the loss of a model that was not trained yet follow from: its size, and the text that it reads?

Question. Is the held-out loss of small models on text from a grammar a law of parameters N and tokens D,
L = E + A / N**alpha + B / D**beta, and with what uncertainty are its five numbers known?

Hypothesis. The law is within 3% of the mean loss of every size and length; alpha and beta are above zero with their whole
95% intervals.

Regime. Llamas of four sizes, 0.06 to 0.44 million numbers, each trained for 100, 200 and 400 train steps of 512 tokens with three
seeds.

Metrics. Held-out loss (nats a token); the law's greatest error; intervals of alpha and beta.

Definition of done. Thirty-six trainings are evaluated on the same held-out text; the law is fitted as in Hoffmann et al. 2022
(approach 3: Huber loss of the logarithm), its intervals come from fits to runs drawn again with replacement; one table has every
run, one plot the law through the means. exp008_held_out.py registers what the law says of a larger model, and trains it then. On
two cores it takes half an hour.

Issue. docs/experiments.md
"""

import itertools
import json
import re
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray
from scipy.optimize import least_squares
from scipy.special import logsumexp

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.cost import parameters
from marin.recipe.schema import Evaluation, GrammarDataset, Model, Optimizer, Trainer
from marin.reporting.experiment import Plot, Report

SEEDS = (1, 2, 3)
VOCABULARY, BATCH, SEQUENCE = 512, 8, 64
SHAPES = {"32x2": (32, 2, 2), "48x2": (48, 2, 3), "64x2": (64, 2, 2), "96x3": (96, 3, 3)}
"""Width, layers and heads."""
LENGTHS = (100, 200, 400)
"""Train steps."""
DRAWS = 200
"""Fits to runs drawn again."""
HUBER = 1e-3
"""Where Huber's loss turns from squares to absolute values, of the logarithm of a loss (Hoffmann et al. 2022)."""
STARTS = tuple(itertools.product((0.0, 5.0), (0.0, 5.0), (-1.0, 0.5), (0.3, 0.8), (0.3, 0.8)))
"""Where a fit begins: log A, log B, log E, alpha, beta. The best end is taken."""

type Numbers = NDArray[np.float64]


@dataclass(frozen=True, slots=True)
class Run:
    """One training: parameters, tokens read, held-out loss in nats a token."""

    size: int
    tokens: int
    loss: float


def model(width: int, layers: int, heads: int) -> Model:
    """A Llama whose feed-forward layers are 2.75 times as wide as the others."""
    return Model(
        hidden_dim=width,
        intermediate_dim=width * 11 // 4,
        num_layers=layers,
        num_heads=heads,
        num_kv_heads=heads,
        seq_len=SEQUENCE,
    )


def logarithm(law: Numbers, size: Numbers, tokens: Numbers) -> Numbers:
    """Log of the loss that ``law`` (log A, log B, log E, alpha, beta) gives."""
    a, b, e, alpha, beta = law
    parts = np.stack([a - alpha * np.log(size), b - beta * np.log(tokens), np.full(size.shape, e)])
    found: Numbers = logsumexp(parts, axis=0)
    return found


def fit(runs: list[Run], starts: tuple[tuple[float, ...], ...] = STARTS) -> Numbers:
    """The law that is nearest to ``runs``."""
    size, tokens, loss = (np.array([getattr(run, name) for run in runs], float) for name in ("size", "tokens", "loss"))

    def residuals(law: Numbers) -> Numbers:
        return logarithm(law, size, tokens) - np.log(loss)

    ends = [least_squares(residuals, start, loss="huber", f_scale=HUBER) for start in starts]
    law: Numbers = min(ends, key=lambda end: float(end.cost)).x
    return law


def called(seed: int, size: int, tokens: int) -> str:
    """The name of an input; :func:`said` reads it."""
    return f"seed{seed}-{size}-{tokens}"


def said(name: str) -> tuple[int, int, int]:
    """Seed, parameters and tokens of an input."""
    seed, size, tokens = map(int, re.findall(r"\d+", name))
    return seed, size, tokens


def interval(values: list[float]) -> tuple[float, float]:
    """The middle 95%."""
    low, high = np.quantile(values, (0.025, 0.975))
    return float(low), float(high)


def law(context: Context) -> Result:
    """The law of all runs, and what it says of ``context.config["held_out"]``: the mean loss of so many seeds, with the interval
    that follows from runs drawn again and from how far single runs lie from the law."""
    runs = [
        Run(size, tokens, context.inputs[name].metrics["loss"])
        for name in context.inputs
        for _, size, tokens in [said(name)]
    ]
    best, wanted = fit(runs), context.config["held_out"]
    sizes, tokens = (np.array([getattr(run, name) for run in runs], float) for name in ("size", "tokens"))
    apart = np.log([run.loss for run in runs]) - logarithm(best, sizes, tokens)
    draw = np.random.default_rng(context.config["seed"])
    asked = (np.array([wanted["parameters"]], float), np.array([wanted["tokens"]], float))
    alphas, betas, losses = [], [], []
    for _ in range(context.config["draws"]):
        again = fit([runs[i] for i in draw.integers(len(runs), size=len(runs))], (tuple(best),))
        alphas.append(float(again[3]))
        betas.append(float(again[4]))
        noise = draw.choice(apart, wanted["seeds"]).mean()
        losses.append(float(np.exp(logarithm(again, *asked)[0] + noise)))
    low, high = interval(losses)
    value = {
        **dict(zip(("A", "B", "E"), map(float, np.exp(best[:3])), strict=True)),
        "alpha": float(best[3]),
        "beta": float(best[4]),
        "prediction": float(np.exp(logarithm(best, *asked)[0])),
        "low": low,
        "high": high,
    }
    intervals = {"alpha_interval": interval(alphas), "beta_interval": interval(betas)}
    (context.out / "law.json").write_text(json.dumps(value | intervals, indent=2) + "\n", encoding="utf-8")
    return Result(kind="law", value=value | intervals, metrics=value)


def report(context: Context) -> Result:
    """One row for each run; the law through the means."""
    fitted = json.loads((context.inputs["law"].path / "law.json").read_text("utf-8"))
    numbers = {name: one for name, one in context.inputs.items() if name != "law"}
    rows = []
    for name, one in numbers.items():
        seed, size, tokens = said(name)
        rows.append((size, tokens, seed, one.metrics["loss"], one.run))
    rows.sort()
    cells = sorted({row[:2] for row in rows})
    means = {cell: float(np.mean([row[3] for row in rows if row[:2] == cell])) for cell in cells}
    drawn = {
        (size, tokens): fitted["E"] + fitted["A"] / size ** fitted["alpha"] + fitted["B"] / tokens ** fitted["beta"]
        for size, tokens in cells
    }
    worst = max(abs(drawn[cell] / mean - 1) for cell, mean in means.items())
    (alow, ahigh), (blow, bhigh) = fitted["alpha_interval"], fitted["beta_interval"]
    sizes = sorted({size for size, _ in cells})
    Report(
        title="Loss, parameters and tokens on text from a grammar",
        question="Is held-out loss a law of parameters and tokens?",
        findings=[
            f"L = {fitted['E']:.4f} + {fitted['A']:.4g} / N^{fitted['alpha']:.3f} + {fitted['B']:.4g} / D^{fitted['beta']:.3f}",
            f"alpha {fitted['alpha']:.3f} ({alow:.3f} to {ahigh:.3f}), beta {fitted['beta']:.3f} ({blow:.3f} to {bhigh:.3f})",
            f"greatest error of the law against a mean of seeds: {worst:.2%}",
            f"of the larger model of exp008_held_out.py it says {fitted['prediction']:.4f} "
            f"({fitted['low']:.4f} to {fitted['high']:.4f})",
        ],
        columns=("parameters", "tokens", "seed", "loss", "run"),
        rows=rows,
        plot=Plot(
            "Held-out loss over tokens: means of seeds, and the law",
            "tokens",
            "loss (nats a token)",
            {
                f"{size:,}{kind}": [(float(tokens), of[size, tokens]) for n, tokens in cells if n == size]
                for size in sizes
                for kind, of in (("", means), (", law", drawn))
            },
            log_x=True,
        ),
    ).write(context.out)
    holds = worst < 0.03 and alow > 0 and blow > 0
    return Result(kind="report", value={"holds": holds}, metrics={"worst": worst})


corpus = default_corpus("grammar-2MB", GrammarDataset(train_bytes=2_000_000, validation_bytes=60_000, minimal_pairs=60))
tokens = default_tokenize("grammar-2MB-bpe512", corpus, vocab_size=VOCABULARY)
measure = Evaluation(batch_size=16, max_sequences=128, minimal_pairs=60)


def measured(name: str, shape: Model, steps: int, seed: int) -> Step:
    """One training, evaluated."""
    return default_eval(
        default_train(
            name,
            tokens,
            model=shape,
            order=None,
            seed=seed,
            trainer=Trainer(num_steps=steps, batch_size=BATCH, steps_per_segment=100),
            optimizer=Optimizer(learning_rate=6e-3, warmup_steps=20),
        ),
        measure,
    )


HELD_OUT = model(128, 4, 4)
HELD_OUT_STEPS = 800
arms: dict[str, dict[int, Step]] = {}
numbers: dict[str, Step] = {}
for shape, form in SHAPES.items():
    for length in LENGTHS:
        found = {seed: measured(f"{shape}-{length}-seed{seed}", model(*form), length, seed) for seed in SEEDS}
        size, read = parameters(model(*form), VOCABULARY), length * BATCH * SEQUENCE
        arms[f"{shape}-{length}"] = found
        numbers |= {called(seed, size, read): step for seed, step in found.items()}
fitted = Step(
    "law/scaling",
    law,
    {
        "draws": DRAWS,
        "seed": 0,
        "held_out": {
            "parameters": parameters(HELD_OUT, VOCABULARY),
            "tokens": HELD_OUT_STEPS * BATCH * SEQUENCE,
            "seeds": len(SEEDS),
        },
    },
    numbers,
)
experiment = Registration(
    name="exp008_scaling",
    question="Is held-out loss on text from a grammar a law of parameters and tokens, and how well are its exponents known?",
    hypothesis=(
        "L = E + A / N**alpha + B / D**beta is within 3% of the mean loss of every size and length; alpha and beta are above "
        "zero with their whole 95% intervals."
    ),
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={name: seeds[SEEDS[0]].config for name, seeds in arms.items()},
    baseline="32x2-100",
    seeds=SEEDS,
    test="welch",
    cost_cap=CostCap(seconds=7200.0),
)
steps = [Step("report/scaling", report, {}, {"law": fitted, **numbers})]
