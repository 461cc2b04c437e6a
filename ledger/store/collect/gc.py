"""Garbage collection: what nobody names is set aside first, and deleted by a later run at the earliest.

    plan = collect_garbage(store, roots=named_digests(events), min_age=7 * 86400, dry_run=True)

Kept: every digest in ``roots`` (for a tree, its files), whatever was put or put again since ``min_age`` seconds ago,
and whatever was put since the oldest living lease began. A young tree keeps its files, whatever their age.

The rest goes to ``store/quarantine/<seconds since 1970>/``, by renaming. A later run deletes what has been there for
``min_age``, unless it has been named meanwhile: then it comes back, as it does when a user asks for it or puts it
again. So a put that races a collection, an event that arrives late or a clock that jumps ahead loses no bytes: two runs
and the minimum age stand between a blob and its end. With ``min_age=0`` the last minute still counts as young.

Nothing is collected when a manifest that is kept cannot be read, for then its files are not known.
Pins (``ledger.store.collect.pins``) are roots as well. A packed blob keeps what it is made from.
A packfile stays as long as one of its blobs is kept; when that is
less than half of it, those are kept whole, each by itself, and the packfile goes.

In a bucket it works the same way, with two differences: a put that finds its blob there cannot make it young, so that
only being named, or asked for, brings it back from quarantine; and the lock excludes collectors of this process alone,
which costs nothing, because two collectors do the same things.
"""

from __future__ import annotations

import logging
import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.errors import LedgerError, Malformed, NotFound, Refused, StorageFailed, Tampered
from ledger.format.digest import digest_bytes, parse_digest
from ledger.storage.port import Detail
from ledger.store import layout
from ledger.store.blobs.blobs import RENEW_SECONDS
from ledger.store.collect.leases import list_leases
from ledger.store.collect.pins import list_pins
from ledger.store.packs.packfile import Index, read_index
from ledger.store.packs.packing import parse_packed
from ledger.store.parts import small_digest
from ledger.store.store import Store
from ledger.store.trees.manifest import Manifest, ManifestEntry

DEFAULT_AGE: Final = 7 * 86400.0
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Swept:
    """One thing that collection did, or would do: ``set aside``, ``delete`` or ``bring back``, and why."""

    act: str
    name: str
    size: int
    why: str

    def __str__(self) -> str:
        return f"{self.act} {self.name} ({self.size} bytes): {self.why}"


@dataclass(frozen=True, slots=True)
class Collected:
    """What a collection found and did. ``missing`` are roots of which the store has nothing."""

    swept: tuple[Swept, ...]
    kept: int
    missing: tuple[str, ...]
    dry_run: bool

    def bytes_of(self, act: str) -> int:
        """How many bytes one kind of act concerned."""
        return sum(swept.size for swept in self.swept if swept.act == act)


def collect_garbage(
    store: Store, roots: Iterable[str], *, min_age: float = DEFAULT_AGE, dry_run: bool = False, now: float | None = None
) -> Collected:
    """Set aside what is garbage and delete what has been set aside for long enough; see the module's docstring.
    Ages are in seconds.

    Raises:
        Refused: ``min_age`` is negative.
        Malformed: a lease, a pin or a kept manifest cannot be read; nothing was collected.
        Locked: another collection is at work.
    """
    if min_age < 0:
        raise Refused("garbage collection", expected="a minimum age of 0 or more", found=f"{min_age:g}")
    collection = _Collection(store, time.time() if now is None else now, min_age, dry_run)
    if dry_run:
        return collection.run(roots)
    with store.storage.lock(layout.GC_LOCK, "garbage collection"):
        return collection.run(roots)


@dataclass(frozen=True, slots=True)
class _Aside:
    """Something in quarantine: where it lies, the name it had, since when, its size."""

    where: str
    name: str
    since: float
    size: int


