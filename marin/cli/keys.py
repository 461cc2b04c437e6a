"""Verifier keys as people type them."""

from __future__ import annotations

from ledger import LedgerError, Malformed, VerifierKey
from marin.errors import UsageError


def parse_vkey(text: str) -> VerifierKey:
    """A verifier key that was given on the command line.

    Raises:
        UsageError: it is not one.
    """
    try:
        return VerifierKey.parse(text.strip())
    except Malformed as error:
        raise UsageError(
            error.what,
            where=error.where or repr(text[:80]),
            expected=error.expected,
            found=error.found,
            cure=error.cure or "copy the whole line that `marin init` printed",
        ) from None
    except LedgerError as error:
        raise UsageError("not a verifier key", where=repr(text[:80]), found=str(error)) from None
