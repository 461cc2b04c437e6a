"""The completions of one update as they are stored: canonical JSON, every number with its bits.

``prompts`` in the order in which they were drawn; ``completions``, ``num_generations`` of each prompt, in the same order.
Log-probabilities are the bits of float32, little-endian, in hexadecimal; rewards and advantages are hex floats.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

import msgspec
import numpy as np
from msgspec import Meta

from ledger import Store, canonical_bytes
from marin.errors import DataError
from marin.plugins.rl.prompts import questions_of
from marin.recipe.schema import Recipe

MOST, LONGEST = 8, 200
"""Prompts that are shown to people, and letters of each."""
Number = Annotated[int, Meta(ge=0, lt=2**53)]


class PromptRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """Prompt ``number`` of the training is question ``index`` of the set. ``tokens``: with the token before a text."""

    number: Number
    index: Number
    tokens: tuple[Number, ...]


class CompletionRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What was drawn, its text, what each token's log-probability was and what it is under the reference (empty where none is
    asked), what it got, and its advantage (a float32)."""

    tokens: tuple[Number, ...]
    text: str
    logprobs: str
    reference: str
    reward: str
    advantage: str


class UpdateRecord(msgspec.Struct, frozen=True, forbid_unknown_fields=True, omit_defaults=True):
    """All of an update. ``update`` counts from the first of the phase; ``drawn_before``: the update before which the state was
    that drew, where the recipe lets it be behind."""

    update: Number
    prompts: tuple[PromptRecord, ...]
    completions: tuple[CompletionRecord, ...]
    drawn_before: Number | None = None

    def encode(self) -> bytes:
        """As it is stored."""
        return canonical_bytes(msgspec.to_builtins(self))


def hex_floats(values: np.ndarray) -> str:
    """Bits of float32, little-endian."""
    return np.ascontiguousarray(values, "<f4").tobytes().hex()


def read_record(data: bytes) -> UpdateRecord | None:
    """What is stored; None where it is not such a record."""
    try:
        return msgspec.json.decode(data, type=UpdateRecord)
    except (msgspec.MsgspecError, UnicodeDecodeError, RecursionError):
        return None


def first_difference(recorded: bytes | None, found: bytes) -> str:
    """The first thing in which a stored record differs from the one that was found, in words: prompts, then completion by
    completion its tokens, log-probabilities and reward, then advantages."""
    if recorded is None:
        return "the recorded ones are not in the store"
    theirs, ours = read_record(recorded), read_record(found)
    if theirs is None or ours is None:
        return "what is stored is no record of completions"
    return next(_differences(theirs, ours), "the record is written otherwise")


def _differences(theirs: UpdateRecord, ours: UpdateRecord) -> Iterator[str]:
    if theirs.update != ours.update:
        yield f"update: recorded {theirs.update}, found {ours.update}"
    if theirs.drawn_before != ours.drawn_before:
        yield f"drawn by the state before update: recorded {theirs.drawn_before}, found {ours.drawn_before}"
    if len(theirs.prompts) != len(ours.prompts):
        yield f"prompts: recorded {len(theirs.prompts)}, found {len(ours.prompts)}"
    for place, (one, other) in enumerate(zip(theirs.prompts, ours.prompts, strict=False)):
        if one != other:
            yield f"prompt {place}: recorded question {one.index} as number {one.number}, found {other.index} as {other.number}"
    if len(theirs.completions) != len(ours.completions):
        yield f"completions: recorded {len(theirs.completions)}, found {len(ours.completions)}"
    each = max(1, len(ours.completions) // max(1, len(ours.prompts)))
    pairs = enumerate(zip(theirs.completions, ours.completions, strict=False))
    named = [(f"completion {place % each} of prompt {place // each}", *pair) for place, pair in pairs]
    for where, one_, other_ in named:
        yield from _completion_differs(where, one_, other_)
    for where, one_, other_ in named:
        if one_.advantage != other_.advantage:
            yield f"{where}, advantage: recorded {_plain(one_.advantage)}, found {other_.advantage}"


def _completion_differs(where: str, theirs: CompletionRecord, ours: CompletionRecord) -> Iterator[str]:
    if theirs.tokens != ours.tokens:
        at = _first(theirs.tokens, ours.tokens)
        recorded, found = (f"token {one[at]}" if at < len(one) else "no token" for one in (theirs.tokens, ours.tokens))
        yield f"{where}, position {at}: recorded {recorded}, found {found}"
    if theirs.text != ours.text:
        yield f"{where}, text: recorded {_plain(theirs.text)}, found {_plain(ours.text)}"
    for name in ("logprobs", "reference"):
        one, other = (_split_words(getattr(side, name)) for side in (theirs, ours))
        if one != other:
            at = _first(one, other)
            what = "log-probability" if name == "logprobs" else "log-probability under the reference"
            recorded, found = (words[at] if at < len(words) else "none" for words in (one, other))
            yield f"{where}, position {at}: {what}: recorded {_plain(recorded)}, found {found}"
    if theirs.reward != ours.reward:
        yield f"{where}, reward: recorded {_plain(theirs.reward)}, found {ours.reward}"


def _first(one: Sequence[object], other: Sequence[object]) -> int:
    pairs = zip(one, other, strict=False)
    return next((at for at, (left, right) in enumerate(pairs) if left != right), min(len(one), len(other)))


def _split_words(text: str) -> list[str]:
    return [text[at : at + 8] for at in range(0, len(text), 8)]


def _plain(text: str) -> str:
    """The beginning of what a user wrote, without what a terminal would do."""
    return ascii(text[:40])[1:-1]


def first_of_each(recipe: Recipe, store: Store, data: bytes) -> Sequence[tuple[str, str, str]]:
    """Prompt, first completion and its reward, as people read them.

    Raises:
        DataError: it is not a record of this recipe.
    """
    objective, record = recipe.objective, read_record(data)
    assert objective is not None
    asked, each = questions_of(objective, store), objective.num_generations
    try:
        if record is None:
            raise ValueError
        pairs = enumerate(record.prompts[:MOST])
        shown = [(asked[one.index].prompt, record.completions[each * place]) for place, one in pairs]
        return [(_as_read(prompt), one.text[:LONGEST], f"{float.fromhex(one.reward):g}") for prompt, one in shown]
    except (IndexError, ValueError, OverflowError):
        raise DataError("a record of another recipe", where="completions", found="other bytes") from None


def _as_read(prompt: object) -> str:
    """A prompt, or the last message of a conversation."""
    if isinstance(prompt, list):
        prompt = prompt[-1].get("content", "")
    return str(prompt)[:LONGEST]
