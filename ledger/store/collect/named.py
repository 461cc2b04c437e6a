"""What a JSON document names: who only asks that needs nothing of the store."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import suppress

from ledger.errors import Malformed
from ledger.format.digest import parse_digest


def named_digests(document: object) -> Iterator[str]:
    """Every digest in a JSON document, wherever it stands: what the ledger names, it keeps."""
    if isinstance(document, str):
        with suppress(Malformed):
            parse_digest(document)
            yield document
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from named_digests(key)
            yield from named_digests(value)
    elif isinstance(document, list | tuple):
        for value in document:
            yield from named_digests(value)
