"""The ledger: a signed, append-only log of events and a store of the artifacts that they name.

This is the only door. It knows nothing of machine learning; whoever uses it imports names from here and from nowhere
deeper. SPEC.md has the bytes. A name's module is imported when the name is first asked for (PEP 562), so that a command
which only prints its help does not wait for cryptography. A new name goes into all three lists below; a test holds them
equal.
"""

from importlib import import_module
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from ledger.audit.fsck import check
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
    from ledger.format.budgets import BUDGETS, exceeded
    from ledger.format.canonical import canonical_bytes, parse_canonical
    from ledger.format.checkpoint import LogCheckpoint
    from ledger.format.cosigner import Cosigner
    from ledger.format.digest import canonical_digest, digest_bytes, parse_digest
    from ledger.format.event import KEY_TYPES, Draft, Event, EventTypes, format_time, parse_time
    from ledger.format.finding import Finding
    from ledger.format.note import Signer, VerifierKey, add_signatures
    from ledger.format.proof import LogProof, ProvenEntry, verify_proof
    from ledger.format.tlog import root_of
    from ledger.log.batch import Receipt
    from ledger.log.database import DoesNotFit, FoldedDatabase
    from ledger.log.keyring import retire_key, rotate_key
    from ledger.log.keys import create_key, default_key_path, load_signer, public_keys
    from ledger.log.mirror import Mirrored, mirror_log
    from ledger.log.projection import Projection
    from ledger.log.reader import LogReader, make_proof
    from ledger.log.trust import follow_keys
    from ledger.log.writer import Log
    from ledger.service.client import LogClient, Spool
    from ledger.service.server import GroupCommit, LogService
    from ledger.storage import MemoryStorage, PosixStorage, Storage, open_storage
    from ledger.storage.brokered import BROKER_VARIABLE, serving
    from ledger.storage.ownership import check_own
    from ledger.storage.plain import open_plain
    from ledger.store.collect.gc import Collected, Swept, collect_garbage, named_digests
    from ledger.store.collect.leases import Lease, lease, list_leases
    from ledger.store.collect.pins import Pin, list_pins, pin, unpin
    from ledger.store.collect.scrub import Scrubbed, scrub_store
    from ledger.store.store import Artifact, Store
    from ledger.store.transfer import Copied, Cut, Progress, copy_artifacts
    from ledger.store.trees.checkout import CheckedOut
    from ledger.store.trees.manifest import PART_SIZE, Manifest, ManifestEntry
    from ledger.store.trees.scan import describe_tree
    from ledger.tensors.shards import PartialTensor, hash_shards, merge_shards
    from ledger.tensors.slices import (
        Sliced,
        SlicedForm,
        load_slices,
        publish_slices,
        put_slice,
        put_slices,
        write_slices,
    )
    from ledger.tensors.statepack import packed_size, read_state
    from ledger.tensors.tensors import (
        StateManifest,
        TensorHasher,
        TensorInfo,
        describe_state,
        state_digest,
        tensor_digest,
        tensor_info,
    )
    from ledger.witness.policy import PolicyWitness, WitnessPolicy
    from ledger.witness.server import WitnessServer
    from ledger.witness.timestamp import Stamped, check_stamp, load_authorities, pem_bytes, stamp_checkpoint
    from ledger.witness.witness import Witness, ask_witness, check_witnessed

__all__ = [
    "BROKER_VARIABLE",
    "BUDGETS",
    "KEY_TYPES",
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
    "Sliced",
    "SlicedForm",
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
    "check_own",
    "check_stamp",
    "check_witnessed",
    "collect_garbage",
    "copy_artifacts",
    "create_key",
    "default_key_path",
    "describe_state",
    "describe_tree",
    "digest_bytes",
    "exceeded",
    "follow_keys",
    "format_time",
    "hash_shards",
    "lease",
    "list_leases",
    "list_pins",
    "load_authorities",
    "load_signer",
    "load_slices",
    "make_proof",
    "merge_shards",
    "mirror_log",
    "named_digests",
    "open_plain",
    "open_storage",
    "packed_size",
    "parse_canonical",
    "parse_digest",
    "parse_time",
    "pem_bytes",
    "pin",
    "public_keys",
    "publish_slices",
    "put_slice",
    "put_slices",
    "read_state",
    "retire_key",
    "root_of",
    "rotate_key",
    "scrub_store",
    "serving",
    "stamp_checkpoint",
    "state_digest",
    "tensor_digest",
    "tensor_info",
    "unpin",
    "verify_proof",
    "write_slices",
]

_ROOMS = {
    "format.canonical": "canonical_bytes parse_canonical",
    "store.trees.checkout": "CheckedOut",
    "format.checkpoint": "LogCheckpoint",
    "service.client": "LogClient Spool",
    "format.cosigner": "Cosigner",
    "log.database": "DoesNotFit FoldedDatabase",
    "format.digest": "canonical_digest digest_bytes parse_digest",
    "errors": "AlreadyExists Conflict Fenced LedgerError Locked Malformed NotFound Refused StorageFailed Tampered"
    " Unavailable Unverified",
    "format.event": "Draft Event EventTypes KEY_TYPES format_time parse_time",
    "format.finding": "Finding",
    "audit.fsck": "check",
    "log.keys": "create_key default_key_path load_signer public_keys",
    "log.batch": "Receipt",
    "log.writer": "Log",
    "store.trees.manifest": "Manifest ManifestEntry PART_SIZE",
    "format.note": "Signer VerifierKey add_signatures",
    "log.projection": "Projection",
    "format.proof": "LogProof ProvenEntry verify_proof",
    "log.reader": "LogReader make_proof",
    "service.server": "GroupCommit LogService",
    "storage.ownership": "check_own",
    "format.budgets": "BUDGETS exceeded",
    "storage.brokered": "BROKER_VARIABLE serving",
    "storage.plain": "open_plain",
    "storage": "MemoryStorage PosixStorage Storage open_storage",
    "store.store": "Artifact Store",
    "tensors.shards": "PartialTensor hash_shards merge_shards",
    "tensors.slices": "Sliced SlicedForm load_slices publish_slices put_slice put_slices write_slices",
    "tensors.statepack": "packed_size read_state",
    "store.collect.pins": "Pin list_pins pin unpin",
    "tensors.tensors": "StateManifest TensorHasher TensorInfo describe_state state_digest tensor_digest tensor_info",
    "store.trees.scan": "describe_tree",
    "store.collect.gc": "Collected Swept collect_garbage named_digests",
    "store.collect.leases": "Lease lease list_leases",
    "store.collect.scrub": "Scrubbed scrub_store",
    "store.transfer": "Copied Cut Progress copy_artifacts",
    "log.keyring": "retire_key rotate_key",
    "witness.policy": "PolicyWitness WitnessPolicy",
    "witness.timestamp": "Stamped check_stamp load_authorities pem_bytes stamp_checkpoint",
    "log.trust": "follow_keys",
    "format.tlog": "root_of",
    "log.mirror": "Mirrored mirror_log",
    "witness.server": "WitnessServer",
    "witness.witness": "Witness ask_witness check_witnessed",
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
