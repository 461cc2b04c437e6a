"""Token caches are built: Levanter's own store of token ids (TensorStore, zarr3), read by :mod:`marin.training.tokens.cache`.

Documents are encoded (:mod:`marin.training.tokens.encoding`, by workers where there are some), each ended by the end-of-text
token, and written in their order (:mod:`marin.training.tokens.writing`) in this process.

Two things are done here and not by Levanter's ``BatchTokenizer``. It appends the end as text, after a space, which
leaves a token for that space before every end; and it takes the characters ``<|endoftext|>`` inside a document for the
end of one, so that a text could forge a boundary. Here the end is appended as an id, and in a text these characters are
characters.

The parts of a mixture are splits of their own, ``train/<part>``.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import numpy as np

from ledger import state_digest
from marin.data.documents import VALIDATION, read_texts, train_files
from marin.data.tokenizer import load_tokenizer
from marin.errors import DataError, UsageError
from marin.execution.step import StepResult, Task
from marin.provenance.plugins import load_plugin
from marin.recipe.model import APART, EXCLUSION
from marin.recipe.schema import Artifact, Recipe, as_recorded, chats
from marin.tensors.token_caches import WORDS_FILE, cache_content
from marin.training.tokens.cache import BLANK, read_tokens
from marin.training.tokens.encoding import Encoded, encoded_split, has_mask
from marin.training.tokens.masks import open_mask
from marin.training.tokens.writing import CacheWriter
from marin.work.placed import Run

if TYPE_CHECKING:
    from numpy.typing import NDArray

VALIDATION_SPLIT = "validation"
_WRITE_TOKENS = 1 << 22
MOST_UNLEARNED = 0.1
"""The share of conversations of which nothing is learned that a build may have."""
log = logging.getLogger(__name__)


def build_caches(task: Task, execute: Run | None = None) -> StepResult:
    """Fill ``Task.out`` with the caches ``train`` and ``validation``, and digest what can be read back from them. Documents are
    encoded in this process, or by workers; the files are the same.

    Raises:
        DataError: a split has no tokens, or its cache does not hold what was written.
    """
    tensors: dict[str, str] = {}
    size = 0
    totals: dict[str, int] = {}
    learned, without = Learned(), dict[str, frozenset[int]]()
    if task.recipe.exclude is not None:
        without = load_plugin(*EXCLUSION, "exclude").excluded(task.inputs["corpus"], task.recipe)
    reference = next((part.chat_reference for part in chats(task.recipe.dataset)), None)
    for split, path in split_files(task.inputs["corpus"]).items():
        folder = task.out / split
        folder.parent.mkdir(exist_ok=True)
        masked = has_mask(path)
        encoded = encoded_split(
            task.inputs["tokenizer"],
            path,
            ends(task.recipe),
            masked=masked,
            execute=execute,
            reference=reference,
            as_recorded=as_recorded(task.recipe),
        )
        if masked and reference is not None:
            encoded = learned.counted(encoded)
        # Of a pair that is learned together each part is a sequence of its own: no neighbour's tokens are in it.
        if task.recipe.together > 1 and split != VALIDATION_SPLIT:
            apart = load_plugin(*APART, "preferences")
            encoded = apart(encoded, task.recipe.model.seq_len, task.recipe.tokens.end, split)
        written = (
            _write(
                folder,
                encoded,
                masked=masked,
                without=without.get(split.partition("/")[2], frozenset()) if split != VALIDATION_SPLIT else frozenset(),
            )
            if task.recipe.tokens.artifact is None
            else _take(task.recipe.tokens.artifact, task, split, folder)
        )
        if split != VALIDATION_SPLIT and task.recipe.tokens.artifact is None and not as_recorded(task.recipe):
            skipped = without.get(split.partition("/")[2], frozenset())
            (folder / WORDS_FILE).write_bytes(b"%d\n" % words_of(path, skipped))
        # Read back, and not taken from what was written: the digest is of what a training will find.
        content = cache_content(folder)
        if (content.tokens, content.documents) != written:
            raise DataError(
                "token cache does not hold what was written",
                where=split,
                expected="{} tokens in {} documents".format(*written),
                found=f"{content.tokens} tokens in {content.documents} documents",
                cure="run the stage again",
            )
        if content.tokens == 0:
            raise DataError(
                "no tokens",
                where=f"{split} split",
                expected="at least one token",
                found="none",
                cure="give the corpus more text",
            )
        tensors |= {f"{split}/{name}": digest for name, digest in content.tensors.items()}
        side = split.partition("/")[0]
        for what, number in ((f"{side}_tokens", content.tokens), (f"{side}_documents", content.documents)):
            totals[what] = totals.get(what, 0) + number
        size += content.nbytes
    learned.check()
    if learned.without:
        totals["unlearned_documents"] = learned.without
    metrics = {name: float(number) for name, number in totals.items()}
    return StepResult(kind="tokens", digest=state_digest(tensors), size=size, metrics=metrics)


def words_of(path: Path, without: frozenset[int] = frozenset()) -> int:
    """Words between white space of the documents of a split, but for those with these numbers."""
    return sum(len(text.split()) for number, text in enumerate(read_texts(path)) if number not in without)


@dataclass
class Learned:
    """How many conversations there are, and of how many nothing is learned."""

    documents: int = 0
    without: int = 0

    def counted(self, documents: Iterator[Encoded]) -> Iterator[Encoded]:
        """The same documents."""
        for ids, mask in documents:
            self.documents += 1
            self.without += b"\x01" not in mask
            yield ids, mask

    def check(self) -> None:
        """Say of how many nothing is learned.

        Raises:
            DataError: of more than a share of :data:`MOST_UNLEARNED`.
        """
        told = f"{self.without} of {self.documents} conversations"
        if self.without > MOST_UNLEARNED * self.documents:
            raise DataError(
                "conversations of which nothing is learned",
                where="step tokens",
                expected=f"at most a share of {MOST_UNLEARNED}",
                found=told,
                cure="let {% generation %} of the chat template hold what the assistant says, and remove lines without an answer",
            )
        if self.without:
            log.warning("nothing is learned of %s", told)


def ends(recipe: Recipe) -> list[int]:
    """The tokens after each document."""
    return [recipe.tokens.end] if recipe.tokens.append_eos else []


def _write(folder: Path, documents: Iterator[Encoded], *, masked: bool, without: frozenset[int]) -> tuple[int, int]:
    """The cache of a split, with the documents of these numbers blank."""
    return _written(folder, blank_documents(documents, without), masked=masked)


def _take(artifact: Artifact, task: Task, split: str, folder: Path) -> tuple[int, int]:
    """The cache of a split out of one that someone else made, written anew; its loss mask as it is."""
    vocabulary = load_tokenizer(task.inputs["tokenizer"]).rows
    if artifact.digest is None:
        raise UsageError(
            "tokens that are not made yet",
            where=f"tokens.artifact: {artifact.address}",
            expected="their digest",
            found="null",
            cure="run the experiment file that makes them: marin run FILE",
        )
    with TemporaryDirectory(dir=task.work, prefix="artifact-") as place:
        made = Path(place) / "tokens"
        task.store.checkout(artifact.digest, made)
        cache_content(made / split)  # plausible, before anything is read whole
        tokens, offsets = read_tokens(made / split)
        if tokens.size and not 0 <= int(tokens.min()) <= int(tokens.max()) < vocabulary:
            raise DataError(
                "tokens that the tokenizer does not have",
                where=f"{artifact.address}: {split}",
                expected=f"ids from 0 to {vocabulary - 1}",
                found=f"{int(tokens.min())} to {int(tokens.max())}",
                cure="make them with the tokenizer that the training gets",
            )
        spans = [slice(start, end) for start, end in pairwise(offsets.tolist())]
        mask = open_mask(made / split)
        masks = None if mask is None else (mask[span] for span in spans)
        return write_cache(folder, (tokens[span] for span in spans), masks)


def split_files(corpus: Path) -> dict[str, Path]:
    """The texts of each split of a corpus: ``train`` or ``train/<part>``, and ``validation``."""
    return {f"train/{part}" if part else "train": path for part, path in train_files(corpus).items()} | {
        VALIDATION_SPLIT: corpus / VALIDATION
    }


def blank_documents(documents: Iterator[Encoded], without: frozenset[int]) -> Iterator[Encoded]:
    """The documents in order; of those with these numbers nothing but how long they are."""
    for number, (ids, mask) in enumerate(documents):
        yield np.full_like(ids, BLANK) if number in without else ids, mask


def write_cache(
    folder: Path, documents: Iterator[NDArray[np.int32]], masks: Iterator[NDArray[np.uint8]] | None = None
) -> tuple[int, int]:
    """Write a cache; returns how many tokens and documents it got. Some millions of tokens are held at a time.

    Args:
        documents: the token ids of each. masks: which of them are learned, where not all are; as long as the ids.
    """
    if masks is None:
        return _written(folder, ((ids, b"") for ids in documents), masked=False)
    return _written(folder, ((ids, mask.tobytes()) for ids, mask in zip(documents, masks, strict=True)), masked=True)


def _written(folder: Path, documents: Iterator[Encoded], *, masked: bool) -> tuple[int, int]:
    writer = CacheWriter(folder, masked=masked)
    held, batch = 0, list[Encoded]()
    for ids, mask in documents:
        batch.append((ids, mask))
        held += len(ids)
        if held >= _WRITE_TOKENS:
            writer.write(batch)
            held, batch = 0, []
    writer.write(batch)
    writer.finish()
    return writer.tokens, writer.documents
