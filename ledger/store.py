"""The artifact store: immutable bytes and trees of them, addressed by what they are.

    store = Store(open_storage(".marin"))
    corpus = store.put_tree(Path("corpus"))     # Artifact("sha256:…", size=…, kind="tree")
    store.checkout(corpus.digest, Path("copy"))
    store.verify(corpus.digest)                 # [] when every byte is what it was

Guarantees. When a put has returned, every byte is durable and has been hashed. A blob is whole under its
digest or is not there. Blobs come before the manifest that names them, so a tree that is there can be read.
Every read hashes; nothing is believed for its mode, time or existence. Putting twice is putting once, and
makes young again for `gc`.

What an attacker gains who can write the store: he can remove artifacts, and nobody will read his bytes in
place of them. Where the bytes lie is told by `ledger.storelayout`.
"""

from __future__ import annotations

import hashlib
import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO, Final, Literal

from ledger import checkout
from ledger.blobs import Blobs
from ledger.digest import digest_bytes, parse_digest
from ledger.errors import Conflict, LedgerError, NotFound, Refused, Tampered
from ledger.finding import Finding
from ledger.hashing import Hashed, hash_bytes
from ledger.intake import take_many
from ledger.manifest import PART_SIZE, Manifest, ManifestEntry
from ledger.packing import CHUNK_MAX
from ledger.statcache import Seen, Snapshot, StatCache
from ledger.storage.port import Storage
from ledger.storelayout import BLOBS, PACKED, STAT_CACHE, TREES, digest_of, tree_name
from ledger.treepath import check_tree
from ledger.treescan import Found, scan

Kind = Literal["blob", "tree"]

