"""Step ``tokenizer``: byte-level BPE, trained on the train split of this recipe's own corpus, or on a sample of it that is
drawn by content; or one that was made elsewhere.

Fills ``tokenizer.json`` and ``tokenizer_config.json``, which ``transformers`` loads from the folder without a network.
Every text can be written in it (the alphabet is the 256 bytes), and ``<|endoftext|>`` has id 0. Training counts words
and merges the most frequent pair, ties by id: the result does not depend on threads or cores, and a test holds it to
that.
"""

from __future__ import annotations

import hashlib
import json
import shutil
from collections.abc import Iterable, Iterator
from itertools import batched, chain
from pathlib import Path
from typing import TYPE_CHECKING

from marin.data.documents import VALIDATION, positions, read_texts, threshold, train_files
from marin.data.tokenizer import END_OF_TEXT, parse_tokenizer
from marin.errors import DataError
from marin.execution.step import StepDefinition, StepResult, Task
from marin.provenance.plugins import load_plugin
from marin.recipe import schema as recipes
from marin.recipe.model import EXCLUSION
from marin.recipe.schema import Recipe

if TYPE_CHECKING:
    from tokenizers import Tokenizer

_BATCH = 256


def config(recipe: Recipe) -> object:
    """The part of the recipe that decides the vocabulary."""
    own: dict[str, object] = {"tokenizer": recipes.plain(recipe.tokenizer)}
    if recipe.phase is not None:
        return own | {"kept": recipe.phase.tokenizer}
    if recipe.initial is not None:
        return own | {"kept": recipe.initial.tokenizer}
    return (
        own
        if recipe.exclude is None or recipe.tokenizer.artifact is not None
        else own | {"exclude": list(recipe.exclude)}
    )


def trained(corpus: Path, recipe: Recipe) -> bytes:
    """The content of ``tokenizer.json``, trained on the train split of ``corpus`` without what ``recipe`` excludes.

    Raises:
        DataError: the text cannot fill the wanted vocabulary.
        UsageError: an excluded document is not there.
    """
    from tokenizers import Tokenizer, decoders, models, pre_tokenizers, trainers

    wanted = recipe.tokenizer
    tokenizer = Tokenizer(models.BPE())
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False, use_regex=True)
    tokenizer.decoder = decoders.ByteLevel()
    trainer = trainers.BpeTrainer(
        vocab_size=wanted.vocab_size,
        min_frequency=wanted.min_frequency,
        special_tokens=[END_OF_TEXT],
        initial_alphabet=sorted(pre_tokenizers.ByteLevel.alphabet()),
        show_progress=False,
    )
    files, without = train_files(corpus), dict[str, frozenset[int]]()
    if recipe.exclude is not None:
        without = load_plugin(*EXCLUSION, "exclude").excluded(corpus, recipe)
    tokenizer.train_from_iterator(
        chain.from_iterable(
            _batches(path, without.get(part, frozenset()), wanted.sample_fraction) for part, path in files.items()
        ),
        trainer,
    )
    size = tokenizer.get_vocab_size()
    if size != wanted.vocab_size:
        raise DataError(
            "too little text for the vocabulary",
            where="params.yaml: tokenizer.vocab_size",
            expected=f"text with {wanted.vocab_size} different pieces that occur {wanted.min_frequency} times or more",
            found=f"{size} pieces",
            cure=f"use more text, or set tokenizer.vocab_size to {size} or less",
        )
    return f"{tokenizer.to_str(pretty=True)}\n".encode()


def run(task: Task) -> StepResult:
    """Train and save the tokenizer; where it was made elsewhere, in a phase, or with a model that was made elsewhere, take over
    the one whose tokens the model knows.

    Raises ``DataError`` if the text cannot fill the wanted vocabulary, ``UsageError`` for an excluded document that is
    not there.
    """
    before = task.recipe.phase or task.recipe.initial
    kept = before.tokenizer if before is not None else task.recipe.tokenizer.artifact
    if kept is not None:
        return _stored_tokenizer(task, kept)
    from tokenizers import Tokenizer

    corpus = task.inputs["corpus"]
    content = trained(corpus, task.recipe)
    tokenizer = Tokenizer.from_buffer(content)
    (task.out / "tokenizer.json").write_bytes(content)
    (task.out / "tokenizer_config.json").write_text(
        json.dumps(_CONFIG, indent=2, sort_keys=True) + "\n", encoding="utf-8"
    )
    metrics = {
        "bytes_per_token": _bytes_per_token(tokenizer, corpus / VALIDATION),
        "vocab_size": float(tokenizer.get_vocab_size()),
    }
    return StepResult(kind="tokenizer", metrics=metrics)


def _stored_tokenizer(task: Task, digest: str) -> StepResult:
    """A tokenizer from the store, measured on held-out text."""
    task.store.checkout(digest, task.work / "kept")
    shutil.copytree(task.work / "kept", task.out, dirs_exist_ok=True)
    path = task.out / "tokenizer.json"
    tokenizer = parse_tokenizer(path.read_bytes() if path.is_file() else b"", where=f"{digest}: tokenizer.json")
    wanted = task.recipe.tokenizer
    if wanted.artifact == digest and tokenizer.get_vocab_size() != wanted.vocab_size:
        raise DataError(
            "a tokenizer of another size",
            where="tokenizer.vocab_size",
            expected=str(wanted.vocab_size),
            found=f"{tokenizer.get_vocab_size()} tokens in {digest}",
            cure="name the folder with --tokenizer, which says the size",
        )
    metrics = {
        "bytes_per_token": _bytes_per_token(tokenizer, task.inputs["corpus"] / VALIDATION),
        "vocab_size": float(tokenizer.get_vocab_size()),
    }
    return StepResult(kind="tokenizer", metrics=metrics)


_CONFIG = {
    "add_bos_token": False,
    "add_prefix_space": False,
    "bos_token": END_OF_TEXT,
    "clean_up_tokenization_spaces": False,
    "eos_token": END_OF_TEXT,
    "pad_token": END_OF_TEXT,
    "tokenizer_class": "PreTrainedTokenizerFast",
}


def _batches(path: Path, without: frozenset[int] = frozenset(), fraction: float | None = None) -> Iterator[list[str]]:
    kept = (text for number, text in enumerate(read_texts(path)) if number not in without)
    for batch in batched(kept if fraction is None else _sample(kept, fraction), _BATCH):
        yield list(batch)


def _sample(texts: Iterable[str], fraction: float) -> Iterator[str]:
    """Those that a text's own digest picks: the same ones in every corpus that has them, and no more of the train split than of
    all texts, since the split is drawn from other bits."""
    limit = threshold(fraction)
    return (text for text in texts if positions(hashlib.sha256(text.encode("utf-8")).digest())[1] < limit)


def _bytes_per_token(tokenizer: Tokenizer, path: Path) -> float:
    """How many bytes of held-out text one token stands for."""
    size = tokens = 0
    for batch in _batches(path):
        size += sum(len(text.encode("utf-8")) for text in batch)
        tokens += sum(len(encoding.ids) for encoding in tokenizer.encode_batch(batch, add_special_tokens=False))
    return size / tokens


TOKENIZER = StepDefinition(
    name="tokenizer",
    inputs=("corpus",),
    config=config,
    starts=("marin/pipeline/tokenizer.py",),
    run=run,
    plugins=lambda recipe: (EXCLUSION,) if recipe.exclude is not None else (),
)
