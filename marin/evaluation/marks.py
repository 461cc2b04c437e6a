"""What the files of a tokenizer put around each text, and the tokens by which they begin and end one, as transformers has them.

A tokenizer's own ``encode`` here puts nothing around a text. lm-evaluation-harness asks transformers' tokenizer, which does:
by the post-processor of ``tokenizer.json``, whatever ``add_bos_token`` and ``add_eos_token`` of ``tokenizer_config.json`` say
(seen of AutoTokenizer, transformers 5.12.1: they count only where it makes a tokenizer of other files).
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tokenizers import Tokenizer


@dataclass(frozen=True)
class Marks:
    """``before`` and ``after``: tokens around each text. ``begin``: before an empty one; ``end``: of a text."""

    before: tuple[int, ...]
    after: tuple[int, ...]
    begin: int
    end: int


def marks_of(folder: Path, tokenizer: Tokenizer, begin: int, end: int) -> Marks:
    """The marks of the tokenizer in ``folder``, which ``tokenizer`` is; ``begin`` and ``end`` where its files name none."""
    config = _object(folder / "tokenizer_config.json")
    named = {**_object(folder / "special_tokens_map.json"), **{name: value for name, value in config.items() if value}}
    first, last = (_token(tokenizer, named.get(name)) for name in ("bos_token", "eos_token"))
    if first is not None or last is not None:
        begin = first if first is not None else last if last is not None else begin
        end = last if last is not None else end
    before, after = _around(Tokenizer.from_file(str(folder / "tokenizer.json")))
    return Marks(before, after, begin, end)


def _around(tokenizer: Tokenizer) -> tuple[tuple[int, ...], tuple[int, ...]]:
    """The tokens that a post-processor puts before and after one text."""
    tokenizer.no_truncation()
    tokenizer.no_padding()
    with_marks, plain = tokenizer.encode("a").ids, tokenizer.encode("a", add_special_tokens=False).ids
    for start in range(len(with_marks) - len(plain) + 1):
        if with_marks[start : start + len(plain)] == plain:
            return tuple(with_marks[:start]), tuple(with_marks[start + len(plain) :])
    return (), ()


def _token(tokenizer: Tokenizer, named: Any) -> int | None:
    text = named.get("content") if isinstance(named, Mapping) else named
    found: int | None = tokenizer.token_to_id(text) if isinstance(text, str) else None
    return found


def _object(path: Path) -> dict[str, Any]:
    try:
        found = json.loads(path.read_bytes())
    except (OSError, ValueError, RecursionError):
        return {}
    return found if isinstance(found, dict) else {}
