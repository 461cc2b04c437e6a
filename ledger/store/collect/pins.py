"""Pins: artifacts that are kept although nothing in the ledger names them, until a user takes the pin away.

A pin is a file in the store, ``store/pins/<64 hex>.json``, canonical JSON with the digest and the reason. It is a wish
and no evidence: what must be kept for ever is named by an event.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from ledger.errors import LedgerError, Malformed, NotFound
from ledger.format.canonical import canonical_bytes, parse_canonical
from ledger.format.digest import parse_digest
from ledger.storage.port import Storage
from ledger.store.layout import PINS


@dataclass(frozen=True, slots=True)
class Pin:
    """One pinned artifact, and why."""

    digest: str
    why: str


def pin(storage: Storage, digest: str, why: str = "") -> None:
    """Keep an artifact; another reason replaces the one before."""
    storage.replace(_name(digest), canonical_bytes({"digest": digest, "kind": "pin", "version": 1, "why": why}))


def unpin(storage: Storage, digest: str) -> None:
    """Take the pin away. NotFound if there is none."""
    if not storage.exists(_name(digest)):
        raise NotFound("no such pin", where=digest, cure="`store pins` lists them")
    storage.remove(_name(digest))


def list_pins(storage: Storage) -> Iterator[Pin]:
    """Every pin.

    Raises:
        Malformed: one cannot be read, so what it kept is not known.
    """
    for name in storage.list(PINS):
        try:
            fields = parse_canonical(storage.read(name))
            found = Pin(fields["digest"], fields["why"])
            parse_digest(found.digest)
        except NotFound:
            continue  # taken away meanwhile
        except (LedgerError, KeyError, TypeError) as error:
            raise Malformed(
                "a pin cannot be read",
                where=name,
                expected="a pin of version 1",
                found=str(error),
                cure="remove the file, or pin the artifact again",
            ) from error
        yield found


def _name(digest: str) -> str:
    return f"{PINS}{parse_digest(digest).hex()}.json"
