"""Of the parts of a mixture: what one of them holds out is trained on in none.

Each part decides by a text alone whether it is held out, but by a share of its own, so that a text of two parts may be held out
of one and stand in the train split of the other: what is measured of it would be what was trained on.
"""

from __future__ import annotations

import hashlib
import logging
from collections.abc import Iterator, Sequence
from pathlib import Path

from marin.data.documents import PARTS, VALIDATION, SplitCount, documents_of, read_texts
from marin.errors import DataError

log = logging.getLogger(__name__)

_SIZE = 16
"""Bytes of a digest that are kept: for any number of texts that a machine can hold they are different ones."""


def held_out_of_all(out: Path, parts: Sequence[str], train: SplitCount, *, leave_out: bool) -> tuple[SplitCount, int]:
    """What is trained on of the ``parts`` of a corpus in ``out``, and how many documents were left out of it: with ``leave_out``
    all that one of the parts holds out, and otherwise none, with a warning."""
    texts = texts_of(out / VALIDATION)
    found = SplitCount(0, 0)
    for name in parts:
        split = out / PARTS / f"{name}.jsonl"
        one = count_held_out(split, texts, leave_out=leave_out, where=f"dataset.parts.{name}")
        found = SplitCount(found.documents + one.documents, found.text_bytes + one.text_bytes)
    if leave_out:
        train = SplitCount(train.documents - found.documents, train.text_bytes - found.text_bytes)
        return train, found.documents
    if found.documents:
        log.warning(
            "%d documents that are trained on are held out in another part of the mixture, so what is measured of these says "
            "little; dataset.held_out=all leaves them out of what is trained on",
            found.documents,
        )
    return train, 0


def texts_of(split: Path) -> frozenset[bytes]:
    """The texts of a split, by their digests."""
    return frozenset(map(_text_digest, read_texts(split)))


def count_held_out(split: Path, texts: frozenset[bytes], *, leave_out: bool, where: str) -> SplitCount:
    """How much of the train ``split`` has one of these ``texts``; with ``leave_out`` it is not there afterwards.

    Raises:
        DataError: nothing else is in it.
    """
    documents, size, kept = 0, 0, 0
    made = split.with_suffix(".without")
    with made.open("wb") as file:
        for line, text in _lines(split):
            if _text_digest(text) in texts:
                documents, size = documents + 1, size + len(text.encode())
                continue
            kept += 1
            file.write(line)
    if documents and not kept and leave_out:
        raise DataError(
            "a part of a mixture is held out whole",
            where=where,
            expected="texts that no other part holds out",
            found=f"{documents} documents, each of which another part holds out",
            cure="leave the part out, or give the parts one validation_fraction",
        )
    made.replace(split) if documents and leave_out else made.unlink()
    return SplitCount(documents, size)


def _lines(split: Path) -> Iterator[tuple[bytes, str]]:
    with split.open("rb") as file:
        for line in file:
            for document in documents_of([line], split.name):
                yield line, document.text


def _text_digest(text: str) -> bytes:
    return hashlib.sha256(text.encode()).digest()[:_SIZE]