_QUESTIONS: Final = 16
_SMALL: Final = 1024 * 1024
_BATCH_BYTES: Final = 32 * 1024 * 1024
_BATCH_FILES: Final = 4096


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a put gives back: enough to find the bytes again and to know them when they are found."""

    digest: str
    size: int
    kind: Kind


class Store:
    """The artifacts below one root."""

    def __init__(self, storage: Storage) -> None:
        self.storage = storage
        self.blobs = Blobs(storage)
        cache = storage.local_path(STAT_CACHE) if storage.writable else None
        self._seen = StatCache(cache)

    # Putting

    def put_bytes(self, data: bytes) -> Artifact:
        """Keep bytes from memory."""
        hashed = self.blobs.put_bytes(data)
        return Artifact(hashed.digest, hashed.size, "blob")

    def put_file(
        self, path: Path, *, link: bool = False, chunked: bool = False, plain: bool = False
    ) -> Artifact:
        """Keep a file of any size; ``chunked`` in pieces that its content cuts (`ledger.packing`), shared with other files.

        With `plain` it is found by its plain sha256 as well, which is another above 8 MiB.

        With `link` the store shares the file by a hard link where it can: no byte is copied, the file becomes
        read-only, and whoever changes it in place makes the artifact unreadable (never wrong). One that is executable is
        copied, for it would lose that.
        """
        location = str(path.absolute())
        started = time.time_ns()
        known = self._seen.of(location)
        status = _status(path)
        again = not plain or status.st_size <= PART_SIZE
        if again and known and known.still(status) and self.blobs.renew(known.digest):
            return Artifact(known.digest, known.size, "blob")
        chunks = chunked and status.st_size > CHUNK_MAX
        link = link and not status.st_mode & stat.S_IXUSR
        hashed = self.blobs.put_chunked(path) if chunks else self.blobs.put_file(path, link=link, plain=plain)
        self._seen.remember({location: _as_seen(status, hashed)}, started)
        return Artifact(hashed.digest, hashed.size, "blob")

    def put_tree(self, folder: Path, *, link: bool = False, chunked: bool = False) -> Artifact:
        """Keep every file below a folder, and the manifest that lists them. ``link`` and ``chunked`` as for a file."""
        started = time.time_ns()
        root = folder.absolute()
        found = scan(root)
        state = _state_of(found)
        whole = self._seen.snapshot(str(root))
        if (
            whole is not None
            and whole.state == state
            and self.blobs.all_present(whole.digests)
            and self.blobs.touch(tree_name(whole.tree))
        ):
            return Artifact(whole.tree, whole.size, "tree")
        artifact, digests = self._put_files(root, found, started, link, chunked)
        snapshot = Snapshot(state, digests, artifact.digest, artifact.size)
        self._seen.remember_snapshot(str(root), snapshot, (file.status for file in found), started)
        return artifact

    def _put_files(
        self, root: Path, found: Sequence[Found], started: int, link: bool, chunked: bool
    ) -> tuple[Artifact, bytes]:
        """As `put_tree`, file by file, with the digests of all files, 32 bytes each."""
        known = self._seen.below(str(root))
        old: dict[str, Seen] = {}
        fresh: list[Found] = []
        present = self.blobs.presence()
        for file in found:
            seen = known.get(file.location)
            if seen is not None and seen.still(file.status) and present(seen.digest):
                old[file.path] = seen
            else:
                fresh.append(file)
        unknown = bool(fresh) or not found
        if unknown:
            check_tree(file.path for file in found)  # before the first byte is written
            new = self._put_fresh(fresh, link, chunked)
            old.update((file.path, _as_seen(file.status, new[file.path])) for file in fresh)
        listing = _fingerprint(found, old)
        digests = bytes.fromhex("".join(old[file.path].digest[7:] for file in found))
        tree = self._seen.tree(listing)
        if tree is not None and self.blobs.touch(tree_name(tree)):
            return Artifact(tree, sum(seen.size for seen in old.values()), "tree"), digests
        artifact = self.put_manifest(
            Manifest(
                tuple(
                    ManifestEntry(file.path, seen.size, seen.digest, file.executable, seen.parts)
                    for file in found
                    for seen in (old[file.path],)
                ),
                checked=unknown,
            ),
            check=False,
        )
        self._seen.remember({file.location: old[file.path] for file in fresh}, started)
        self._seen.remember_tree(listing, artifact.digest)
        return artifact, digests

    def put_manifest(self, manifest: Manifest, *, check: bool = True) -> Artifact:
        """Publish a tree whose blobs are here already; NotFound names the first that is not."""
        for entry in manifest if check else ():
            if not self.blobs.has(entry.digest):
                raise NotFound(
                    "a file of the tree is not in the store",
                    where=f"{entry.path} ({entry.digest})",
                    expected="every blob before its manifest",
                    cure="put the file first",
                )
        data = manifest.encode()
        digest = digest_bytes(data)
        name = tree_name(digest)
        try:
            self.storage.ensure(name, data)
        except Conflict:
            self.storage.replace(name, data)
        self.blobs.touch(name)
        return Artifact(digest, manifest.size, "tree")

    # Reading

    def has(self, digest: str) -> bool:
        """Whether there is an artifact of that digest. No evidence about its bytes: `verify` is."""
        return self._has_tree(digest) or self.blobs.has(digest)

    def present(self, digests: Iterable[str]) -> list[str]:
        """Those of many digests that are artifacts here; asked in parallel, for a store that is far away."""
        asked = list(digests)
        with ThreadPoolExecutor(_QUESTIONS) as pool:
            return [digest for digest, has in zip(asked, pool.map(self.has, asked), strict=True) if has]

    def kind(self, digest: str) -> Kind:
        """Whether a digest is that of a tree or of a blob."""
        if self._has_tree(digest):
            return "tree"
        self.blobs.size(digest)
        return "blob"

    def artifact(self, digest: str) -> Artifact:
        """The artifact of a digest."""
        if self._has_tree(digest):
            return Artifact(digest, self.manifest(digest).size, "tree")
        return Artifact(digest, self.blobs.size(digest), "blob")

    def read(self, digest: str) -> bytes:
        """All bytes of a blob, or the canonical manifest of a tree; hashed before they are given out."""
        return self.manifest(digest).encode() if self._has_tree(digest) else self.blobs.read(digest)

    def open(self, digest: str) -> BinaryIO:
        """A seekable stream over a blob that gives out verified bytes only."""
        return self.blobs.open(digest)

    def open_range(self, digest: str, start: int, length: int, *, parts: str | None = None) -> bytes:
        """Some bytes of a blob; above 8 MiB only the parts that they touch are read, each verified.

        `parts` is the Merkle root that a manifest gives for the file. It is needed only for a blob whose digest is its
        plain sha256, as older manifests have it: without it such a blob is read as a whole.
        """
        if start < 0 or length < 0:
            raise ValueError(f"a range from {start} of {length} bytes")
        return self.blobs.read_range(digest, start, length, parts)

    def manifest(self, digest: str) -> Manifest:
        """The list of a tree's files, verified."""
        name = tree_name(digest)
        data = self.blobs.fetch(name, digest)
        found = digest_bytes(data)
        if found != digest:
            raise Tampered(
                "a manifest's bytes differ from its digest",
                where=f"{self.storage.describe()}: {name}",
                expected=digest,
                found=found,
                cure="put the tree again or pull it from a remote",
            )
        return Manifest.parse(data, where=digest)

    def open_file(self, tree: str, path: str) -> BinaryIO:
        """A verified stream over one file of a tree; large files are read part by part under the tree's digest."""
        entry = self.manifest(tree).entry(path)
        return self.blobs.open(entry.digest, entry.parts)

    def checkout(
        self, digest: str, dest: Path, *, how: checkout.How = "auto", replace: bool = False
    ) -> checkout.CheckedOut:
        """Make `dest` the file or the folder that a digest names: all of it or nothing. See `ledger.checkout`."""
        if self._has_tree(digest):
            return checkout.tree(self.blobs, self.manifest(digest), dest, how=how, replace=replace)
        return checkout.file(self.blobs, digest, dest, how=how, replace=replace)

    # Checking

    def verify(self, digest: str) -> list[Finding]:
        """Hash every byte of an artifact again, and say everything that is wrong."""
        parse_digest(digest)
        if not self._has_tree(digest):
            return self._verify_blob(digest, None, digest)
        try:
            manifest = self.manifest(digest)
        except LedgerError as error:
            return [_finding(error, digest)]
        findings = []
        checked: dict[tuple[str, str | None], list[Finding]] = {}
        for entry in manifest:
            key = (entry.digest, entry.parts)
            if key not in checked:
                checked[key] = self._verify_blob(entry.digest, entry, f"{digest}, file {entry.path}")
            findings.extend(checked[key])
        return findings

    def verify_all(self) -> Iterator[Finding]:
        """Hash everything that the store holds, and report each thing wrong as it is found."""
        for name in self.storage.list(TREES):
            yield from self.verify_name(name)
        for name in self.blobs.names():
            yield from self.verify_name(name)

    def verify_name(self, name: str) -> list[Finding]:
        """Hash what lies under one name of the areas of blobs and trees (for a tree, its manifest only)."""
        try:
            if name.startswith(TREES):
                self.manifest(digest_of(name, TREES))
                return []
            digest = digest_of(name, PACKED if name.startswith(PACKED) else BLOBS)
        except LedgerError as error:
            return [_finding(error, name)]
        return self._verify_blob(digest, None, digest)

    def digests(self) -> Iterator[tuple[str, Kind]]:
        """Every artifact in the store, trees first. Files that do not belong there are left to `verify_all`."""
        areas: Sequence[tuple[str, Kind]] = ((TREES, "tree"), (BLOBS, "blob"), (PACKED, "blob"))
        for area, kind in areas:
            for name in self.storage.list(area):
                with suppress(LedgerError):
                    digest = digest_of(name, area)
                    if area != PACKED or not self.blobs.is_whole(digest):
                        yield digest, kind

    # The parts

    def _has_tree(self, digest: str) -> bool:
        return self.blobs.has_name(tree_name(digest))

    def _put_fresh(self, files: Iterable[Found], link: bool, chunked: bool) -> dict[str, Hashed]:
        """Put files that no cache knows: the small ones in batches that share the cost of durability."""
        files = list(files)
        done = {} if chunked else take_many(self.blobs, files, link=link)
        batch: dict[str, bytes] = {}
        held = 0
        writing: Future[None] | None = None
        # One batch is written while the next one is read and hashed.
        with ThreadPoolExecutor(1) as writer:
            for file in files:
                if file.path in done:
                    continue
                if chunked and file.status.st_size > CHUNK_MAX:
                    done[file.path] = self.blobs.put_chunked(Path(file.location))
                    continue
                if file.status.st_size > _SMALL:
                    done[file.path] = self.blobs.put_file(Path(file.location), link=link and not file.executable)
                    continue
                data = _read(file.location)
                hashed = hash_bytes(data)
                done[file.path] = hashed
                if hashed.digest not in batch:
                    batch[hashed.digest] = data
                    held += len(data)
                if held >= _BATCH_BYTES or len(batch) >= _BATCH_FILES:
                    if writing is not None:
                        writing.result()
                    writing = writer.submit(self.blobs.put_many, batch)
                    batch, held = {}, 0
            if writing is not None:
                writing.result()
            self.blobs.put_many(batch)
        return done

    def _verify_blob(self, digest: str, entry: ManifestEntry | None, where: str) -> list[Finding]:
        try:
            hashed = self.blobs.verified(digest)
            recorded = self.blobs.parts(digest) if hashed.size > PART_SIZE else None
        except LedgerError as error:
            return [_finding(error, where)]
        findings = []
        if entry is not None and entry.size != hashed.size:
            findings.append(Finding("size of a file", where, f"{entry.size}", f"{hashed.size}"))
        root = hashed.parts.root if hashed.parts else None
        if entry is not None and entry.parts != root:
            findings.append(Finding("root of a file's parts", where, str(entry.parts), str(root)))
        if recorded is not None and recorded != hashed.parts:
            findings.append(Finding("part hashes recorded beside a blob", where, str(root), recorded.root))
        return findings


