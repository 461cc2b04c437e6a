"""Names as people type them: a digest by its beginning, as in Git. Anything else is wrong usage."""

from __future__ import annotations

import re

from marin.errors import UsageError
from marin.record.root import Root

FEWEST = 6
"""Digits that the beginning of a digest needs at least."""
_BEGINNING = re.compile(rf"(sha256:)?([0-9a-f]{{{FEWEST},64}})")


def beginning_of(name: str) -> str | None:
    """``sha256:`` and the digits that ``name`` gives of a digest; None where it is no beginning of one."""
    found = _BEGINNING.fullmatch(name)
    return f"sha256:{found[2]}" if found else None


def whole_digest(root: Root, name: str) -> str:
    """The digest that ``name`` is, or is the only beginning of, among what the ledger calls by a digest and what the store
    has.

    Raises:
        UsageError: it is no digest, or none or several begin so.
    """
    wanted = beginning_of(name)
    if wanted is None:
        raise UsageError(
            "not a digest",
            where=name[:120],
            expected=f"sha256: and 64 hexadecimal digits in lower case, or the first {FEWEST} or more of them",
            cure="see `marin ls artifacts`",
        )
    if len(wanted) == len("sha256:") + 64:
        return wanted
    from marin.history.catalog import open_catalog  # here: most digests are whole, and need no catalog

    with open_catalog(root) as catalog:
        found = catalog.digests(wanted)
    if not found:
        found = {digest for digest, _ in root.store().digests() if digest.startswith(wanted)}
    if len(found) == 1:
        return found.pop()
    raise UsageError(
        "several digests begin so" if found else "no digest begins so",
        where=name,
        expected="the beginning of one that the ledger names or the store has",
        found=", ".join(sorted(found)[:4]) or "none",
        cure="give more of its digits" if found else "see `marin ls artifacts`",
    )


def known_digest(root: Root, name: str) -> str | None:
    """As :func:`whole_digest`, for a name that may be something else: None then. ``sha256:`` in front says what it is."""
    if beginning_of(name) is None and not name.startswith("sha256:"):
        return None
    try:
        return whole_digest(root, name)
    except UsageError:
        if name.startswith("sha256:"):
            raise
        return None
