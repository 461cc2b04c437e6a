"""Garbage collection: what nobody names is set aside first, and deleted by a later run at the earliest.

    plan = collect_garbage(store, roots=named_digests(events), min_age=7 * 86400, dry_run=True)

Kept: every digest in ``roots`` (for a tree, its files), whatever was put or put again since ``min_age`` seconds ago,
and whatever was put since the oldest living lease began. A young tree keeps its files, whatever their age.

The rest goes to ``store/quarantine/<seconds since 1970>/``, by renaming. A later run deletes what has been there for
``min_age``, unless it has been named meanwhile: then it comes back, as it does when somebody asks for it or puts it
again. So a put that races a collection, an event that arrives late or a clock that jumps ahead loses no bytes: two runs and
the minimum age stand between a blob and its end. With ``min_age=0`` the last minute still counts as young.

Nothing is collected when a manifest that is kept cannot be read, for then its files are not known. Collection needs a
store on a local disk; buckets have life cycle rules of their own.
"""

from __future__ import annotations

import os
import time
from collections.abc import Iterable, Iterator, Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Final

from ledger.blobs import RENEW_SECONDS
from ledger.digest import digest_bytes, parse_digest
from ledger.errors import LedgerError, Malformed, Refused, StorageFailed, Tampered
from ledger.leases import list_leases
from ledger.manifest import Manifest
from ledger.store import Store
from ledger.storelayout import (
    BLOBS,
    GC_LOCK,
    INCOMING,
    PARTS,
    QUARANTINE,
    STORE,
    TREES,
    blob_name,
    digest_of,
    parts_name,
    tree_name,
)

DEFAULT_AGE: Final = 7 * 86400.0


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


def named_digests(document: object) -> Iterator[str]:
    """Every digest in a JSON document, wherever it stands: what the ledger names, it keeps."""
    if isinstance(document, str):
        with suppress(Malformed):
            parse_digest(document)
            yield document
    elif isinstance(document, dict):
        for key, value in document.items():
            yield from named_digests(key)
            yield from named_digests(value)
    elif isinstance(document, list | tuple):
        for value in document:
            yield from named_digests(value)


def collect_garbage(
    store: Store,
    roots: Iterable[str],
    *,
    min_age: float = DEFAULT_AGE,
    dry_run: bool = False,
    now: float | None = None,
) -> Collected:
    """Set aside what is garbage and delete what has been set aside for long enough; see the module's docstring."""
    base = store.storage.local_path(STORE + "x")
    if base is None:
        raise Refused(
            "garbage collection",
            where=store.storage.describe(),
            expected="a store on a local disk",
            cure="use the bucket's life cycle rules",
        )
    if min_age < 0:
        raise Refused("garbage collection", expected="a minimum age of 0 or more", found=f"{min_age:g}")
    collection = _Collection(store, base.parent.parent, time.time() if now is None else now, min_age, dry_run)
    if dry_run:
        return collection.run(roots)
    with store.storage.lock(GC_LOCK, "garbage collection"):
        return collection.run(roots)


