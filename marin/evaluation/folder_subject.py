"""A Hugging Face folder as what is evaluated: nothing is known of it but its bytes, and no run is behind it."""

from __future__ import annotations

from pathlib import Path

import msgspec

from ledger import describe_tree, digest_bytes
from marin.data.borrowed import trial
from marin.data.borrowed.chats import special_tokens, template_in
from marin.data.borrowed.folder import kept_folder
from marin.data.tokenizer import FILE as TOKENIZER
from marin.data.tokenizer import open_tokenizer
from marin.evaluation.folder import embedding_rows
from marin.evaluation.marks import marks_of
from marin.evaluation.subject import Subject
from marin.process.cache import compilation_cache
from marin.recipe.schema import Recipe
from marin.training.imported import read_model
from marin.training.model import vocabulary_size
from marin.training.runtime import canary
from marin.training.runtime.compilation import use_compilation_cache


def open_folder(folder: Path, recipe: Recipe) -> Subject:
    """The model of a Hugging Face folder (:mod:`marin.evaluation.folder` read its recipe). ``state`` is the digest of its
    files; no run is behind it.

    Raises:
        UsageError: it has no tokenizer, or its tensors are not those of its configuration. DataError: its tokenizer is malformed.
        Unsupported: this machine does not compute the bits of the contract.
    """
    use_compilation_cache(compilation_cache())
    canary.check(recipe.arithmetic)
    if (content := folder / TOKENIZER).is_file():
        trial.check(content.read_bytes(), where=str(content))
    with kept_folder(folder) as kept:
        tokenizer, read_as = open_tokenizer(kept), (kept / TOKENIZER).read_bytes()
        # A class of transformers may add tokens to the file's: a text that has one is refused (Scorer), as torch does.
        own = folder if content.is_file() else kept
        model = msgspec.structs.replace(recipe.model, embedding_rows=embedding_rows(folder))
        read = read_model(recipe, vocabulary_size(own, model), folder)
    digest = describe_tree(folder).digest
    special = special_tokens(folder)
    marks = marks_of(tokenizer, recipe.tokens.begin, recipe.tokens.end)
    plain = msgspec.structs.replace(recipe, tokenizer=msgspec.structs.replace(recipe.tokenizer, reading="plain"))
    template = template_in(folder)
    return Subject("", plain, read, tokenizer, digest, 0, digest_bytes(read_as), template, special, marks)