def _finding(error: LedgerError, where: str) -> Finding:
    place = where if not error.where or error.where == where else f"{where} ({error.where})"
    return Finding(error.what, place, error.expected, error.found)


def _fingerprint(files: Iterable[Found], seen: Mapping[str, Seen]) -> str:
    """A key for the content of a manifest that costs less than the manifest. It never leaves the stat cache."""
    hasher = hashlib.sha256()
    for file in files:
        known = seen[file.path]
        line = f"{file.path}\0{known.digest}{known.size}{'x' if file.executable else '-'}{known.parts}\n"
        hasher.update(line.encode("utf-8", "surrogateescape"))
    return hasher.hexdigest()


def _state_of(files: Iterable[Found]) -> str:
    """One hash over what the system says of every file: whoever finds it again need not look at one file after the other."""
    lines = [
        f"{path}\0{s.st_dev} {s.st_ino} {s.st_size} {s.st_mtime_ns} {s.st_ctime_ns} {s.st_mode & 0o100}\n"
        for path, _, s in files
    ]
    return hashlib.sha256("".join(lines).encode("utf-8", "surrogateescape")).hexdigest()


def _as_seen(status: os.stat_result, hashed: Hashed) -> Seen:
    """For the cache: the state of a file from before it was hashed, so that a change meanwhile shows."""
    return Seen.of(status, hashed.digest, hashed.parts.root if hashed.parts else None)


def _status(path: Path) -> os.stat_result:
    try:
        status = path.stat()
    except OSError as error:
        raise NotFound(
            "file to put", where=str(path), found=error.strerror or str(error), cure="check the path"
        ) from error
    if not stat.S_ISREG(status.st_mode):
        raise Refused(
            "neither file nor tree", where=str(path), expected="a regular file", cure="put a folder as a tree"
        )
    return status


def _read(location: str) -> bytes:
    try:
        with open(location, "rb", buffering=0) as stream:
            return stream.readall()
    except OSError as error:
        raise NotFound(
            "could not read a file to put",
            where=location,
            found=error.strerror or str(error),
            cure="check it, then put again",
        ) from error
