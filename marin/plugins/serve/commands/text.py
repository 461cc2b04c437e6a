"""What a state says after one text."""

from __future__ import annotations

from dataclasses import dataclass

from marin.errors import UsageError
from marin.evaluation.scoring import Prompt, Row, Scorer, request_name
from marin.evaluation.subject import Subject


@dataclass(frozen=True)
class Generated:
    """New tokens, their text, and, where asked for, the natural logarithms of their probabilities (float32, at temperature 1)."""

    text: str
    tokens: tuple[int, ...]
    logprobs: tuple[float, ...]


def generate(
    subject: Subject, scorer: Scorer, text: str, *, limit: int, temperature: float, seed: int, logprobs: bool = True
) -> Generated:
    """What the model says after an end of text and ``text``.

    Raises:
        UsageError: the prompt leaves no room in the model's context.
    """
    begun = (subject.recipe.tokens.begin, *subject.encode(text))
    room = subject.recipe.model.seq_len + 1 - len(begun)
    if room < 1:
        raise UsageError(
            "the prompt leaves no room for a token",
            where="--prompt",
            expected=f"at most {subject.recipe.model.seq_len - 1} tokens",
            found=str(len(begun) - 1),
            cure="shorten it",
        )
    (new,) = scorer.generate([Prompt(begun, min(limit, room), lambda _: False, temperature, request_name(begun))], seed)
    scored = scorer.score([Row((*begun, *new), len(new))])[0].logprobs if logprobs else ()
    return Generated(subject.decode(new, begun), new, scored)
