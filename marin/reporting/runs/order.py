"""The order in which a run saw its data, on one page: how many sequences and passes, and the digest of every batch.

The digests are those that training recorded. Order and batches follow from recipe and token cache alone
(``marin/training/data.py``), so anyone can find them again; `marin verify` does.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator

from marin.history.run import Run
from marin.reporting.template import copying, render


def order_digest(run: Run) -> str:
    """One digest for all batches of the run in their order: sha256 over the recorded digests, a line each."""
    return "sha256:" + hashlib.sha256("".join(f"{batch}\n" for _, batch in batches(run)).encode()).hexdigest()


def batches(run: Run) -> Iterator[tuple[int, str]]:
    """Train step and digest of its batch, in order; where a segment was told twice, the later record stands."""
    found = {fact.body.start + place: batch for fact in run.segments for place, batch in enumerate(fact.body.batches)}
    yield from sorted(found.items())


def order_page(run: Run, origin: str) -> bytes:
    """The page as bytes that are the same for the same events."""
    tokens = run.steps.get("tokens")
    known = dict(batches(run))
    return render(
        "runs/order.html.j2",
        scripts=[copying()],
        run=run,
        origin=origin,
        completions=run.started.body.recipe.get("objective") is not None,
        facts=list(_facts(run, len(known), int(tokens.metrics.get("train_tokens", 0)) if tokens else 0)),
        segments=[
            (part.start, part.end, [(step, known[step]) for step in range(part.start, part.end) if step in known])
            for part in (fact.body for fact in run.segments)
        ],
    )


def _facts(run: Run, steps: int, tokens: int) -> Iterator[tuple[str, str | int]]:
    if run.started.body.recipe.get("objective") is not None:
        yield from _of_completions(run, steps)
        return
    trainer, model = run.started.body.recipe.get("trainer", {}), run.started.body.recipe.get("model", {})
    batch, length = trainer.get("batch_size"), model.get("seq_len")
    yield "train steps recorded", steps
    if isinstance(batch, int) and isinstance(length, int):
        yield "sequences seen", f"{steps * batch:,} of {length} tokens, {batch} a train step"
        yield "tokens seen", f"{steps * batch * length:,}"
        if tokens // length:
            yield "sequences in the train split", f"{tokens // length:,} ({tokens:,} tokens)"
            yield "passes over the data", f"{steps * batch / (tokens // length):.3f}"
    yield "seed of the order", str(run.started.body.recipe.get("seed", ""))
    kind = run.started.body.recipe.get("order") or "Levanter's Feistel network"
    yield "order", f"a new permutation of all sequences for each pass, keyed by the seed: {kind}"
    yield "all batches", order_digest(run)
    if (made := run.steps.get("tokens")) is not None:
        yield "token cache", made.output.digest


def _of_completions(run: Run, steps: int) -> Iterator[tuple[str, str | int]]:
    recipe = run.started.body.recipe
    yield "train steps recorded", steps
    yield "completions of a train step", recipe.get("trainer", {}).get("batch_size", "")
    yield "seed of the order", str(recipe.get("seed", ""))
    yield "order", f"a new permutation of all prompts for each pass, keyed by the seed: {recipe.get('order')}"
    yield "all batches", order_digest(run)
