"""Which software a machine of a cluster has: the installed code and the lock, as one comparable text."""

from __future__ import annotations

from ledger import Unavailable
from marin.provenance.code import code_folder, files_digest, lock_digest


def software() -> str:
    """Digests of the installed code and of its lock: what a worker must have in common with its driver."""
    folder = code_folder()
    return f"{files_digest(folder, ('ledger', 'marin'))} under lock {lock_digest(folder)}"


def other_software_than(expected: str, where: str = "Ray worker") -> Unavailable | None:
    """Why a worker cannot work for a driver that has the software ``expected``; None where it can."""
    found = software()
    if found == expected:
        return None
    return Unavailable(
        "the worker has other software than the driver",
        where=where,
        expected=expected,
        found=found,
        cure="use the same image on all machines (docs/cluster.md)",
    )
