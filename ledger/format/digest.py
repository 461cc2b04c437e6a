"""Digests as text: ``sha256:`` and 64 lower-case hexadecimal digits, never cut short."""

from __future__ import annotations

import hashlib
import re
from collections.abc import Sequence

from ledger.errors import Malformed
from ledger.format.canonical import canonical_bytes

_FORM = re.compile(r"sha256:[0-9a-f]{64}\Z")
_FORMS = re.compile(r"sha256:[0-9a-f]{64}(?:\nsha256:[0-9a-f]{64})*\Z")
_LENGTH = len("sha256:") + 64


def digest_bytes(data: bytes) -> str:
    """The digest of ``data``."""
    return f"sha256:{hashlib.sha256(data).hexdigest()}"


def canonical_digest(value: object) -> str:
    """The digest of the canonical JSON of ``value``."""
    return digest_bytes(canonical_bytes(value))


def check_digest(text: str) -> None:
    """``Malformed`` unless ``text`` is a digest."""
    if not _FORM.match(text):
        raise Malformed("not a digest", where=repr(text[:100]), expected="sha256: and 64 lower-case hexadecimal digits")


def check_digests(texts: Sequence[str]) -> None:
    """``check_digest`` for each of many, with one look at all of them."""
    together = "\n".join(texts)
    if len(together) != len(texts) * (_LENGTH + 1) - 1 or not _FORMS.match(together):
        for text in texts:
            check_digest(text)


def parse_digest(text: str) -> bytes:
    """The 32 bytes that a digest stands for; ``Malformed`` for anything else."""
    check_digest(text)
    return bytes.fromhex(text[7:])
