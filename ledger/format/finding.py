"""Finding: one thing that a check found wrong. Checks return lists of them, and never stop at the first."""

from __future__ import annotations

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Finding:
    """What is wrong, where, what should be there and what is. ``str()`` is one line. ``missing``: it is not there at all,
    which accuses nobody of having written it otherwise. ``stray``: an entry of the signed log that is not an event of it, which
    says nothing of the others."""

    what: str
    where: str = ""
    expected: str = ""
    found: str = ""
    missing: bool = False
    stray: bool = False

    def __str__(self) -> str:
        head = ": ".join(part for part in (self.what, self.where) if part)
        contrast = ", ".join(
            f"{label} {value}" for label, value in (("expected", self.expected), ("found", self.found)) if value
        )
        return f"{head}: {contrast}" if contrast else head
