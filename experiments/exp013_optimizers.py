"""Do Muon, MuonH and AdamH end lower than AdamW at equal FLOPs, and a mixture of experts lower than a dense model?

Question. Four optimizers train one dense model of a million numbers on the same tokens, each at the learning rate that
exp013_rates.py found for it. Two of them train a mixture of experts too, which has as many numbers for each token. How far
are the held-out losses from that of AdamW?

Hypothesis. Muon and MuonH end below AdamW after 1.19 times their train steps (``adamw-119``), which is the lower end of
the published ratios (1.19 to 1.33 times as fast to a loss; ``adamw-133`` is the upper end). Each mixture ends below the
dense model of its optimizer.

Regime. A Llama of a million numbers and a Mixtral with eight experts, two for each token, of half the inner width; 200
train steps of 256 tokens, half of them books and half a grammar, under profile exact; three seeds. It is the beginning of a
training that is compared: each run sees 51,200 tokens. FLOPs are those of the
model (`marin train --dry-run`): what an optimizer computes for itself is not in them, nor what a mixture executes for
experts that a token does not go to.

Metrics. Held-out loss (nats a token), lower is better, with 95% intervals over seeds.

Definition of done. Eight ways to train, three seeds each, are evaluated on the same held-out text; one table has every run,
one plot the learning curves; the report says for every optimizer whether its rate is the one that the search found, and
whether it ends below ``adamw-119`` and below ``adamw-133``. RATES is what exp013_rates.py found, and was written here before
this file was registered; that of MuonH is the largest of its three, at the edge of what was searched. exp013_10m.py asks the
same of a model of ten million.

Issue. docs/exact.md
"""

import json
import statistics

from msgspec.structs import replace

from experiments.exp011_exact_bits import curve, interval
from experiments.exp013_rates import DENSE, STEPS, measured, optimizer, searched
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import Model
from marin.reporting.experiment import Plot, Report

SEEDS = (21, 22, 23)
RATES = {"adamw": 6e-3, "muon": 2e-2, "muonh": 6e-2, "adamh": 2e-2}
LONGER = {"adamw-119": 1.19, "adamw-133": 1.33}
"""Arms in which AdamW has so many times the train steps of the others: the ends of the published ratios."""
SMOOTHED = 10


def sparse(dense: Model) -> Model:
    """A mixture that has for each token as many numbers as ``dense``, and the router's beside them."""
    return replace(
        dense,
        architecture="mixtral",
        intermediate_dim=dense.intermediate_dim // 2,
        num_experts=8,
        num_experts_per_tok=2,
        router_aux_loss_coef=0.01,
        router_z_loss_coef=0.001,
    )


def arms_of(
    dense: Model, name: str, *, steps: int = STEPS, seeds: tuple[int, ...] = SEEDS, mixtures: bool = True
) -> dict[str, dict[int, Step]]:
    """Every way to train, by arm and seed; ``steps``: of every arm but the longer ones."""
    ways = {rule: (dense, rule, steps) for rule in RATES}
    ways |= {arm: (dense, "adamw", round(times * steps)) for arm, times in LONGER.items()}
    if mixtures:
        ways |= {f"sparse-{rule}": (sparse(dense), rule, steps) for rule in ("adamw", "muonh")}
    return {
        arm: {
            seed: measured(f"{name}-{arm}-seed{seed}", model, optimizer(rule, RATES[rule]), seed, length)
            for seed in seeds
        }
        for arm, (model, rule, length) in ways.items()
    }


def report(context: Context) -> Result:
    """One row for each run; means of the arms, and of their differences from AdamW with the same seed."""
    found = json.loads((context.inputs["rates"].path / "rates.json").read_text("utf-8"))
    seeds, arms = context.config["seeds"], context.config["arms"]
    rows, losses, curves = [], {}, {}
    for arm in arms:
        ended = [context.inputs[f"{arm}-seed{seed}"] for seed in seeds]
        trained = [context.inputs[f"{arm}-seed{seed}-train"].tables["loss"]().splitlines()[1:] for seed in seeds]
        losses[arm] = [one.metrics["loss"] for one in ended]
        lines = [[float(line.split(",")[1]) for line in table] for table in trained]
        curves[arm] = curve(lines, context.config["smoothed"])
        rows += [(arm, seed, one.metrics["loss"], one.run) for seed, one in zip(seeds, ended, strict=True)]
    means = {arm: statistics.fmean(values) for arm, values in losses.items()}
    apart = {
        arm: interval([one - other for one, other in zip(values, losses["adamw"], strict=True)])
        for arm, values in losses.items()
    }
    faster = {
        longer: [arm for arm in ("muon", "muonh", "adamh") if means[arm] < means[longer]]
        for longer in context.config["longer"]
    }
    pairs = [(arm, arm.removeprefix("sparse-")) for arm in arms if arm.startswith("sparse-")]
    Report(
        title=f"Four optimizers at equal FLOPs, {context.config['size']}",
        question="How far are held-out losses from that of AdamW?",
        findings=[
            *(f"{arm}: {interval(values)}; less AdamW's, seed by seed: {apart[arm]}" for arm, values in losses.items()),
            *(
                f"below AdamW after {times} times the train steps: {', '.join(faster[longer]) or 'none'}"
                for longer, times in context.config["longer"].items()
            ),
            *(f"{one} below {other}: {'yes' if means[one] < means[other] else 'no'}" for one, other in pairs),
            *(
                f"{rule}: the rate {rate:g} is {'' if found[rule] == rate else 'NOT '}that of the search"
                for rule, rate in context.config["rates"].items()
            ),
        ],
        columns=("arm", "seed", "loss", "run"),
        rows=rows,
        plot=Plot("Training loss, mean over seeds", "train step", "loss (nats a token)", curves),
    ).write(context.out)
    return Result(kind="report", value=means, metrics={f"loss.{arm}": mean for arm, mean in means.items()})


def reported(size: str, arms: dict[str, dict[int, Step]], seeds: tuple[int, ...] = SEEDS) -> Step:
    """The report of an experiment on ``arms``."""
    inputs = {"rates": searched}
    for arm, runs in arms.items():
        for seed, step in runs.items():
            trained = step.inputs["train"]
            assert isinstance(trained, Step), "default_eval takes a training"
            inputs |= {f"{arm}-seed{seed}": step, f"{arm}-seed{seed}-train": trained}
    config = {"size": size, "arms": list(arms), "seeds": seeds, "rates": RATES, "longer": LONGER, "smoothed": SMOOTHED}
    return Step(f"report/optimizers-{size}", report, config, inputs)


trained = arms_of(DENSE, "1m")
experiment = Registration(
    name="exp013_optimizers",
    question="How far are held-out losses of Muon, MuonH, AdamH and mixtures of experts from AdamW's, at equal FLOPs and 1M?",
    hypothesis=(
        "Muon and MuonH end below AdamW after 1.19 times their train steps; each mixture ends below the dense model of its "
        "optimizer at equal active parameters."
    ),
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={arm: seeds[SEEDS[0]].config for arm, seeds in trained.items()},
    baseline="adamw",
    seeds=SEEDS,
    # Three pairs can show nothing by their signs; the report has the differences seed by seed, with intervals.
    test="welch",
    cost_cap=CostCap(seconds=172800.0),
)
steps = [reported("1m", trained)]
