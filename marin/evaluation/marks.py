"""What the files of a tokenizer put around each text, and the tokens by which they begin and end one, as transformers has them.

A tokenizer's own ``encode`` here puts nothing around a text. lm-evaluation-harness asks transformers' tokenizer, which does:
by the post-processor of ``tokenizer.json``, whatever ``add_bos_token`` and ``add_eos_token`` of ``tokenizer_config.json`` say
(seen of AutoTokenizer, transformers 5.12.1: they count only where it makes a tokenizer of other files).
"""

from __future__ import annotations

from dataclasses import dataclass

from marin.data.tokenizer import Tokenizer


@dataclass(frozen=True)
class Marks:
    """``before`` and ``after``: tokens around each text. ``begin``: before an empty one; ``end``: of a text."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    begin: int
    end: int


def marks_of(tokenizer: Tokenizer, begin: int, end: int) -> Marks:
    """The marks of a tokenizer; ``begin`` and ``end`` where its files name none."""
    first, last = (tokenizer.special.id(name) for name in ("bos_token", "eos_token"))
    if first is not None or last is not None:
        begin = first if first is not None else last if last is not None else begin
        end = last if last is not None else end
    before, after = _around(tokenizer)
    return Marks(before, after, begin, end)


def _around(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens that a post-processor puts before and after one text."""
    with_marks, plain = tokenizer.encode("a", add_special_tokens=True).ids, tokenizer.encode("a").ids
    for start in range(len(with_marks) - len(plain) + 1):
        if with_marks[start : start + len(plain)] == plain:
            return tuple(with_marks[:start]), tuple(with_marks[start + len(plain) :])
    return (), ()
