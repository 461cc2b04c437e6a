"""The whole of a root checked as one: the ledger's own check, and every file that a tree in the store names."""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import ledger
from marin.record.root import absolute, open_root, root_location
from marin.record.trust.evidence import NOBODY, DatedEvidence, Sources
from marin.record.trust.pins import Pins, default_pins


@dataclass(frozen=True)
class Audit:
    """What was found. ``checkpoint`` is None when no trusted key signed one; ``artifacts`` None when none were
    hashed."""

    findings: tuple[ledger.Finding, ...]
    checkpoint: ledger.LogCheckpoint | None
    artifacts: int | None
    vouched: tuple[DatedEvidence, ...] = ()
    undecided: tuple[str, ...] = ()
    claimed: tuple[str, ...] = ()
    mine: bool = True
    """Whether the keys are the user's own word, rather than the root's."""

    @property
    def whole(self) -> bool:
        """Whether nothing is wrong."""
        return not self.findings


def audit_log(
    vkeys: Sequence[ledger.VerifierKey] = (),
    *,
    log_only: bool = False,
    foreign: bool = False,
    trusted: Sources = NOBODY,
    workers: int | None = None,
) -> Audit:
    """Check the root that is in use, under its own key unless others are given, and what others vouch for it.

    ``foreign``: the root itself is a tlog-tiles folder, without a store and without events. ``trusted``: whose
    word counts beside the log's. ``workers``: processes that look into entries, as many as there are cores by
    default.
    """
    if vkeys:
        storage, keys, mine = ledger.open_storage(root_location(), readonly=True), list(vkeys), True
    else:
        root = open_root()
        found = root.keys()
        storage, keys, mine = root.storage, list(found.verifiers), found.mine
    hashing = not (log_only or foreign)
    log = "" if foreign else "log"
    anchored: list[tuple[int, ledger.Event]] = []
    findings = ledger.check(
        storage,
        keys,
        deep=hashing,
        log=log,
        entries_are_events=not foreign,
        workers=workers or os.cpu_count() or 1,
        of_type={ledger.ANCHORED: anchored},
    )
    held = None
    if hashing:
        store = ledger.Store(storage)
        findings += absent_files(store)
        held = sum(1 for _ in store.digests())
    reader = ledger.LogReader(storage, keys, log=log)
    try:
        newest = reader.checkpoint()
    except ledger.LedgerError:
        return Audit(tuple(findings), None, held, mine=mine)  # the findings say why
    if foreign:
        return Audit(tuple(findings), newest, held, mine=mine)
    if not findings:
        try:
            Pins(default_pins()).compare(reader, storage, absolute(root_location()), named=mine)
        except (ledger.Tampered, ledger.Unverified) as error:
            findings.append(ledger.Finding(error.what, error.where, error.expected, error.found))
    evidence = trusted.gather(storage, reader, keys, anchored)
    return Audit(
        (*findings, *evidence.findings), newest, held, evidence.vouched, evidence.undecided, evidence.claimed, mine
    )


def is_foreign() -> bool:
    """Whether the root in use is a tlog-tiles log by itself: it has a checkpoint, and no log of ours."""
    storage = ledger.open_storage(root_location(), readonly=True)
    return storage.exists("checkpoint") and not storage.exists("log/checkpoint")


def absent_files(store: ledger.Store) -> Iterator[ledger.Finding]:
    """Files that trees name and the store does not have."""
    for digest, kind in store.digests():
        if kind == "tree":
            yield from _absent_files(store, digest)


def _absent_files(store: ledger.Store, digest: str) -> Iterator[ledger.Finding]:
    try:
        manifest = store.manifest(digest)
    except ledger.LedgerError:
        return  # a damaged manifest is a finding of its own
    for entry in manifest.entries:
        if not store.has(entry.digest):
            yield ledger.Finding(
                "a file of a tree is not in the store", f"{digest}, file {entry.path}", entry.digest, "nothing"
            )
