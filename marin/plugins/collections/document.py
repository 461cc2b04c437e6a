"""A document, what a step decides about it, and what a reader and a step of a collection are.

Documents have the shape of Dolma (Soldaini et al. 2024): ``id``, ``text``, ``source``, ``added``, ``created``,
``metadata``. What steps say stands beside the documents, as Dolma's attributes do, so that a rule can be changed without
writing the text again.

A reader is called with a file and its recorded name; a step is made from its settings, once in each worker. Both are pure:
equal bytes and settings give equal documents and decisions, in whatever process, after whatever other document.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol

type Scalar = str | int | float | bool | None
"""What stands in metadata and evidence. Floats are finite; where a float decides, its definition says how it is computed."""

Action = Literal["keep", "remove", "change"]


@dataclass(frozen=True, slots=True)
class Document:
    """One document.

    ``id`` is given by :func:`document_id` when it is read, and no step changes it. ``source`` names the file it came from, as
    the list of sources has it. ``added`` and ``created`` are times that the source itself tells (RFC 3339, or empty), never
    that of the building. ``metadata`` has what else the source says: ``position`` (line, row or record in the source, from
    1) always, ``url`` where there is one.
    """

    id: str
    text: str
    source: str
    added: str = ""
    created: str = ""
    metadata: Mapping[str, Scalar] = field(default_factory=dict)
    left_out: tuple[str, ...] = ()
    """Fields of the source that are not metadata here, by their names."""


@dataclass(frozen=True, slots=True)
class Decision:
    """What a step decided about a document. ``reason`` is one of the contract: ``exact_duplicate``, ``near_duplicate``,
    ``contaminated``, ``language``, ``quality`` or ``rule:<name>``. ``evidence``: value, threshold, the kept document's
    id, places: whatever lets a reader check the decision without this program."""

    document: str
    step: str
    action: Action
    reason: str
    evidence: Mapping[str, Scalar] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Problem:
    """Something in a source that gives no document: counted by ``reason`` (few words, no values in it), named by source and
    ``position`` (line, row or record, from 1; 0 where the file as a whole is meant). ``found`` says what was there."""

    source: str
    position: int
    reason: str
    found: str = ""


@dataclass(frozen=True, slots=True)
class Judgement:
    """A document after a step, None where it is removed, and the decisions that led to it. A step that has nothing to say
    gives the document as it is and no decision; every change of the text and every removal has one."""

    document: Document | None
    decisions: tuple[Decision, ...] = ()


class Step(Protocol):
    """A step that looks at one document at a time. What it opens (a model) it opens when it is made."""

    def judge(self, document: Document) -> Judgement:
        """What becomes of ``document``; never raises for what the document holds."""

    def measured(self, document: Document) -> Mapping[str, Any]:
        """What the rules find in a ``document`` that they leave as it is, beside their thresholds: names and values, or a
        mapping for each rule. Nothing is decided by it."""


class Settings(Protocol):
    """The typed configuration of a step: a frozen ``msgspec.Struct`` with a tag. All that decides stands in its fields."""

    def make(self) -> Step:
        """The step. Imports of libraries stand in here, not at the top of the module."""


class Reader(Protocol):
    """A function that reads one kind of file."""

    def __call__(self, path: Path, source: str) -> Iterator[Document | Problem]:
        """The documents of a file in its order, and what could not be one.

        What is damaged is a :class:`Problem`, also where the file ends too early; the reader goes on where it can. A document
        of more than :data:`MOST_BYTES` is a problem, never a document.

        Raises:
            OSError: the file cannot be opened or read from.
        """


def encodable(text: str) -> str:
    """``text`` where it can be written as UTF-8; half of a surrogate pair as its escape, ``\\ud83d``."""
    return text if text.isascii() else text.encode("utf-8", "backslashreplace").decode("utf-8")


MARKUP, XML = "markup", "xml"
"""In the metadata of a page that its server called XHTML, whose rules its markup has."""
MOST_BYTES = 64 << 20
"""UTF-8 bytes that one document may have."""


def document_id(source: str, position: int, text: str) -> str:
    """The id of the document at ``position`` (from 1) of ``source``: 32 hex digits of a SHA-256 over origin and content.

    Two copies of a text have two ids; a source that is read again gives the same ones.
    """
    content = hashlib.sha256(text.encode("utf-8")).digest()
    origin = hashlib.sha256(source.encode("utf-8")).digest()
    named = hashlib.sha256(b"marin.document:" + origin + position.to_bytes(8, "big") + content)
    return named.hexdigest()[:32]
