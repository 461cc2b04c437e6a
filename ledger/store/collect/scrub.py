"""Scrub: hash the whole store again, a little at a time, and go on where the last run stopped.

Disks rot in silence. A scrub reads every artifact at a pace that leaves the machine to others, notes after each how
far it came (``projections/scrub.json``, an accelerator: without it the scrub starts at the beginning), reports what is
wrong, and, given a remote that has the bytes, puts the good ones in place of the bad.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from typing import Final

from ledger.errors import LedgerError, Malformed, NotFound, StorageFailed
from ledger.format.canonical import canonical_bytes, parse_canonical
from ledger.format.finding import Finding
from ledger.store.layout import BLOBS, PACKED, PACKFILES, QUARANTINE, SCRUB_CURSOR, STORE, TREES, digest_of
from ledger.store.packs.packfile import read_index
from ledger.store.store import Store
from ledger.store.transfer import copy_artifacts

_SAVE_SECONDS: Final = 5.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Scrubbed:
    """What one run of a scrub did. ``finished``: it came to the end, and the next run starts at the beginning."""

    checked: int
    size: int
    findings: tuple[Finding, ...]
    repaired: tuple[str, ...]
    finished: bool


def scrub_store(
    store: Store,
    *,
    bytes_per_second: float | None = None,
    most_bytes: int | None = None,
    remote: Store | None = None,
    restart: bool = False,
    pause: Callable[[float], None] = time.sleep,
) -> Scrubbed:
    """Hash on from where the last run stopped, up to ``most_bytes`` or the end; ``pause`` keeps the pace."""
    after = "" if restart else _load(store)
    findings: list[Finding] = []
    repaired: list[str] = []
    checked = size = 0
    started = saved = time.monotonic()
    for name in _names(store, after):
        if most_bytes is not None and size >= most_bytes:
            _save(store, after)
            return Scrubbed(checked, size, tuple(findings), tuple(repaired), False)
        wrong = list(store.verify_name(name))
        findings.extend(wrong)
        if wrong and remote is not None and _repair(store, remote, name):
            repaired.append(name)
        checked, after = checked + 1, name
        size += _size(store, name)
        if bytes_per_second:
            ahead = size / bytes_per_second - (time.monotonic() - started)
            if ahead > 0:
                pause(ahead)
        if time.monotonic() - saved > _SAVE_SECONDS:
            _save(store, after)
            saved = time.monotonic()
    _save(store, "")
    return Scrubbed(checked, size, tuple(findings), tuple(repaired), True)


def _names(store: Store, after: str) -> Iterator[str]:
    for area in (BLOBS, PACKED, PACKFILES, TREES):
        if after and area + "\U0010ffff" < after:
            continue
        yield from (name for name in store.storage.list(area) if name > after)


def _repair(store: Store, remote: Store, name: str) -> bool:
    """Take the good bytes from a remote, which are hashed on arrival; True if all is well then."""
    try:
        if name.startswith(PACKFILES):
            _repair_packfile(store, remote, name)
            if not store.storage.exists(name):
                return True
        elif name.startswith(TREES):
            store.put_manifest(remote.manifest(digest_of(name, TREES)))
        else:
            digest = digest_of(name, PACKED if name.startswith(PACKED) else BLOBS)
            copy_artifacts(remote, store, [digest], even_if_there=True)
    except LedgerError:
        return False
    return not list(store.verify_name(name))


def _repair_packfile(store: Store, remote: Store, name: str) -> None:
    """Take what rotted in it by itself; what is in a packfile without an index, nobody knows, and it goes to
    quarantine."""
    try:
        index = read_index(store.storage, name)
    except Malformed:
        missing = {
            entry.digest
            for tree, kind in store.digests()
            if kind == "tree"
            for entry in store.manifest(tree)
            if not store.blobs.has(entry.digest)
        }
        copy_artifacts(remote, store, remote.present(sorted(missing)))
        if any(not store.blobs.has(digest) for digest in missing):
            return
        store.storage.rename(name, f"{QUARANTINE}{int(time.time())}/{name.removeprefix(STORE)}")
        store.blobs.packfiles.publish()
        return
    bad = [digest for digest, _ in index if store.verify(digest)]
    copy_artifacts(remote, store, remote.present(bad), even_if_there=True)


def _size(store: Store, name: str) -> int:
    try:
        return store.storage.size(name)
    except NotFound:
        return 0


def _load(store: Store) -> str:
    try:
        cursor = parse_canonical(store.storage.read(SCRUB_CURSOR))
        return str(cursor["after"])
    except (LedgerError, KeyError, TypeError):
        return ""


def _save(store: Store, after: str) -> None:
    if not store.storage.writable:
        return
    try:
        store.storage.replace(SCRUB_CURSOR, canonical_bytes({"after": after, "version": 1}))
    except StorageFailed as error:
        _log.warning("the next scrub begins where this one did: %s", error)
