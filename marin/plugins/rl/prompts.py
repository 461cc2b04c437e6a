"""Shipped sets of prompts, each with the answer that a reward compares a completion with."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True)
class Question:
    """A prompt and its answer: a text, a number, or a regular expression, as the reward takes it."""

    prompt: str
    answer: str


DOUBLED = "|".join(letter * 2 for letter in "bcdefglmnoprstz")
_BEGINNINGS = (
    "The farmer",
    "A child",
    "My sister",
    "The old teacher",
    "Some birds",
    "Every morning the baker",
    "We",
    "Nobody",
)


def questions(name: str) -> tuple[Question, ...]:
    """A set by its name: ``doubled`` wants a word with a doubled letter, ``sums`` the sum of two numbers below 50."""
    if name == "doubled":
        return tuple(Question(beginning, DOUBLED) for beginning in _BEGINNINGS)
    return tuple(Question(f"{a}+{b}=", str(a + b)) for a in range(50) for b in range(50))
