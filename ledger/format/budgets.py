"""How much the bytes of others may ask of anyone who reads them: one place for the limits, none of which honest logs meet.

A signed checkpoint can claim 2^60 entries, a server can send for ever, a chain of runs can have a million links. What
exceeds a budget is an error of the tree that says where, at most what, and what was found; never a hang, and never the
end of memory. Anyone who reads a whole stranger's log bounds memory and time of the process as well.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Final

from ledger.errors import Malformed


@dataclass(frozen=True)
class Budgets:
    """``log_entries``: a log has no more. ``missing_files``: an audit stops after so many. ``log_file``: bytes of a file
    that is read whole, all but those of the store. ``stored_file``: bytes of one of the store. ``fetched``: bytes of a
    file that a server sends at once, and that are held in memory. ``stall_seconds`` and ``bytes_per_second``: a server
    may take so long for an answer, and then that long for its bytes. ``phases``: runs that one continues."""

    log_entries: int = 1 << 33
    missing_files: int = 1000
    log_file: int = 256 << 20
    stored_file: int = 64 << 30
    fetched: int = 1 << 30
    stall_seconds: float = 60.0
    bytes_per_second: int = 16 << 10
    phases: int = 1000

    def of_file(self, name: str) -> int:
        """Bytes that a file of this name may have where it is read whole."""
        if not name.startswith("store/"):
            return self.log_file
        return next((most for start, most in _SMALL.items() if name.startswith(start)), self.stored_file)


_SMALL: Final = {
    "store/trees/": 1 << 30,
    "store/packed/": 256 << 20,
    "store/parts/": 64 << 20,
    "store/packfiles.txt": 64 << 20,
    "store/leases/": 1 << 20,
    "store/pins/": 1 << 20,
}
"""Bytes of those files of the store that describe others: eight million files, blobs of eight TB."""


BUDGETS: Final = Budgets()


def exceeded(what: str, where: str, most: object, found: object) -> Malformed:
    """The error for what asks too much."""
    return Malformed(
        what,
        where=where,
        expected=f"at most {most}",
        found=str(found),
        cure="nothing of it is used; do not trust this root",
    )
