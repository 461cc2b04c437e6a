"""The whole of a root checked as one: the ledger's own check, and every file that a tree in the store names."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from ledger import Finding, LedgerError, LogCheckpoint, LogReader, Store, VerifierKey, check, open_storage
from marin.root import open_root, root_location


@dataclass(frozen=True)
class Audit:
    """What was found. ``checkpoint`` is None when no trusted key signed one; ``artifacts`` None when none were hashed."""

    findings: tuple[Finding, ...]
    checkpoint: LogCheckpoint | None
    artifacts: int | None

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def audit_log(vkeys: Sequence[str] = (), *, log_only: bool = False, foreign: bool = False) -> Audit:
    """Check the root that is in use, under its own key unless others are given.

    ``foreign``: the root itself is a tlog-tiles folder, without a store and without events.
    """
    if vkeys:
        storage = open_storage(root_location(), readonly=True)
        keys = [VerifierKey.parse(key.strip()) for key in vkeys]
    else:
        root = open_root()
        storage, keys = root.storage, [root.verifier]
    hashing = not (log_only or foreign)
    log = "" if foreign else "log"
    findings = check(storage, keys, deep=hashing, log=log, entries_are_events=not foreign)
    held = None
    if hashing:
        store = Store(storage)
        findings += absent_files(store)
        held = sum(1 for _ in store.digests())
    try:
        newest = LogReader(storage, keys, log=log).checkpoint()
    except LedgerError:
        newest = None  # the findings say why
    return Audit(tuple(findings), newest, held)


def absent_files(store: Store) -> Iterator[Finding]:
    """Files that trees name and the store does not have."""
    for digest, kind in store.digests():
        if kind == "tree":
            yield from _absent_files(store, digest)


def _absent_files(store: Store, digest: str) -> Iterator[Finding]:
    try:
        manifest = store.manifest(digest)
    except LedgerError:
        return  # a damaged manifest is a finding of its own
    for entry in manifest.entries:
        if not store.has(entry.digest):
            yield Finding("a file of a tree is not in the store", f"{digest}, file {entry.path}", entry.digest, "nothing")
