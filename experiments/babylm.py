"""What the two forms of exp007 share: which text, how many words, what is reported beside the published baselines."""

from __future__ import annotations

from pathlib import Path

from marin.data.documents import read_texts, train_files
from marin.errors import DataError
from marin.graph import Context, Result
from marin.recipe.evaluation import FolderSet
from marin.recipe.schema import FilesDataset
from marin.reporting.experiment import Plot, Report

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
