"""The numbers that the steps of the pipeline end with, by name: what a search can go by, known before anything is trained."""

from __future__ import annotations

from marin.errors import UsageError
from marin.recipe.form.nearest import nearest

METRICS = {
    "corpus": (
        "minimal_pairs",
        "skipped_lines",
        "train_bytes",
        "train_documents",
        "validation_bytes",
        "validation_documents",
    ),
    "tokenizer": ("bytes_per_token", "vocab_size"),
    "tokens": ("train_documents", "train_tokens", "validation_documents", "validation_tokens"),
    "train": ("loss_first", "loss_last", "tokens"),
    "evaluate": ("loss", "pairs", "pairs_tied", "pairs_won", "perplexity", "tokens"),
}
"""``skipped_lines`` only where lines were skipped, ``pairs`` only where there are minimal pairs."""


def check_metric(name: str) -> None:
    """Refuse the name of a number that no step ends with.

    Raises:
        UsageError: it is not one.
    """
    known = [f"{step}.{metric}" for step, metrics in METRICS.items() for metric in metrics]
    if name in known:
        return
    near = nearest(name, known)
    raise UsageError(
        "no step ends with such a number",
        where="--metric",
        expected=", ".join(f"evaluate.{metric}" for metric in METRICS["evaluate"]) + ", train.loss_last",
        found=repr(name[:100]),
        cure=f"did you mean {near}?" if near else "name one of them",
    )
