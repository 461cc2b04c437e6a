"""The ledger: a signed, append-only log of events and a store of the artifacts that they name.

This is the only door. It knows nothing of machine learning; whoever uses it imports names from here and from
nowhere deeper.
"""

from ledger.errors import (
    AlreadyExists,
    Conflict,
    LedgerError,
    Locked,
    Malformed,
    NotFound,
    Refused,
    StorageFailed,
    Tampered,
    Unavailable,
    Unverified,
)
from ledger.storage import MemoryStorage, PosixStorage, Storage, open_storage

__all__ = [
    "AlreadyExists",
    "Conflict",
    "LedgerError",
    "Locked",
    "Malformed",
    "MemoryStorage",
    "NotFound",
    "PosixStorage",
    "Refused",
    "Storage",
    "StorageFailed",
    "Tampered",
    "Unavailable",
    "Unverified",
    "open_storage",
]
