"""Another server of the OpenAI interface beside ours: how far its log-likelihoods of the same tokens are from those of a state.

Asked are sequences of drawn tokens, by their ids, with ``echo`` and ``logprobs``: what vLLM answers of an exported folder. Its
sums have another order, so numbers differ in their last digits; a wrong weight, mask or position shows at once.
"""

from __future__ import annotations

import json
import math
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from marin.errors import MissingEvidence, UsageError
from marin.evaluation.scoring import Row, Scorer

SECONDS = 120.0
MOST_BYTES = 64 << 20


@dataclass(frozen=True)
class Distance:
    """Of so many ``tokens`` in ``sequences``: the greatest absolute difference of natural logarithms, and at which token of
    which sequence it is."""

    sequences: int
    tokens: int
    furthest: float
    sequence: int
    token: int


def compare(scorer: Scorer, vocabulary: int, url: str, model: str, *, sequences: int = 16, seed: int = 0) -> Distance:
    """Score drawn sequences of several lengths here and there.

    Args:
        url: of the other server, up to ``/v1``. ``model``: what it calls the model.

    Raises:
        MissingEvidence: no server answers there. UsageError: its answers are not scores.
    """
    draw = np.random.default_rng(seed)
    sizes = draw.integers(2, scorer.seq_len + 1, sequences)
    asked = [tuple(int(token) for token in draw.integers(0, vocabulary, size)) for size in sizes]
    ours = scorer.score([Row(tokens, len(tokens) - 1) for tokens in asked])
    furthest, at = 0.0, (0, 0)
    for number, (tokens, scored) in enumerate(zip(asked, ours, strict=True)):
        for place, (one, other) in enumerate(zip(scored.logprobs, _theirs(url, model, tokens), strict=True), start=1):
            distance = abs(one - other)
            if distance > furthest or math.isnan(distance):
                furthest, at = distance, (number, place)
    return Distance(len(asked), sum(len(tokens) - 1 for tokens in asked), furthest, *at)


def _theirs(url: str, model: str, tokens: Sequence[int]) -> list[float]:
    """Log-likelihoods of all tokens but the first."""
    asked = {"model": model, "prompt": list(tokens), "max_tokens": 1, "echo": True, "logprobs": 1, "temperature": 0}
    request = urllib.request.Request(  # noqa: S310  its kind is looked at below
        f"{url.rstrip('/')}/completions", json.dumps(asked).encode(), {"Content-Type": "application/json"}
    )
    if request.type not in ("http", "https"):
        raise UsageError("no address of a server", where="--check", expected="http://HOST:PORT/v1", found=url)
    try:
        with urllib.request.urlopen(request, timeout=SECONDS) as answer:  # noqa: S310  http or https, as asked
            said: Any = json.loads(answer.read(MOST_BYTES))
    except urllib.error.HTTPError as error:
        told = error.read(400).decode("utf-8", "replace")
        raise UsageError("the other server refuses", where=url, expected="log-likelihoods", found=told[:200]) from None
    except (OSError, ValueError) as error:
        raise MissingEvidence(
            "no other server answers",
            where=url,
            expected="the OpenAI interface",
            found=str(error)[:120],
            cure="start it: marin serve FOLDER --vllm prints how",
        ) from None
    try:
        found = [float(value) for value in said["choices"][0]["logprobs"]["token_logprobs"][1 : len(tokens)]]
    except (KeyError, IndexError, TypeError, ValueError):
        found = []
    if len(found) != len(tokens) - 1:
        raise UsageError(
            "an answer without the log-likelihoods of its prompt",
            where=url,
            expected="echo and logprobs",
            found=json.dumps(said)[:200],
        )
    return found
