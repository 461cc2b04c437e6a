"""What does a small model learn from ten epochs of children's books, on a processor, by BabyLM's rules?

Question. Trained for ten epochs on the same 100,000 words, is a Llama or a GPT-2 of a quarter of a million numbers (beside its
embeddings) better on held-out text?

Hypothesis. The Llama has the lower held-out loss with every seed, by more than 0.02 nats a token. Both stay near chance on
BLiMP: the baselines of the challenge have seen a thousand times as much text.

Regime. BabyLM's strict-small track allows 10 million words and ten epochs of one's own text. Two books in the public domain that
ship with the repository (or the challenge's corpus, where it was fetched: then take exp007_babylm.py), a byte-level BPE of
4,096 tokens, two architectures, two seeds, a state by every 100,000 words. On two idle cores it takes half an hour.

Metrics. Held-out loss (nats a token), lower is better. Beside it: bits a byte of each dev file on the way, BLiMP by `marin eval`.

Definition of done. Four trainings are evaluated on the same held-out text; one table has words, loss and run; BLiMP of the
best stands in bench/RESULTS.md beside the published baselines, whatever it is; each run passes `marin verify`.

Issue. docs/babylm.md
"""

from pathlib import Path

from msgspec.structs import replace

from experiments.defaults import default_corpus, default_eval, default_tokenize, default_train
from marin.data.documents import read_texts, train_files
from marin.errors import DataError
from marin.graph import Context, Result, Step
from marin.preregistration.registration import CostCap, Metric, Registration
from marin.recipe.evaluation import FolderSet
from marin.recipe.schema import Evaluation, FilesDataset, Model, Optimizer, Trainer
from marin.reporting.experiment import Plot, Report

SEEDS = (1, 2)
LLAMA = Model(hidden_dim=64, intermediate_dim=176, num_layers=4, num_heads=4, num_kv_heads=4, seq_len=128)
MODELS = {"llama": LLAMA, "gpt2": replace(LLAMA, architecture="gpt2", intermediate_dim=256, tie_word_embeddings=True)}
TRAINER = Trainer(
    num_steps=650,
    batch_size=16,
    steps_per_segment=65,
    states_at_words=tuple(range(10**5, 10**6, 10**5)),
    most_epochs=10,
)
"""Ten epochs: 133,352 tokens are 65.1 train steps of 2,048."""
OFFICIAL, SAMPLE = Path("babylm_data"), Path("data/babylm_sample")
BASELINES = (("GPT-2 small, strict-small (10M words)", 65.1), ("GPT-2 small, strict (100M words)", 74.5))
"""BLiMP, percent, of the challenge's own causal baselines (docs/babylm.md names the source)."""
CHANCE = 50.0


def text(size: str) -> tuple[FilesDataset, FolderSet]:
    """The corpus of ``size`` (10M or 100M) and its dev files where `marin data fetch babylm` has brought them; otherwise the
    sample that ships with the repository."""
    if (OFFICIAL / f"babylm_{size}").is_dir():
        corpus = FilesDataset(
            name=f"babylm_{size}", globs=(f"{OFFICIAL}/babylm_{size}/*.train",), split="lines", validation_fraction=0.01
        )
        return corpus, FolderSet(path=f"{OFFICIAL}/babylm_dev", split="lines", documents=2000)
    corpus = FilesDataset(
        name="babylm_sample", globs=(f"{SAMPLE}/train/*.train",), split="lines", validation_fraction=0.02
    )
    return corpus, FolderSet(path=f"{SAMPLE}/dev", split="lines")


def words(context: Context) -> Result:
    """Words between white space, of the text that is trained on; no more than the track allows.

    Raises:
        DataError: there are more.
    """
    folder = context.inputs["corpus"].path
    count = sum(len(line.split()) for path in train_files(folder).values() for line in read_texts(path))
    tokens = context.inputs["tokens"].metrics["train_tokens"]
    limit = context.config["limit"]
    if count > limit:
        raise DataError("more words than the track allows", where="the text", expected=f"{limit}", found=f"{count}")
    numbers = {"words": float(count), "tokens_a_word": tokens / count}
    (context.out / "words.txt").write_text(f"{count} words, {tokens / count:.4f} tokens a word\n", encoding="utf-8")
    return Result(kind="count", value=numbers, metrics=numbers)


def report(context: Context) -> Result:
    """One row for each training: words that it has seen, held-out loss."""
    rows, series = [], {}
    for name, seen in context.config["arms"].items():
        numbers, counted = context.inputs[name], context.inputs[f"words-{name}"].metrics
        million = seen / counted["tokens_a_word"] / 1e6
        rows.append((name, round(million, 3), numbers.metrics["loss"], numbers.metrics["perplexity"], numbers.run))
        series[name] = [(million, numbers.metrics["loss"])]
    published = ", ".join(f"{name} {value}" for name, value in BASELINES)
    Report(
        title="BabyLM",
        question=context.config["question"],
        findings=[
            f"text: {context.config['text']}, {context.inputs[f'words-{rows[0][0]}'].metrics['words']:.0f} words",
            f"BLiMP of the challenge's own baselines, percent: {published}; chance {CHANCE:g}. "
            "Evaluate these runs by `marin eval` (docs/babylm.md)",
        ],
        columns=("training", "million words seen", "loss", "perplexity", "run"),
        rows=rows,
        plot=Plot("Held-out loss", "million words seen", "loss (nats a token)", series),
    ).write(context.out)
    return Result(kind="report", value={name: loss for name, _, loss, _, _ in rows})


sample, dev = text("none")
corpus = default_corpus(sample.name, sample)
tokens = default_tokenize(f"{sample.name}-bpe4096", corpus, vocab_size=4096)
counted = Step("words/sample", words, {"limit": 10_000_000}, {"corpus": corpus, "tokens": tokens})
measure = Evaluation(batch_size=16, max_sequences=128, minimal_pairs=0)
numbers = {
    f"{name}-seed{seed}": default_eval(
        default_train(
            f"babylm-{name}-seed{seed}",
            tokens,
            model=model,
            order=None,
            seed=seed,
            trainer=TRAINER,
            optimizer=Optimizer(learning_rate=3e-3, warmup_steps=40),
            evaluation=replace(measure, every=325, sets={"dev": dev}),
        ),
        measure,
    )
    for seed in SEEDS
    for name, model in MODELS.items()
}
seen = TRAINER.num_steps * TRAINER.batch_size * LLAMA.seq_len
experiment = Registration(
    name="exp007_babylm_cpu",
    question="Does a small Llama have a lower held-out loss than a small GPT-2 after ten epochs of 100,000 words?",
    hypothesis="Yes, with every seed, by more than 0.02 nats a token.",
    primary=Metric(name="evaluate.loss", direction="lower"),
    arms={name: numbers[f"{name}-seed{SEEDS[0]}"].config for name in MODELS},
    baseline="gpt2",
    seeds=SEEDS,
    test="welch",
    alternative="one-sided",
    cost_cap=CostCap(seconds=28800.0),
)
steps = [
    Step(
        "report/babylm-cpu",
        report,
        {"arms": dict.fromkeys(numbers, seen), "question": experiment.question, "text": SAMPLE.name},
        numbers | {f"words-{name}": counted for name in numbers},
    )
]
