"""What the evaluation measures, in one compiled program per shape: token log-likelihoods on one device.

Validation loss is the mean negative log-likelihood (nats) of the held-out stream, perplexity its exponential. Minimal
pairs (BLiMP's design: two sentences that differ in one respect, only one of them grammatical) are won when the good
sentence is strictly likelier; a tie counts as neither and is reported, so a constant model scores 0.
"""

from __future__ import annotations

import csv
import io
import json
import logging
from collections import defaultdict
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from itertools import islice
from pathlib import Path

import haliax as hax
import jax
import jax.numpy as jnp
import jax.random as jrandom
import numpy as np
from haliax import Axis
from levanter.models.lm_model import LmExample, LmHeadModel
from levanter.utils.thread_utils import blocking_wait

from marin.data.tokenizer import Tokenizer, open_tokenizer
from marin.errors import DataError
from marin.execution.step import StepResult, Task
from marin.process.cache import compilation_cache
from marin.process.waiting import waiting
from marin.recipe.schema import Recipe, as_recorded
from marin.record.events import EVAL_COMPLETED, EvalCompleted
from marin.training.checkpoints.whole import restore
from marin.training.data import token_dataset
from marin.training.loss import token_losses
from marin.training.model import attention_mask
from marin.training.runtime.compilation import use_compilation_cache
from marin.training.runtime.parts import plain_model
from marin.training.state import named_key
from marin.training.step.compiled import compiled

log = logging.getLogger(__name__)
SAMPLE_TOKENS = 96


@dataclass(frozen=True)
class PairScore:
    """Log-likelihoods (nats) of the two sentences of one minimal pair."""

    phenomenon: str
    pair: str
    good: float
    bad: float


Scorer = Callable[[np.ndarray, np.ndarray], np.ndarray]
"""(int32[batch, length], float32[batch, length]) -> float32[batch]: weighted sums of next-token log-likelihoods."""


def scorer(model: LmHeadModel, recipe: Recipe) -> Scorer:
    """A compiled function of ``model``'s weighted log-likelihoods; compiled once per shape."""

    def score(model: LmHeadModel, tokens: jax.Array, weights: jax.Array) -> jax.Array:
        Batch, Pos = Axis("batch", tokens.shape[0]), Axis("position", tokens.shape[1])
        ids = hax.named(tokens, (Batch, Pos))
        example = LmExample(
            tokens=ids, loss_weight=hax.named(weights, (Batch, Pos)), attn_mask=attention_mask(recipe, ids)
        )
        per_token = token_losses(model, example)
        return -hax.sum(per_token, axis=Pos).array

    program = compiled(recipe, score)
    return lambda tokens, weights: np.asarray(program(model, jnp.asarray(tokens), jnp.asarray(weights)))


def validation_loss(recipe: Recipe, cache: Path, score: Scorer) -> tuple[float, int]:
    """Mean negative log-likelihood in nats over at most ``max_sequences`` sequences, and the tokens it is over.

    Raises:
        DataError: nothing is learned of them.
    """
    dataset, length = token_dataset(cache, recipe.model.seq_len)
    count = min(length, recipe.evaluation.max_sequences)
    size = recipe.evaluation.batch_size
    total, tokens = 0.0, 0
    for start in range(0, count, size):
        examples = blocking_wait(dataset.get_batch(range(start, min(start + size, count))))
        ids = np.zeros((size, recipe.model.seq_len), np.int32)
        weights = np.zeros((size, recipe.model.seq_len), np.float32)
        for row, example in enumerate(examples):
            ids[row] = np.asarray(example.tokens.array)
            weights[row] = np.asarray(example.loss_weight.array)
        total -= sum(float(value) for value in score(ids, weights))
        tokens += int(weights.sum())
    if tokens == 0:
        raise DataError(
            "held-out conversations of which nothing is learned",
            where="validation split",
            expected="something that the assistant says",
            found=f"none in {count} sequences",
            cure="raise evaluation.max_sequences or dataset.validation_fraction",
        )
    return total / tokens, tokens


def read_pairs(path: Path, limit: int) -> list[dict[str, str]]:
    """The first ``limit`` minimal pairs of a JSON-lines file in BLiMP's fields.

    Raises:
        DataError: a line is not such a pair.
    """
    if not path.exists():
        return []
    with path.open("rb") as lines:
        return [
            _pair(line, number, f"{path.name}:{number}") for number, line in enumerate(islice(lines, limit), start=1)
        ]


def _pair(line: bytes, number: int, where: str) -> dict[str, str]:
    try:
        pair = json.loads(line.decode())
    except (ValueError, RecursionError):
        pair = None
    known = pair if isinstance(pair, dict) else {}
    good, bad = known.get("sentence_good"), known.get("sentence_bad")
    if not (isinstance(good, str) and isinstance(bad, str)):
        raise DataError(
            "not a minimal pair",
            where=where,
            expected="an object with the texts sentence_good and sentence_bad",
            found=repr(line[:80]),
            cure="correct the line, or leave it out",
        )
    return {
        "phenomenon": str(known.get("UID", "all")),
        "pair": str(known.get("pairID", number)),
        "good": good,
        "bad": bad,
    }