class _Collection:
    """One run: mark, restore, sweep, delete."""

    def __init__(self, store: Store, base: Path, now: float, min_age: float, dry_run: bool) -> None:
        self._store, self._base, self._now, self._dry_run = store, base, now, dry_run
        self._min_age = min_age
        # A put leaves a time stamp that is younger than this alone, so everything may look that much older than it is.
        self._young = now - min_age - RENEW_SECONDS
        self._swept: list[Swept] = []
        self._why = f"nothing names it, older than {min_age:g} s"

    def run(self, roots: Iterable[str]) -> Collected:
        for held in list_leases(self._store.storage):
            if held.alive(self._now):
                self._young = min(self._young, held.began - RENEW_SECONDS)
        # Set aside by earlier runs; what this run sets aside is looked at by the next.
        aside = list(self._set_aside())
        keep, missing = self._mark(set(roots), {name: path for path, name, _ in aside})
        for path, name, since in aside:
            self._decide(path, name, since, name in keep)
        kept = self._sweep(keep)
        return Collected(tuple(self._swept), kept, tuple(sorted(missing)), self._dry_run)

    def _mark(self, roots: set[str], aside: Mapping[str, Path]) -> tuple[set[str], set[str]]:
        """Names that are kept for being named, and roots that are not here at all."""
        keep: set[str] = set()
        missing: set[str] = set()
        for name in self._store.storage.list(TREES):
            with suppress(Malformed):
                digest = digest_of(name, TREES)
                if digest not in roots and self._is_young(self._base / name):
                    self._keep_tree(digest, self._base / name, keep)
        for digest in roots:
            tree, blob = ((name, self._lying(name, aside)) for name in (tree_name(digest), blob_name(digest)))
            keep.update((tree[0], blob[0], parts_name(digest)))
            if tree[1] is not None:
                self._keep_tree(digest, tree[1], keep)
            elif blob[1] is None:
                missing.add(digest)
        return keep, missing

    def _lying(self, name: str, aside: Mapping[str, Path]) -> Path | None:
        """Where something lies: in its place, in quarantine, or nowhere."""
        path = self._base / name
        return path if path.exists() else aside.get(name)

    def _keep_tree(self, digest: str, path: Path, keep: set[str]) -> None:
        try:
            data = path.read_bytes()
            if digest_bytes(data) != digest:
                raise Tampered("the bytes differ from their digest", where=str(path))
            manifest = Manifest.parse(data, where=digest)
        except FileNotFoundError:
            return  # gone meanwhile
        except (LedgerError, OSError) as error:
            raise StorageFailed(
                "nothing was collected: a manifest that is kept cannot be read",
                where=digest,
                found=str(error),
                cure="restore it from a remote or put the tree again, then collect",
            ) from error
        keep.add(tree_name(digest))
        for entry in manifest:
            keep.update((blob_name(entry.digest), parts_name(entry.digest)))

    def _set_aside(self) -> Iterator[tuple[Path, str, float]]:
        """(where it lies, its name, since when) of everything in quarantine."""
        quarantine = self._base / QUARANTINE
        if not quarantine.is_dir():
            return
        for batch in sorted(quarantine.iterdir()):
            if not batch.name.isdecimal():
                continue
            for path in sorted(path for path in batch.rglob("*") if path.is_file()):
                yield path, STORE + path.relative_to(batch).as_posix(), float(batch.name)

    def _decide(self, path: Path, name: str, since: float, named: bool) -> None:
        """Bring back or delete something that an earlier run set aside, or leave it where it is."""
        try:
            status = path.stat()
        except FileNotFoundError:
            return  # brought back meanwhile
        renewed = status.st_mtime > since
        if named or renewed:
            self._act(
                "bring back", path, self._base / name, status.st_size, "named again" if named else "put again"
            )
        elif since <= self._now - self._min_age and not self._protected_since(since):
            self._swept.append(
                Swept("delete", name, status.st_size, f"set aside {self._now - since:.0f} s ago")
            )
            if not self._dry_run:
                path.unlink()
                self._prune(path.parent)

    def _protected_since(self, since: float) -> bool:
        """Whether a lease that lives began before something was set aside: its writer may have counted on it."""
        return any(held.alive(self._now) and held.began <= since for held in list_leases(self._store.storage))

    def _sweep(self, keep: set[str]) -> int:
        """Set aside what is neither named nor young; the number of artifacts that stay."""
        kept = 0
        target = self._base / QUARANTINE / f"{int(self._now)}"
        for area in (TREES, BLOBS, PARTS):
            for name in list(self._store.storage.list(area)):
                path = self._base / name
                if name in keep or self._is_young(path) or (area == PARTS and self._has_blob(name)):
                    kept += area != PARTS
                    continue
                with suppress(FileNotFoundError):
                    self._act(
                        "set aside", path, target / name.removeprefix(STORE), path.stat().st_size, self._why
                    )
        for name in list(self._store.storage.list(INCOMING)):
            path = self._base / name
            if not self._is_young(path):
                with suppress(FileNotFoundError):
                    self._swept.append(
                        Swept("delete", name, path.stat().st_size, "a transfer that nobody went on with")
                    )
                    if not self._dry_run:
                        path.unlink()
        return kept

    def _has_blob(self, parts: str) -> bool:
        """Part hashes go with their blob."""
        return (self._base / (BLOBS + parts.removeprefix(PARTS))).exists()

    def _act(self, act: str, source: Path, target: Path, size: int, why: str) -> None:
        name = (target if act == "bring back" else source).relative_to(self._base).as_posix()
        self._swept.append(Swept(act, name, size, why))
        if self._dry_run:
            return
        target.parent.mkdir(parents=True, exist_ok=True)
        if act == "bring back" and target.exists():
            source.unlink()  # it was put again; the new file was verified by that put, this one by nobody
        else:
            os.rename(source, target)
        self._prune(source.parent)

    def _prune(self, folder: Path) -> None:
        """Remove folders of the quarantine that have become empty."""
        quarantine = self._base / QUARANTINE
        with suppress(OSError):
            while quarantine in folder.parents:
                folder.rmdir()
                folder = folder.parent

    def _is_young(self, path: Path) -> bool:
        try:
            return path.stat().st_mtime >= self._young
        except FileNotFoundError:
            return True  # gone meanwhile: nothing to collect
