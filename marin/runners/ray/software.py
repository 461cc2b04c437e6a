"""Which software a machine of a cluster has: the installed code and the lock, as one comparable text."""

from __future__ import annotations

from marin.provenance.code import code_folder, files_digest, lock_digest


def software() -> str:
    """Digests of the installed code and of its lock: what a worker must have in common with its driver."""
    folder = code_folder()
    return f"{files_digest(folder, ('ledger', 'marin'))} under lock {lock_digest(folder)}"
