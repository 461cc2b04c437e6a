"""Documents in which every value that a user told keeps its mark, until it is written.

A document is JSON-shaped; a leaf is a :class:`~marin.plugins.sharing.dossier.facts.Entry` value, or a constant of the form.
Written, it is plain JSON, and the list of fields says of each told value where it stands (RFC 6901) and where it comes from.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from typing import Any

from marin.plugins.sharing.dossier.evidence import proof_path
from marin.plugins.sharing.dossier.facts import Entry


def encode_document(value: object) -> bytes:
    """JSON as every file of a dossier has it: equal values give equal bytes."""
    return json.dumps(value, indent=1, sort_keys=False, ensure_ascii=False, allow_nan=False).encode() + b"\n"


def plain(document: Any) -> Any:
    """The document without marks."""
    match document:
        case Entry(value=value):
            return value
        case Mapping():
            return {name: plain(value) for name, value in document.items()}
        case list() | tuple():
            return [plain(value) for value in document]
    return document


def fields(document: Any, file: str, at: str = "") -> Iterator[dict[str, Any]]:
    """Every told value of a document, with where it stands and where it comes from."""
    match document:
        case Entry():
            yield field(document, file, at)
        case Mapping():
            for name, value in document.items():
                escaped = str(name).replace("~", "~0").replace("/", "~1")
                yield from fields(value, file, f"{at}/{escaped}")
        case list() | tuple():
            for place, value in enumerate(document):
                yield from fields(value, file, f"{at}/{place}")


def field(told: Entry, file: str, at: str) -> dict[str, Any]:
    """One field as ``fields.json`` lists it."""
    return {
        "file": file,
        "at": at,
        "name": told.name,
        "value": told.value,
        "source": told.source,
        "events": list(told.events),
        "proofs": [proof_path(index) for index in told.events],
        **({"measured": True} if told.measured else {}),
    }
