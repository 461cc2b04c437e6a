"""From a base model to one that answers: do packed conversations that see each other hurt?

Question. A small Llama that has read two books is fine-tuned on 175 instructions that people wrote. Is its loss on what held-out
assistants say lower when packed conversations do not attend to each other?

Hypothesis. It changes by less than 0.05 nats a token: a model of this size mostly ignores what stands far before.

Regime. A Llama of half a million numbers, 300 train steps on books, then a phase of 60 on conversations, of which only what the
assistant says is learned; chat template ChatML, exported with the model; three seeds. Minutes on two idle cores.

Metrics. Held-out loss of the assistant's words (nats a token), lower is better.

Definition of done. Both arms are evaluated with every seed on the same held-out conversations; one table, one plot; the model is
exported, served by `marin serve` and asked (docs/lab.md); each run passes `marin verify`.

Issue. docs/lab.md
"""

from msgspec.structs import replace

from experiments.defaults import (
    default_corpus,
    default_eval,
    default_export,
    default_sft,
    default_tokenize,
    default_train,
)
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.schema import Evaluation, FilesDataset, Model, Optimizer, Trainer
from marin.reporting.experiment import Plot, Report

SEEDS = (1, 2, 3)
MODEL = Model(hidden_dim=64, intermediate_dim=176, num_layers=4, num_heads=4, num_kv_heads=4, seq_len=256)
TEMPLATE = """\
{%- for message in messages %}
{{- '<|im_start|>' + message['role'] + '\\n' }}
{%- if message['role'] == 'assistant' %}{% generation %}{{ message['content'] + '<|im_end|>' }}{% endgeneration %}
{%- else %}{{ message['content'] + '<|im_end|>' }}{% endif %}
{{- '\\n' }}
{%- endfor %}
{%- if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"""
"""ChatML; what the assistant says is marked as transformers has it."""
BOOKS = FilesDataset(name="babylm_sample", globs=("data/babylm_sample/train/*.train",), split="lines")
CHATS = ("data/instructions/seed_tasks.jsonl",)
ARMS = {"apart": "isolated", "packed": None}


def report(context: Context) -> Result:
    """One row for each fine-tuned run; the mean of each arm."""
    rows, series = [], dict[str, list[tuple[float, float]]]()
    for place, arm in enumerate(context.config["arms"]):
        for seed in context.config["seeds"]:
            numbers = context.inputs[f"{arm}-seed{seed}"]
            rows.append((arm, seed, numbers.metrics["loss"], numbers.run))
            series.setdefault(arm, []).append((float(place), numbers.metrics["loss"]))
    means = {arm: sum(loss for _, loss in points) / len(points) for arm, points in series.items()}
    Report(
        title="Fine-tuning on conversations",
        question="Does it hurt when packed conversations see each other?",
        findings=[
            *(f"mean held-out loss of what the assistant says, {arm}: {mean:.4f}" for arm, mean in means.items()),
            f"exported, to be served: run {context.inputs['export'].run}",
        ],
        columns=("arm", "seed", "loss", "run"),
        rows=rows,
        plot=Plot("Held-out loss of the assistant's words", "arm", "loss (nats a token)", series),
    ).write(context.out)
    return Result(kind="report", value=means, metrics={f"loss.{arm}": mean for arm, mean in means.items()})


tokens = default_tokenize("babylm_sample-bpe2048", default_corpus(BOOKS.name, BOOKS), vocab_size=2048)
measure = Evaluation(batch_size=16, max_sequences=64, minimal_pairs=0)
tuned: dict[str, Step] = {}
numbers: dict[str, Step] = {}
for seed in SEEDS:
    base = default_train(
        f"chat-base-seed{seed}",
        tokens,
        model=MODEL,
        order=None,
        seed=seed,
        trainer=Trainer(num_steps=300, batch_size=8, steps_per_segment=100),
        optimizer=Optimizer(learning_rate=3e-3, warmup_steps=30),
    )
    for arm, packing in ARMS.items():
        name = f"{arm}-seed{seed}"
        tuned[name] = default_sft(
            f"chat-{name}",
            base,
            globs=CHATS,
            chat_template=TEMPLATE,
            trainer=replace(base.config.trainer, num_steps=60, steps_per_segment=30, packing=packing),
            optimizer=Optimizer(learning_rate=1e-3, warmup_steps=6),
        )
        numbers[name] = default_eval(tuned[name], measure)
experiment = Registration(
    name="exp009_chat",
    question="Is the held-out loss of what assistants say lower when packed conversations do not attend to each other?",
    hypothesis="It changes by less than 0.05 nats a token.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={arm: numbers[f"{arm}-seed{SEEDS[0]}"].config for arm in ARMS},
    baseline="packed",
    seeds=SEEDS,
    test="welch",
    cost_cap=CostCap(seconds=7200.0),
)
steps = [
    Step(
        "report/chat",
        report,
        {"arms": list(ARMS), "seeds": SEEDS},
        numbers | {"export": default_export(tuned[f"apart-seed{SEEDS[0]}"])},
    )
]
