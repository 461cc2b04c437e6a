"""The template of a recipe's conversations in the exported folder: an entry point of the group ``marin.models``."""

from __future__ import annotations

from pathlib import Path

from marin.data.borrowed.chats import TEMPLATE_FILE, special_tokens
from marin.data.template import template_of
from marin.data.tokenizer import parse_tokenizer
from marin.recipe.schema import Recipe


def write_template(folder: Path, recipe: Recipe) -> list[int]:
    """The template of the recipe's conversations beside the tokenizer in ``folder``, where transformers finds it before any
    other; returns the tokens by which it closes an answer, where that is one token and not the end of a text."""
    template = template_of(recipe.dataset, special_tokens(folder))
    (folder / TEMPLATE_FILE).write_bytes(template.text.encode("utf-8"))
    path = folder / "tokenizer.json"
    tokenizer = parse_tokenizer(path.read_bytes(), where=str(path))
    found = {tokenizer.token_to_id(stop) for stop in template.stops} - {recipe.tokens.end}
    return sorted(number for number in found if number is not None)
