"""Does a model of a million parameters that knows some sums learn, from rewards alone, to say them?

Question. In the texts that a small Llama was trained on, half of the sums of two digits have their answer, the others the word
no. Does GRPO, which rewards the right answer and nothing else, make it answer, and rightly?

Hypothesis. The mean reward of the last ten of 50 updates is above that of the first ten by more than 0.2, with every seed.

Regime. A Llama of a million parameters under profile exact: 600 train steps on sums of two digits, then a phase of 50 updates
with 8 prompts and 8 completions each, of at most 4 tokens. Two seeds. The phase takes at most 15 minutes on two idle cores.

Three forms before it were run with one seed each and did not show it (bench/RESULTS.md): of numbers below 50 the model knew half
of the sums or fewer, and what it did not know no reward could say. The form was chosen with seed 9, which is no seed of it.

Metrics. The mean reward of each update is a curve of the run: rl/reward in MLflow, and on its page, with completions of the first
and of the last update. Registered is the held-out loss (nats a token) on sums with right answers, lower is better; it has the
tokens of the prompts too, which no reward holds where they are.

Definition of done. Both arms are evaluated with every seed on the same text; each run passes `marin verify` with six PASS, the
second seed's on another number of devices than trained it. All of it:

    marin experiment register experiments/exp014_sums.py
    marin run experiments/exp014_sums.py
    marin verify RUN --devices 2 --experiment experiments/exp014_sums.py

and `marin run experiments/exp014_sums.py --sanity-only` for two updates of it.

Issue. docs/rl.md
"""

import json

from experiments.defaults import default_continue, default_eval, default_tokenize, default_train
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.arithmetic import EXACT
from marin.recipe.schema import Evaluation, Model, Objective, Optimizer, Trainer
from marin.reporting.experiment import Plot, Report

SEEDS = (1, 2)
BELOW = 10
"""Both numbers of a sum are less, as in the shipped prompts ``digits``."""
MODEL = Model(hidden_dim=128, intermediate_dim=352, num_layers=4, num_heads=4, num_kv_heads=4, seq_len=16)
OBJECTIVE = Objective(prompts="digits", reward="exact_match", num_generations=8, max_completion_length=4)


def sums(context: Context) -> Result:
    """Texts of one sum each: of the train split half without an answer, as it is drawn; of the validation split none."""
    draw = context.random()
    for split, count in (("train", context.config["train"]), ("validation", context.config["validation"])):
        lines = []
        for number in range(count):
            one, other = draw.randrange(context.config["below"]), draw.randrange(context.config["below"])
            answer = "no" if split == "train" and draw.random() < 0.5 else str(one + other)
            said = {"id": f"{split}-{number}", "text": f"{one}+{other}={answer}", "source": "sums", "metadata": {}}
            lines.append(json.dumps(said))
        (context.out / f"{split}.jsonl").write_text("\n".join(lines) + "\n", "utf-8")
    return Result(kind="corpus")


def report(context: Context) -> Result:
    """One row for each run; the mean of each arm."""
    rows, series = [], dict[str, list[tuple[float, float]]]()
    for place, arm in enumerate(context.config["arms"]):
        for seed in context.config["seeds"]:
            numbers = context.inputs[f"{arm}-seed{seed}"]
            rows.append((arm, seed, numbers.metrics["loss"], numbers.run))
            series.setdefault(arm, []).append((float(place), numbers.metrics["loss"]))
    means = {arm: sum(loss for _, loss in points) / len(points) for arm, points in series.items()}
    Report(
        title="Sums, learned from rewards",
        question="Does GRPO make a model answer that knows the answers?",
        findings=[
            *(f"mean loss on sums with right answers, {arm}: {mean:.4f}" for arm, mean in means.items()),
            "rewards: `marin show RUN` has them segment by segment, MLflow each update's (rl/reward)",
        ],
        columns=("arm", "seed", "loss", "run"),
        rows=rows,
        plot=Plot(
            "Loss on sums with right answers",
            "arm (0: trained on texts, 1: on rewards too)",
            "loss (nats a token)",
            series,
        ),
    ).write(context.out)
    return Result(kind="report", value=means, metrics={f"loss.{arm}": mean for arm, mean in means.items()})


texts = Step("corpus/exp014", sums, {"train": 20_000, "validation": 500, "below": BELOW, "seed": 1})
tokens = default_tokenize("exp014-bpe267", texts, vocab_size=267)
measure = Evaluation(batch_size=16, max_sequences=128, minimal_pairs=0)
numbers: dict[str, Step] = {}
for seed in SEEDS:
    base = default_train(
        f"exp014-sft-seed{seed}",
        tokens,
        model=MODEL,
        seed=seed,
        trainer=Trainer(num_steps=600, batch_size=32, steps_per_segment=100),
        optimizer=Optimizer(learning_rate=3e-3, warmup_steps=40),
        arithmetic=EXACT,
    )
    rewarded = default_continue(
        f"exp014-grpo-seed{seed}",
        base,
        trainer=Trainer(num_steps=50, batch_size=64, steps_per_segment=10),
        optimizer=Optimizer(learning_rate=5e-4, warmup_steps=0),
        arithmetic=EXACT,
        objective=OBJECTIVE,
    )
    numbers |= {
        f"{arm}-seed{seed}": default_eval(step, measure) for arm, step in {"sft": base, "grpo": rewarded}.items()
    }
experiment = Registration(
    name="exp014_sums",
    question="Does GRPO make a model answer sums, half of which it was trained not to answer?",
    hypothesis="The mean reward of the last ten of 50 updates is above that of the first ten by more than 0.2, with every seed; "
    "the held-out loss of sums with right answers is lower after them.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={arm: numbers[f"{arm}-seed{SEEDS[0]}"].config for arm in ("sft", "grpo")},
    baseline="sft",
    seeds=SEEDS,
    test="welch",
    cost_cap=CostCap(seconds=7200.0),
)
steps = [Step("report/sums", report, {"arms": ["sft", "grpo"], "seeds": SEEDS}, numbers)]
