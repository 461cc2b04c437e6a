"""Documents on disk: JSON lines in the shape of Dolma (``id``, ``text``, ``source``, ``metadata``), two splits.

A document's id is the SHA-256 of its text, in hex; a repeated text keeps its id and gets ``-2``, ``-3`` behind it. One
line per document, keys sorted, UTF-8, ``\\n``: the same documents are the same bytes.

Which split a document belongs to is decided by its text alone, so adding documents moves none of the others, and two
copies of a text are never on both sides. A text is held out when the SHA-256 of ``marin.split:`` and its digest falls
below the wanted fraction of all values. If that leaves a side empty (few documents), the text with the lowest value is
held out, or the one with the highest is kept.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from fractions import Fraction
from itertools import pairwise
from pathlib import Path

from marin.errors import DataError

TRAIN, VALIDATION = "train.jsonl", "validation.jsonl"
PARTS = "train"
"""Folder of the train splits of a mixture's parts, ``<part>.jsonl``, which then stand in the place of ``TRAIN``."""

Span = tuple[int, int]
"""Where a stretch of a text begins and ends, in characters."""
ANSWER, CHOSEN, REJECTED = "answer", "chosen", "rejected"
"""In the metadata of a preference's documents, which answer one is. The rejected one is on the side of the one before it."""


def train_files(folder: Path) -> dict[str, Path]:
    """The train splits of a corpus, by part in order of name; the only one of a single data set has no name."""
    if (folder / PARTS).is_dir():
        return {path.stem: path for path in sorted((folder / PARTS).glob("*.jsonl"), key=lambda path: path.stem)}
    return {"": folder / TRAIN}


@dataclass(frozen=True, slots=True)
class Document:
    """A text and where it comes from."""

    text: str
    source: str
    metadata: Mapping[str, str | int]
    learned: tuple[Span, ...] | None = None
    """Of a chat document, the stretches that are learned, perhaps none; of a plain text nothing is said, and all of it is."""
    id: str = field(default="", compare=False)
    """As it was read from a split; a document that is to be written gets its id there."""
    by_difference: bool = False
    """What is learned was found by what each message adds, and not said by the template."""


@dataclass(frozen=True)
class SplitCount:
    """How much a split holds; ``text_bytes`` counts the UTF-8 of the texts."""

    documents: int
    text_bytes: int


def position(text: str) -> int:
    """Where a text stands among all texts: 64 bits that depend on it alone."""
    return positions(hashlib.sha256(text.encode("utf-8")).digest())[0]


def positions(digest: bytes) -> tuple[int, int]:
    """The same from the SHA-256 of a text's UTF-8, and a second one that says nothing of the first."""
    drawn = hashlib.sha256(b"marin.split:" + digest).digest()
    return int.from_bytes(drawn[:8], "big"), int.from_bytes(drawn[8:16], "big")


def threshold(fraction: float) -> int:
    """Texts whose position is below this are held out. Exact: a float is a fraction."""
    return int(Fraction(fraction) * 2**64)


def read_documents(path: Path) -> Iterator[Document]:
    """The documents of a split that :class:`marin.data.lines.writing.SplitWriter` wrote.

    Raises:
        DataError: a line is not such a document; the message names file and line.
    """
    with path.open("rb") as file:
        yield from documents_of(file, path.name)


def documents_of(lines: Iterable[bytes], where: str) -> Iterator[Document]:
    """The same from lines in memory.

    Raises:
        DataError: a line is not such a document; the message has ``where`` and the line's number.
    """
    for number, line in enumerate(lines, start=1):
        try:
            record = json.loads(line)
            spans, name = record.get("learned"), str(record.get("id", ""))
            learned = None if spans is None else tuple((int(start), int(stop)) for start, stop in spans)
            told = record["text"], record["source"], record["metadata"]
            yield Document(*told, learned, name, bool(record.get("by_difference")))
        except (AttributeError, KeyError, OverflowError, TypeError, ValueError, RecursionError) as error:
            raise DataError(
                "not a document",
                where=f"{where}:{number}",
                expected="id, text, source, metadata",
                found=f"{type(error).__name__}: {error}",
                cure="make the corpus again: marin stage corpus",
            ) from None


def stretches(path: Path, size: int) -> list[tuple[int, int]]:
    """Where a file of lines is cut into pieces of whole lines, each of ``size`` bytes or a line more: begin and end in bytes."""
    whole = path.stat().st_size
    cuts = [0]
    with path.open("rb") as file:
        while cuts[-1] + size < whole:
            file.seek(cuts[-1] + size)
            file.readline()
            cuts.append(min(file.tell(), whole))
    return [(first, end) for first, end in pairwise([*cuts, whole]) if end > first]


def read_texts(path: Path) -> Iterator[str]:
    """The texts of a split, in order."""
    for document in read_documents(path):
        yield document.text