def score_pairs(
    pairs: Sequence[dict[str, str]], tokenizer: Tokenizer, recipe: Recipe, score: Scorer, *, around: bool = False
) -> Iterator[PairScore]:
    """Log-likelihoods of both sentences of every pair, each preceded by the token before a text as in training. ``around``:
    inside of what a post-processor puts around a text, as runs have it whose recipe does not say ``tokenizer.reading``.
    Of what is longer than a sequence the beginning is scored, which is said."""
    eos = recipe.tokens.begin
    size, length = recipe.evaluation.batch_size, recipe.model.seq_len
    sentences = [text for pair in pairs for text in (pair["good"], pair["bad"])]
    values: list[float] = []
    cut = 0
    for start in range(0, len(sentences), size):
        ids = np.full((size, length), eos, np.int32)
        weights = np.zeros((size, length), np.float32)
        for row, text in enumerate(sentences[start : start + size]):
            whole = [eos, *tokenizer.encode(text, add_special_tokens=around).ids]
            encoded, cut = whole[:length], cut + (len(whole) > length)
            ids[row, : len(encoded)] = encoded
            weights[row, : len(encoded) - 1] = 1.0
        values.extend(float(value) for value in score(ids, weights))
    if cut:
        log.warning("minimal pairs: %d of %d texts are compared by their first %d tokens", cut, len(sentences), length)
    for pair, good, bad in zip(pairs, values[0::2], values[1::2], strict=False):
        yield PairScore(pair["phenomenon"], pair["pair"], good, bad)


def pair_metrics(scores: Sequence[PairScore]) -> dict[str, float]:
    """How many pairs, the share won strictly, and the share of ties."""
    if not scores:
        return {}
    return {
        "pairs": float(len(scores)),
        "pairs_won": sum(score.good > score.bad for score in scores) / len(scores),
        "pairs_tied": sum(score.good == score.bad for score in scores) / len(scores),
    }


def phenomena_table(scores: Sequence[PairScore]) -> str:
    """CSV with a row per phenomenon: pairs, share won strictly, share tied."""
    by_phenomenon: dict[str, list[PairScore]] = defaultdict(list)
    for score in scores:
        by_phenomenon[score.phenomenon].append(score)
    return _csv(
        ("phenomenon", "pairs", "won", "tied"),
        (
            (name, len(group), *(repr(pair_metrics(group)[key]) for key in ("pairs_won", "pairs_tied")))
            for name, group in sorted(by_phenomenon.items())
        ),
    )


def sample(model: LmHeadModel, tokenizer: Tokenizer, recipe: Recipe, count: int = SAMPLE_TOKENS) -> str:
    """Text drawn from the model at temperature 0.8 after an end-of-text token, by a key of the recipe's seed."""
    length = recipe.model.seq_len
    Batch, Pos = Axis("batch", 1), Axis("position", length)
    key = np.asarray(named_key(recipe.seed or 0, "sample"))

    def draw(model: LmHeadModel, tokens: jax.Array, at: jax.Array) -> jax.Array:
        ids = hax.named(tokens[None], (Batch, Pos))
        logits = model(ids, attention_mask(recipe, ids)).array[0]
        noise = jrandom.gumbel(jrandom.fold_in(key, at), (logits.shape[-1],))
        return jnp.argmax(jax.lax.dynamic_index_in_dim(logits, at, keepdims=False) / 0.8 + noise)

    program = compiled(recipe, draw)
    ids = np.full((length,), recipe.tokens.begin, np.int32)
    end = min(length - 1, count)
    for at in range(end):
        ids[at + 1] = int(program(model, jnp.asarray(ids), jnp.int32(at)))
    return tokenizer.decode([int(i) for i in ids[1 : end + 1]], skip_special_tokens=False).strip()


def evaluate(task: Task) -> StepResult:
    """Measure the trained model; writes ``metrics.json``, ``pairs.csv`` and ``sample.txt``."""
    use_compilation_cache(compilation_cache())
    recipe = task.recipe
    with waiting("restoring the trained state"):
        trained, digest = restore(task)
        model = plain_model(recipe, trained)
    score = scorer(model, task.recipe)
    with waiting("scoring held-out text"):
        loss, tokens = validation_loss(recipe, task.inputs["tokens"] / "validation", score)
    metrics = {"loss": loss, "perplexity": exponential(min(loss, 700.0)), "tokens": float(tokens)}
    before = as_recorded(recipe)
    tokenizer = open_tokenizer(task.inputs["tokenizer"], as_recorded=before)
    pairs = read_pairs(task.inputs["corpus"] / "minimal_pairs.jsonl", recipe.evaluation.minimal_pairs)
    with waiting("scoring minimal pairs"):
        scores = list(score_pairs(pairs, tokenizer, recipe, score, around=before))
    metrics |= pair_metrics(scores)
    (task.out / "metrics.json").write_text(json.dumps(metrics, indent=2, sort_keys=True) + "\n", encoding="utf-8")
    pairs_table = _csv(
        ("phenomenon", "pair", "good", "bad", "won"),
        ((s.phenomenon, s.pair, repr(s.good), repr(s.bad), int(s.good > s.bad)) for s in scores),
    )
    (task.out / "pairs.csv").write_text(pairs_table, encoding="utf-8")
    with waiting("drawing a sample of text"):
        text = sample(model, tokenizer, recipe)
    (task.out / "sample.txt").write_text(text + "\n", encoding="utf-8")
    task.journal.record(
        EVAL_COMPLETED,
        EvalCompleted(run=task.run, model=digest, metrics={name: value.hex() for name, value in metrics.items()}),
    )
    return StepResult(kind="evaluation", metrics=metrics, tables={"pairs": phenomena_table(scores)})


def exponential(x: float) -> float:
    """e**x, the float64 nearest to it: a C library's last bit depends on the processor."""
    return float(Decimal(x).exp(Context(prec=40)))


def _csv(head: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(head)
    writer.writerows(rows)
    return text.getvalue()
