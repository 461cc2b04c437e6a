"""Held-out text on a state: loss, perplexity and bits per byte of a set, from the log-likelihood of every token.

A set is JSON lines with a ``text`` each. Each document is predicted whole, token for token, after an end of text and in the
windows of lm-evaluation-harness (:func:`windows`), by the programs of :mod:`marin.evaluation.scoring`. The loss is the mean
over tokens, in nats; bits per byte divide the same sum by the UTF-8 bytes of the texts, so they compare across tokenizers and
lengths of context. Sums are rounded once and logarithms are Decimal's: no C library decides a bit.
"""

from __future__ import annotations

import json
import math
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from decimal import Context, Decimal
from typing import Any

import numpy as np

from ledger import Store
from marin.data.tokenizer import Tokenizer
from marin.errors import DataError
from marin.evaluation.code import deciding_digest
from marin.evaluation.evaluate import exponential
from marin.evaluation.scoring import Row, Scorer
from marin.evaluation.subject import Subject
from marin.kinds.families.measured import EvaluationMeasured, MeasuredSet
from marin.plugins.evaluation.heldout.sets import CODE
from marin.provenance.code import code_folder, lock_digest
from marin.recipe.schema import as_recorded
from marin.record.events import HexFloat

EXACTLY = Context(prec=60)
MOST_LOSS = 700.0
"""Of which a float has an exponential."""


@dataclass(frozen=True)
class Scores:
    """Log-likelihoods of one set (natural logarithms, float32): those of each document, token by token."""

    documents: tuple[tuple[float, ...], ...]

    def encode(self) -> bytes:
        """float32, little-endian, document after document."""
        flat = [value for one in self.documents for value in one]
        return np.asarray(flat, dtype="<f4").tobytes()


def texts_of(data: bytes, where: str) -> list[str]:
    """The texts of a stored set.

    Raises:
        DataError: a line is not an object with a text.
    """
    return list(_texts(data, where))


def _texts(data: bytes, where: str) -> Iterator[str]:
    for number, line in enumerate(data.split(b"\n"), start=1):
        if not line:
            continue
        try:
            row = json.loads(line.decode())
        except (ValueError, RecursionError):
            row = None
        text = row.get("text") if isinstance(row, dict) else None
        try:
            whole = isinstance(text, str) and bool(text.encode())
        except UnicodeEncodeError:  # half of a surrogate pair
            whole = False
        if not isinstance(text, str) or not whole:
            raise DataError(
                "not a document of a held-out set",
                where=f"{where}, line {number}",
                expected="a JSON object with a text that is not empty",
                found=repr(line[:80]),
                cure="write one such object a line",
            )
        yield text


def windows(tokens: Sequence[int], length: int, begin: int = 0) -> list[Row]:
    """A document in sequences of at most ``length`` positions: every token is predicted once, the first after
    ``begin``. A last window that is short has as much before it as the context holds."""
    whole = [begin, *tokens]
    rows = []
    for start in range(1, len(whole), length):
        end = min(start + length, len(whole))
        first = start - 1 if start == 1 else end - length - 1
        rows.append(Row(tuple(whole[max(0, first) : end]), end - start))
    return rows


def plain_tokenizer(subject: Subject) -> Tokenizer:
    """The subject's, as documents are encoded to train on: see :func:`marin.data.tokenizer.load_tokenizer`."""
    tokenizer = subject.tokenizer.copy()
    tokenizer.encode_special_tokens = subject.tokenizer.encode_special_tokens or as_recorded(subject.recipe)
    return tokenizer


def encode_texts(tokenizer: Tokenizer, texts: Sequence[str]) -> list[list[int]]:
    """Tokens of each text, nothing put in front or behind."""
    return [list(one.ids) for one in tokenizer.encode_batch_fast(list(texts), add_special_tokens=False)]


def score(
    scorer: Scorer,
    documents: Sequence[Sequence[int]],
    chosen: Collection[int] | None = None,
    done: Callable[[int], None] = lambda count: None,
) -> dict[int, tuple[float, ...]]:
    """The log-likelihood of every token of the ``chosen`` documents (None: all), by the document's number."""
    numbers = [number for number in range(len(documents)) if chosen is None or number in chosen]
    rows = [
        (number, row)
        for number in numbers
        for row in windows(documents[number], scorer.seq_len, scorer.recipe.tokens.begin)
    ]
    found: dict[int, tuple[float, ...]] = dict.fromkeys(numbers, ())
    for (number, _), scored in zip(rows, scorer.score([row for _, row in rows], done), strict=True):
        found[number] = (*found[number], *scored.logprobs)
    return found


def numbers_of(scores: Sequence[float], size: int) -> Mapping[str, HexFloat]:
    """Loss (nats a token), perplexity and bits per byte over ``size`` bytes, as hex floats."""
    total = math.fsum(scores)
    loss = -total / len(scores)
    bits = EXACTLY.divide(Decimal(-total), EXACTLY.multiply(Decimal(size), Decimal(2).ln(EXACTLY)))
    found = {"loss": loss, "perplexity": exponential(min(loss, MOST_LOSS)), "bits_per_byte": float(bits)}
    return {name: (value + 0.0).hex() for name, value in found.items()}


def measure_sets(
    subject: Subject,
    scorer: Scorer,
    store: Store,
    sets: Mapping[str, bytes],
    done: Callable[[int, str], None] = lambda count, name: None,
) -> EvaluationMeasured:
    """Score every set (name -> stored JSON lines) on ``subject`` and put what is needed to do it again into ``store``; the
    body of the event."""
    tokenizer = plain_tokenizer(subject)
    found: dict[str, MeasuredSet] = {}
    before = 0
    for name, data in sets.items():
        texts = texts_of(data, name)
        documents = encode_texts(tokenizer, texts)
        scored = score(scorer, documents)
        scores = Scores(tuple(scored[number] for number in range(len(documents))))
        found[name] = MeasuredSet(
            data=store.put_bytes(data).digest,
            scores=store.put_bytes(scores.encode()).digest,
            documents=len(texts),
            **set_summary(texts, scores),
        )
        before += len(texts)
        done(before, name)
    return EvaluationMeasured(
        run=subject.run,
        step=subject.step,
        state=subject.state,
        tokenizer=subject.tokenizer_digest,
        code=deciding_digest(CODE, subject.recipe),
        lock=lock_digest(code_folder()),
        sets=found,
    )


def set_summary(texts: Sequence[str], scores: Scores) -> dict[str, Any]:
    """What an event says of a set beside its bytes: UTF-8 bytes of its texts, tokens, and the numbers."""
    size = sum(len(text.encode()) for text in texts)
    flat = [value for one in scores.documents for value in one]
    return {"bytes": size, "tokens": len(flat), "numbers": dict(numbers_of(flat, size))}
