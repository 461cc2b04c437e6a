"""The whole of a root checked as one: the ledger's own check, and every file that a tree in the store names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path

from ledger import (
    Event,
    Finding,
    LedgerError,
    LogCheckpoint,
    LogReader,
    Store,
    VerifierKey,
    check,
    open_storage,
)
from marin.evidence import ANCHORED, Vouched, gather
from marin.root import open_root, root_location


@dataclass(frozen=True)
class Audit:
    """What was found. ``checkpoint`` is None when no trusted key signed one; ``artifacts`` None when none were hashed."""

    findings: tuple[Finding, ...]
    checkpoint: LogCheckpoint | None
    artifacts: int | None
    vouched: tuple[Vouched, ...] = ()
    undecided: tuple[str, ...] = ()

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def audit_log(
    vkeys: Sequence[VerifierKey] = (),
    *,
    log_only: bool = False,
    foreign: bool = False,
    authorities: Path | None = None,
    workers: int | None = None,
) -> Audit:
    """Check the root that is in use, under its own key unless others are given, and what others vouch for it.

    ``foreign``: the root itself is a tlog-tiles folder, without a store and without events. ``authorities``: PEM file of
    those whose time stamps count. ``workers``: processes that look into entries, as many as there are cores by default.
    """
    if vkeys:
        storage, keys = open_storage(root_location(), readonly=True), list(vkeys)
    else:
        root = open_root()
        storage, keys = root.storage, [root.verifier]
    hashing = not (log_only or foreign)
    log = "" if foreign else "log"
    anchored: list[tuple[int, Event]] = []
    findings = check(storage, keys, deep=hashing, log=log, entries_are_events=not foreign,
                     workers=workers or os.cpu_count() or 1, of_type={ANCHORED: anchored})
    held = None
    if hashing:
        store = Store(storage)
        findings += absent_files(store)
        held = sum(1 for _ in store.digests())
    reader = LogReader(storage, keys, log=log)
    try:
        newest = reader.checkpoint()
    except LedgerError:
        return Audit(tuple(findings), None, held)  # the findings say why
    if foreign:
        return Audit(tuple(findings), newest, held)
    evidence = gather(storage, reader, keys, anchored, authorities=authorities)
    return Audit((*findings, *evidence.findings), newest, held, evidence.vouched, evidence.undecided)


def is_foreign() -> bool:
    """Whether the root in use is a tlog-tiles log by itself: it has a checkpoint, and no log of ours."""
    storage = open_storage(root_location(), readonly=True)
    return storage.exists("checkpoint") and not storage.exists("log/checkpoint")


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
