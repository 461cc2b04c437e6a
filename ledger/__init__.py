"""The ledger: a signed, append-only log of events and a store of the artifacts that they name.

This is the only door. It knows nothing of machine learning; whoever uses it imports names from here and from nowhere
deeper. SPEC.md has the bytes. A name's module is imported when the name is first asked for (PEP 562), so that a command
which only prints its help does not wait for cryptography. A new name goes into all three lists below; a test holds them equal.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.batch import Receipt
    from ledger.canonical import canonical_bytes, parse_canonical
    from ledger.checkout import CheckedOut
    from ledger.checkpoint import LogCheckpoint
    from ledger.client import LogClient, Spool
    from ledger.cosigner import Cosigner
    from ledger.database import DoesNotFit, FoldedDatabase
    from ledger.digest import canonical_digest, digest_bytes, parse_digest
    from ledger.errors import (
        AlreadyExists,
        Conflict,
        Fenced,
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
    from ledger.event import Draft, Event, EventTypes, format_time, parse_time
    from ledger.finding import Finding
    from ledger.fsck import check
    from ledger.gc import Collected, Swept, collect_garbage, named_digests
    from ledger.keyring import retire_key, rotate_key
    from ledger.keys import create_key, default_key_path, load_signer
    from ledger.leases import Lease, lease, list_leases
    from ledger.log import Log
    from ledger.manifest import PART_SIZE, Manifest, ManifestEntry
    from ledger.mirror import Mirrored, mirror_log
    from ledger.note import Signer, VerifierKey, add_signatures
    from ledger.pins import Pin, list_pins, pin, unpin
    from ledger.policy import PolicyWitness, WitnessPolicy
    from ledger.projection import Projection
    from ledger.proof import LogProof, ProvenEntry, make_proof, verify_proof
    from ledger.reader import LogReader
    from ledger.scrub import Scrubbed, scrub_store
    from ledger.service import GroupCommit, LogService
    from ledger.shards import PartialTensor, hash_shards, merge_shards
    from ledger.statepack import is_state, load_state, packed_size, put_state, read_state
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
    from ledger.timestamp import Stamped, check_stamp, load_authorities, pem_bytes, stamp_checkpoint
    from ledger.transfer import Copied, Cut, Progress, copy_artifacts
    from ledger.treescan import describe_tree
    from ledger.trust import follow_keys
    from ledger.witness import Witness, WitnessServer, ask_witness, check_witnessed

__all__ = [
    "PART_SIZE",
    "AlreadyExists",
    "Artifact",
    "CheckedOut",
    "Collected",
    "Conflict",
    "Copied",
    "Cosigner",
    "Cut",
    "DoesNotFit",
    "Draft",
    "Event",
    "EventTypes",
    "Fenced",
    "Finding",
    "FoldedDatabase",
    "GroupCommit",
    "Lease",
    "LedgerError",
    "Locked",
    "Log",
    "LogCheckpoint",
    "LogClient",
    "LogProof",
    "LogReader",
    "LogService",
    "Malformed",
    "Manifest",
    "ManifestEntry",
    "MemoryStorage",
    "Mirrored",
    "NotFound",
    "PartialTensor",
    "Pin",
    "PolicyWitness",
    "PosixStorage",
    "Progress",
    "Projection",
    "ProvenEntry",
    "Receipt",
    "Refused",
    "Scrubbed",
    "Signer",
    "Spool",
    "Stamped",
    "StateManifest",
    "Storage",
    "StorageFailed",
    "Store",
    "Swept",
    "Tampered",
    "TensorHasher",
    "TensorInfo",
    "Unavailable",
    "Unverified",
    "VerifierKey",
    "Witness",
    "WitnessPolicy",
    "WitnessServer",
    "add_signatures",
    "ask_witness",
    "canonical_bytes",
    "canonical_digest",
    "check",
    "check_stamp",
    "check_witnessed",
    "collect_garbage",
    "copy_artifacts",
    "create_key",
    "default_key_path",
    "describe_state",
    "describe_tree",
    "digest_bytes",
    "follow_keys",
    "format_time",
    "hash_shards",
    "is_state",
    "lease",
    "list_leases",
    "list_pins",
    "load_authorities",
    "load_signer",
    "load_state",
    "make_proof",
    "merge_shards",
    "mirror_log",
    "named_digests",
    "open_storage",
    "packed_size",
    "parse_canonical",
    "parse_digest",
    "parse_time",
    "pem_bytes",
    "pin",
    "put_state",
    "read_state",
    "retire_key",
    "rotate_key",
    "scrub_store",
    "stamp_checkpoint",
    "state_digest",
    "tensor_digest",
    "tensor_info",
    "unpin",
    "verify_proof",
]

_ROOMS = {
    "canonical": "canonical_bytes parse_canonical",
    "checkout": "CheckedOut",
    "checkpoint": "LogCheckpoint",
    "client": "LogClient Spool",
    "cosigner": "Cosigner",
    "database": "DoesNotFit FoldedDatabase",
    "digest": "canonical_digest digest_bytes parse_digest",
    "errors": "AlreadyExists Conflict Fenced LedgerError Locked Malformed NotFound Refused StorageFailed Tampered"
    " Unavailable Unverified",
    "event": "Draft Event EventTypes format_time parse_time",
    "finding": "Finding",
    "fsck": "check",
    "keys": "create_key default_key_path load_signer",
    "batch": "Receipt",
    "log": "Log",
    "manifest": "Manifest ManifestEntry PART_SIZE",
    "note": "Signer VerifierKey add_signatures",
    "projection": "Projection",
    "proof": "LogProof ProvenEntry make_proof verify_proof",
    "reader": "LogReader",
    "service": "GroupCommit LogService",
    "storage": "MemoryStorage PosixStorage Storage open_storage",
    "store": "Artifact Store",
    "shards": "PartialTensor hash_shards merge_shards",
    "statepack": "is_state load_state packed_size put_state read_state",
    "pins": "Pin list_pins pin unpin",
    "tensors": "StateManifest TensorHasher TensorInfo describe_state state_digest tensor_digest tensor_info",
    "treescan": "describe_tree",
    "gc": "Collected Swept collect_garbage named_digests",
    "leases": "Lease lease list_leases",
    "scrub": "Scrubbed scrub_store",
    "transfer": "Copied Cut Progress copy_artifacts",
    "keyring": "retire_key rotate_key",
    "policy": "PolicyWitness WitnessPolicy",
    "timestamp": "Stamped check_stamp load_authorities pem_bytes stamp_checkpoint",
    "trust": "follow_keys",
    "mirror": "Mirrored mirror_log",
    "witness": "Witness WitnessServer ask_witness check_witnessed",
}
_HOME = {name: f"ledger.{room}" for room, names in _ROOMS.items() for name in names.split()}


def __getattr__(name: str) -> object:
    if name not in _HOME:
        raise AttributeError(f"module 'ledger' has no attribute {name!r}")
    value = getattr(import_module(_HOME[name]), name)
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