class _Collection:
    """One run: mark, restore, sweep, delete."""

    def __init__(self, store: Store, now: float, min_age: float, dry_run: bool) -> None:
        self._store, self._storage, self._now, self._dry_run = store, store.storage, now, dry_run
        self._min_age = min_age
        # A put leaves a time stamp that is younger than this alone, so everything may look that much older than it is.
        self._young = now - min_age - RENEW_SECONDS
        self._swept: list[Swept] = []
        self._packfiles: dict[str, Index] = {}
        self._unreadable_packfiles: set[str] = set()
        self._reasons: dict[str, str] = {}
        self._why = f"nothing names it, older than {min_age:g} s"

    def run(self, roots: Iterable[str]) -> Collected:
        for held in list_leases(self._storage):
            if held.alive(self._now):
                self._young = min(self._young, held.began - RENEW_SECONDS)
        named = {*roots, *(found.digest for found in list_pins(self._storage))}
        # Set aside by earlier runs; what this run sets aside is looked at by the next.
        aside = list(self._set_aside())
        areas = {
            area: list(self._storage.details(area))
            for area in (layout.TREES, layout.PACKED, layout.BLOBS, layout.PACKFILES, layout.PARTS)
        }
        lying = {old.name: old.where for old in aside}
        lying |= {found.name: found.name for area in areas.values() for found in area}
        self._read_packfiles(lying)
        keep, missing = self._mark(named, areas, lying)
        for old in aside:
            self._decide(old, old.name in keep)
        self._take_out(areas[layout.PACKFILES], keep)
        kept = self._sweep(areas, keep)
        if not self._dry_run and any(swept.name.startswith(layout.PACKFILES) for swept in self._swept):
            self._store.blobs.packfiles.publish()
        return Collected(tuple(self._swept), kept, tuple(sorted(missing)), self._dry_run)

    def _mark(
        self, roots: set[str], areas: Mapping[str, list[Detail]], lying: Mapping[str, str]
    ) -> tuple[set[str], set[str]]:
        """Names that are kept for being named, and roots that are not here at all."""
        keep: set[str] = set()
        missing: set[str] = set()
        for area in (layout.TREES, layout.PACKED):
            for found in areas[area]:
                with suppress(Malformed):
                    digest = layout.digest_of(found.name, area)
                    if digest not in roots and found.modified >= self._young:
                        self._keep(digest, lying, keep)
        for digest in roots:
            self._keep(digest, lying, keep)
            if not any(name(digest) in lying for name in (layout.tree_name, layout.blob_name, layout.packed_name)):
                raw = parse_digest(digest)
                if all(index.find(raw) is None for index in self._packfiles.values()):
                    missing.add(digest)
        # What was taken out of a packfile that was set aside does not bring it back.
        keep.update(
            [
                name
                for name, index in self._packfiles.items()
                if any(
                    layout.blob_name(d) in keep and (lying[name] == name or layout.blob_name(d) not in lying)
                    for d, _ in index
                )
            ]
        )
        return keep, missing

    def _read_packfiles(self, lying: Mapping[str, str]) -> None:
        """Know what is in each packfile. One that cannot be read is for ``Store.verify_all`` to name, and stays."""
        for name, where in lying.items():
            if name.startswith(layout.PACKFILES):
                try:
                    self._packfiles[name] = read_index(self._storage, name, where)
                except NotFound:
                    continue  # gone meanwhile
                except Malformed as error:
                    _log.warning("%s", error)
                    self._unreadable_packfiles.add(name)

    def _take_out(self, packfiles: Iterable[Detail], keep: set[str]) -> None:
        """Keep blobs by themselves that are less than half of their packfile, which goes then."""
        for found in packfiles:
            index = self._packfiles.get(found.name)
            if index is None or found.name not in keep or found.modified >= self._young:
                continue
            kept = [(digest, place) for digest, place in index if layout.blob_name(digest) in keep]
            if sum(place.size for _, place in kept) * 2 >= sum(place.size for _, place in index):
                continue
            try:
                blobs = {digest: self._store.blobs.packfiles.read(place) for digest, place in kept}
            except NotFound:
                continue  # another collector was here
            if any(small_digest(data) != digest for digest, data in blobs.items()):
                continue  # what is left of it may be needed
            if not self._dry_run:
                self._store.blobs.put_many(blobs)
            keep.discard(found.name)
            self._reasons[found.name] = f"{len(kept)} of its {len(index)} blobs are named, which are kept by themselves"

    def _keep(self, digest: str, lying: Mapping[str, str], keep: set[str]) -> None:
        """Keep an artifact with everything that it is made from."""
        waiting = [digest]
        while waiting:
            digest = waiting.pop()
            tree, packed = layout.tree_name(digest), layout.packed_name(digest)
            if layout.blob_name(digest) in keep:
                continue
            keep.update((tree, packed, layout.blob_name(digest), layout.parts_name(digest)))
            if tree in lying:
                waiting.extend(entry.digest for entry in self._manifest(digest, lying[tree]))
            if packed in lying:
                waiting.extend(self._ingredients(digest, lying[packed]))

    def _manifest(self, digest: str, name: str) -> Iterable[ManifestEntry]:
        try:
            data = self._storage.read(name)
            if digest_bytes(data) != digest:
                raise Tampered("the bytes differ from their digest", where=name)
            return Manifest.parse(data, where=digest)
        except NotFound:
            return ()  # gone meanwhile
        except LedgerError as error:
            raise self._unreadable("manifest", digest, error) from error

    def _ingredients(self, digest: str, name: str) -> Iterable[str]:
        try:
            return parse_packed(self._storage.read(name), where=name).ingredients
        except NotFound:
            return ()
        except LedgerError as error:
            raise self._unreadable("record of a packed blob", digest, error) from error

    def _unreadable(self, what: str, digest: str, error: LedgerError) -> StorageFailed:
        return StorageFailed(
            f"nothing was collected: a {what} that is kept cannot be read",
            where=digest,
            found=str(error),
            cure="restore it from a remote or put the artifact again, then collect",
        )

    def _set_aside(self) -> Iterator[_Aside]:
        """Everything in quarantine."""
        for found in self._storage.details(layout.QUARANTINE):
            batch, _, name = found.name.removeprefix(layout.QUARANTINE).partition("/")
            if batch.isdecimal() and name:
                yield _Aside(found.name, layout.STORE + name, float(batch), found.size)

    def _decide(self, old: _Aside, named: bool) -> None:
        """Bring back or delete something that an earlier run set aside, or leave it where it is."""
        status = self._look(old.where)
        if status is None:
            return  # brought back meanwhile
        renewed = self._store.blobs.keeps_times and status.modified > old.since
        if named or renewed:
            self._swept.append(Swept("bring back", old.name, old.size, "named again" if named else "put again"))
            self._move(old.where, old.name)
        elif old.since <= self._now - self._min_age and not self._protected_since(old.since):
            ago = f"set aside {self._now - old.since:.0f} s ago"
            self._swept.append(Swept("delete", old.name, old.size, ago))
            if not self._dry_run:
                self._storage.remove(old.where)
                self._prune()

    def _protected_since(self, since: float) -> bool:
        """Whether a lease that lives began before something was set aside: its writer may have counted on it."""
        return any(held.alive(self._now) and held.began <= since for held in list_leases(self._storage))

    def _sweep(self, areas: Mapping[str, list[Detail]], keep: set[str]) -> int:
        """Set aside what is neither named nor young; the number of artifacts that stay."""
        kept: set[str] = set()
        for area in (layout.TREES, layout.PACKED, layout.BLOBS, layout.PACKFILES, layout.PARTS):
            for found in areas[area]:
                spread = found.name.removeprefix(area)
                if found.name in keep or found.modified >= self._young or found.name in self._unreadable_packfiles:
                    kept.add(spread)
                elif area == layout.PARTS and spread in kept:
                    continue  # part hashes go with their blob
                elif (now := self._look(found.name)) is not None and now.modified < self._young:
                    why = self._reasons.get(found.name, self._why)
                    self._swept.append(Swept("set aside", found.name, found.size, why))
                    aside = f"{layout.QUARANTINE}{int(self._now)}/{found.name.removeprefix(layout.STORE)}"
                    self._move(found.name, aside)
                elif now is not None:
                    kept.add(spread)
        for found in self._storage.details(layout.INCOMING):
            if found.modified < self._young:
                why = "a transfer that nobody went on with"
                self._swept.append(Swept("delete", found.name, found.size, why))
                if not self._dry_run:
                    self._storage.remove(found.name)
        whole = sum(
            1
            for area in (layout.TREES, layout.PACKED, layout.BLOBS)
            for found in areas[area]
            if found.name.removeprefix(area) in kept
        )
        return whole + sum(
            len(self._packfiles.get(found.name, ()))
            for found in areas[layout.PACKFILES]
            if found.name.removeprefix(layout.PACKFILES) in kept
        )

    def _move(self, name: str, to: str) -> None:
        if self._dry_run:
            return
        with suppress(NotFound):  # gone meanwhile: another process brought it back
            if not name.startswith(layout.QUARANTINE) or not self._storage.exists(to):
                self._storage.rename(name, to)
            else:
                # It was put again; the new file was verified by that put, this one by nobody.
                self._storage.remove(name)
        self._prune()

    def _prune(self) -> None:
        """Remove folders of the quarantine that have become empty, on a disk that has folders."""
        quarantine = self._storage.local_path(layout.QUARANTINE.rstrip("/"))
        if quarantine is None:
            return
        for folder, _, _ in os.walk(quarantine, topdown=False):
            if Path(folder) != quarantine:
                with suppress(OSError):
                    os.rmdir(folder)

    def _look(self, name: str) -> Detail | None:
        """What a name is now."""
        return next((found for found in self._storage.details(name) if found.name == name), None)
