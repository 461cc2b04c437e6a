"""Documents as token ids: in this process, by the threads of the library ``tokenizers``, or in shards on the workers of a runner.

A document is encoded by itself, and a shard is a stretch of whole lines of a split, cut by bytes: what comes out is the same, in
the same order, for every number of threads and workers.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import batched
from pathlib import Path
from typing import TYPE_CHECKING

import msgspec
import numpy as np

from marin.data.documents import Document, documents_of, read_documents, stretches
from marin.data.tokenizer import Tokenizer, load_tokenizer, parse_tokenizer
from marin.process.progress import Report, bar
from marin.provenance.plugins import load_plugin
from marin.recipe.model import LEARNED
from marin.work.placed import Run, Worker

if TYPE_CHECKING:
    from numpy.typing import NDArray

Encoded = tuple["NDArray[np.int32]", bytes]
"""A document's token ids, and which of them are learned (a byte each; none where all are)."""

SHARD_BYTES = 4 << 20
"""A task of a worker, as JSON lines; its answer is about as large."""
_DOCUMENTS = 256


def has_mask(split: Path) -> bool:
    """Whether the documents of a split say what is learned of them."""
    first = next(read_documents(split), None)
    return first is not None and first.learned is not None


def encode_documents(
    tokenizer: Tokenizer, documents: Iterable[Document], end: list[int], *, masked: bool, reference: str | None = None
) -> Iterator[Encoded]:
    """Each document, in order. ``reference``: whose ids and masks conversations have.

    Raises:
        DataError: it has to say what is learned of it, and does not.
    """
    for batch in batched(documents, _DOCUMENTS):
        if masked:
            yield from load_plugin(*LEARNED, "what is learned of conversations")(tokenizer, batch, end, reference)
            continue
        for encoding in tokenizer.encode_batch_fast([document.text for document in batch], add_special_tokens=False):
            yield np.asarray(encoding.ids + end, dtype=np.int32), b""


def encoded_split(
    folder: Path,
    path: Path,
    end: list[int],
    *,
    masked: bool,
    execute: Run | None = None,
    reference: str | None = None,
    as_recorded: bool = False,
) -> Iterator[Encoded]:
    """The documents of the split ``path`` by the tokenizer of ``folder``; by shards where there are workers and two shards.
    ``as_recorded``: see :func:`marin.data.tokenizer.parse_tokenizer`."""
    cuts, tokenizer = stretches(path, SHARD_BYTES), load_tokenizer(folder, as_recorded=as_recorded)
    with bar(f"tokenize {path.stem}", path.stat().st_size) as report:
        if execute is None or len(cuts) < 2:
            documents = _reported(read_documents(path), report)
            yield from encode_documents(tokenizer, documents, end, masked=masked, reference=reference)
            return
        content = (folder / "tokenizer.json").read_text("utf-8")
        setup = EncodingSetup(content, end, masked, path.name, reference, as_recorded, tokenizer.encode_special_tokens)
        with WORKER.run(execute, setup, _Tasks(path, cuts)) as shards:
            for (_, until), shard in zip(cuts, shards, strict=True):
                yield from unpacked(shard)
                report(until, "")


def _reported(documents: Iterable[Document], report: Report) -> Iterator[Document]:
    done = 0
    for batch in batched(documents, _DOCUMENTS):
        yield from batch
        done += sum(len(document.text) for document in batch)
        report(done, "")


class EncodingSetup(msgspec.Struct, frozen=True):
    """What a worker has to know: the content of ``tokenizer.json``, the tokens behind a document, whether documents say what is
    learned of them, the name of their file, whose ids and masks conversations have, and how the tokenizer is read."""

    tokenizer: str
    end: list[int]
    masked: bool
    name: str
    reference: str | None = None
    as_recorded: bool = False
    special_are_text: bool = False


class Shard(msgspec.Struct, frozen=True):
    """A worker's answer: token ids (int32, little-endian) of its documents one after another, how many each has, and the mask."""

    ids: bytes
    lengths: list[int]
    mask: bytes


def _encoding(setup: EncodingSetup) -> Callable[[bytes], Shard]:
    """In a worker, once: what encodes a stretch of lines."""
    tokenizer = parse_tokenizer(setup.tokenizer.encode(), where=setup.name, as_recorded=setup.as_recorded)
    tokenizer.encode_special_tokens = setup.special_are_text

    def encode(lines: bytes) -> Shard:
        documents = documents_of(lines.splitlines(), setup.name)
        found = list(encode_documents(tokenizer, documents, setup.end, masked=setup.masked, reference=setup.reference))
        return Shard(
            b"".join(ids.astype("<i4").tobytes() for ids, _ in found),
            [len(ids) for ids, _ in found],
            b"".join(mask for _, mask in found),
        )

    return encode


WORKER = Worker(f"{__name__}:WORKER", EncodingSetup, bytes, Shard, _encoding)


def unpacked(shard: Shard) -> Iterator[Encoded]:
    """The documents of a shard."""
    ids = np.frombuffer(shard.ids, dtype="<i4").astype(np.int32)
    first = 0
    for length in shard.lengths:
        yield ids[first : first + length], shard.mask[first : first + length]
        first += length


class _Tasks(Sequence[bytes]):
    """Stretches of a file, each read when it is handed to a worker."""

    def __init__(self, path: Path, cuts: Sequence[tuple[int, int]]) -> None:
        self._path, self._cuts = path, cuts

    def __len__(self) -> int:
        return len(self._cuts)

    def __getitem__(self, number: int) -> bytes:  # type: ignore[override]
        first, end = self._cuts[number]
        with self._path.open("rb") as file:
            file.seek(first)
            return file.read(end - first)
