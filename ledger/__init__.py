"""The ledger: a signed, append-only log of events and a store of the artifacts that they name.

This is the only door. It knows nothing of machine learning; whoever uses it imports names from here and from
nowhere deeper.
"""

from ledger.checkout import CheckedOut
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
from ledger.finding import Finding
from ledger.manifest import PART_SIZE, Manifest, ManifestEntry
from ledger.storage import MemoryStorage, PosixStorage, Storage, open_storage
from ledger.store import Artifact, Store
from ledger.tensors import (
    StateManifest,
    TensorHasher,
    TensorInfo,
    describe_state,
    state_digest,
    tensor_digest,
    tensor_info,
)

__all__ = [
    "PART_SIZE",
    "AlreadyExists",
    "Artifact",
    "CheckedOut",
    "Conflict",
    "Finding",
    "LedgerError",
    "Locked",
    "Malformed",
    "Manifest",
    "ManifestEntry",
    "MemoryStorage",
    "NotFound",
    "PosixStorage",
    "Refused",
    "StateManifest",
    "Storage",
    "StorageFailed",
    "Store",
    "Tampered",
    "TensorHasher",
    "TensorInfo",
    "Unavailable",
    "Unverified",
    "describe_state",
    "open_storage",
    "state_digest",
    "tensor_digest",
    "tensor_info",
]
