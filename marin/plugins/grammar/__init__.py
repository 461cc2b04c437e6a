"""The embedded grammar: English-like stories and minimal pairs from a seed, the same bytes on every machine.

It is what a pipeline trains on when it has no data of its own: no download, any size, and enough structure for a small
model to learn something that can be measured: agreement, also across relative clauses; pronouns that agree with their
antecedents; determiners that agree with nouns; irregular forms; items that only stand under negation. The minimal pairs
test exactly these, one phenomenon at a time.

    generator    draws, in integers, by SplitMix64        morphology  forms from stems
    words        the stems                                lexicon     stems with forms, sorts and weights
    phrases      noun and verb phrases, agreement         sentences   kinds of sentences
    plots        templates of stories                     stories     a cast, a plot, free sentences between
    pairs        minimal pairs by phenomenon

Everything here is pure and needs the standard library only.
"""

from __future__ import annotations

from collections.abc import Iterator

from marin.plugins.grammar.generator import Generator
from marin.plugins.grammar.pairs import PHENOMENA, MinimalPair, minimal_pairs
from marin.plugins.grammar.stories import story

VERSION = 1

__all__ = ["PHENOMENA", "VERSION", "MinimalPair", "document", "documents", "minimal_pairs"]


def document(seed: int, split: str, index: int) -> str:
    """Story ``index`` of ``split``: every split, and every story in it, has a stream of draws of its own."""
    return story(Generator.named("marin.grammar", VERSION, seed, split, index))


def documents(seed: int, split: str, size: int) -> Iterator[str]:
    """Stories of ``split`` until ``size`` bytes of UTF-8 are reached; the last one may go beyond."""
    index = total = 0
    while total < size:
        text = document(seed, split, index)
        total += len(text.encode())
        index += 1
        yield text
