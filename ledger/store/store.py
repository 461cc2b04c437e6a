"""The artifact store: immutable bytes and trees of them, addressed by what they are.

    store = Store(open_storage("records"))
    corpus = store.put_tree(Path("corpus"))     # Artifact("sha256:…", size=…, kind="tree")
    store.checkout(corpus.digest, Path("copy"))
    store.verify(corpus.digest)                 # [] when every byte is what it was

Guarantees. When a put has returned, every byte is durable and has been hashed. A blob is whole under its
digest or is not there. Blobs come before the manifest that names them, so a tree that is there can be read.
Every read hashes; nothing is believed for its mode, time or existence. Putting twice is putting once, and
makes young again for ``gc``.

What an attacker gains who can write the store: artifacts can be removed, and nobody will read other bytes in
place of them. Where the bytes lie is told by ``ledger.store.layout``.
"""

from __future__ import annotations

import os
import stat
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from itertools import batched
from pathlib import Path
from typing import BinaryIO, Final, Literal

from ledger.errors import Conflict, LedgerError, NotFound, Refused, Tampered
from ledger.format.digest import digest_bytes, parse_digest
from ledger.format.finding import Finding
from ledger.storage.port import Storage
from ledger.store.blobs.blobs import Blobs
from ledger.store.blobs.chunking import put_chunked
from ledger.store.blobs.hashing import Hashed, hash_bytes
from ledger.store.blobs.presence import all_present, presence
from ledger.store.layout import BLOBS, PACKED, PACKFILES, STAT_CACHE, TREES, digest_of, tree_name
from ledger.store.packs.packfile import check_packfile
from ledger.store.packs.packing import CHUNK_MAX
from ledger.store.parts import PART_SIZE, small_digest
from ledger.store.trees import checkout
from ledger.store.trees.files import StoredFolder
from ledger.store.trees.intake import take_many
from ledger.store.trees.manifest import Manifest, ManifestEntry
from ledger.store.trees.paths import check_tree
from ledger.store.trees.scan import ScannedFile, scan
from ledger.store.trees.statcache import Content, Listing, StatCache, Status
from ledger.store.workers.manyfiles import collector_paused

Kind = Literal["blob", "tree"]

_QUESTIONS: Final = 16
_SMALL: Final = 1024 * 1024
BATCH_BYTES: Final = 32 * 1024 * 1024
"""Of small blobs, how many bytes are held in memory before they are written or sent."""
_BATCH_FILES: Final = 4096


@dataclass(frozen=True, slots=True)
class Artifact:
    """What a put gives back: enough to find the bytes again and to know them when they are found."""

    digest: str
    size: int
    kind: Kind


class Store:
    """The artifacts below one root."""

    def __init__(self, storage: Storage, *, seen: Path | None = None) -> None:
        """``seen``: where the stat cache of a store on a local disk lies; below ``projections/`` unless given."""
        self.storage = storage
        self.blobs = Blobs(storage)
        cache = storage.local_path(STAT_CACHE) if storage.writable else None
        self._seen = StatCache(seen or cache if cache is not None else None)

    # Putting

    def put_bytes(self, data: bytes) -> Artifact:
        """Keep bytes from memory."""
        hashed = self.blobs.put_bytes(data)
        return Artifact(hashed.digest, hashed.size, "blob")

    def put_file(self, path: Path, *, link: bool = False, chunked: bool = False, plain: bool = False) -> Artifact:
        """Keep a file of any size; ``chunked`` in pieces that its content cuts (``packs.packing``), shared with other
        files.

        With ``plain`` it is found by its plain sha256 as well, which is another above 8 MiB.

        With ``link`` the store shares the file by a hard link where it can: no byte is copied, the file becomes
        read-only, and anyone who changes it in place makes the artifact unreadable (never wrong). One that is executable
        is copied, for it would lose that.
        """
        location = str(path.absolute())
        started = time.time_ns()
        status = _status(path)
        now = Status.of(status)
        before, content = self._seen.file(location) or (None, None)
        again = not plain or status.st_size <= PART_SIZE
        if again and content and before == now and self.blobs.renew(content.digest):
            return Artifact(content.digest, content.size, "blob")
        chunks = chunked and status.st_size > CHUNK_MAX
        link = link and not status.st_mode & stat.S_IXUSR
        hashed = put_chunked(self.blobs, path) if chunks else self.blobs.put_file(path, link=link, plain=plain)
        self._seen.remember_file(location, now, _content(hashed), started)  # as it was before it was hashed
        return Artifact(hashed.digest, hashed.size, "blob")

    @collector_paused()
    def put_tree(
        self, folder: Path, *, link: bool = False, chunked: bool = False, trees: Mapping[str, str] | None = None
    ) -> Artifact:
        """Keep every file below a folder, and the manifest that lists them. ``link`` and ``chunked`` as for a file.

        ``trees``: digests of trees that are here already, by the name of the folder that each is in the new one. NotFound
        names one that is not, or a file of it; Refused a path that both have.
        """
        if trees:
            return self._put_joined(folder, link, chunked, trees)
        started = time.time_ns()
        root = folder.absolute()
        found = scan(root)
        listing = Listing(found)
        whole = self._seen.snapshot(str(root))
        if (
            whole is not None
            and whole.state == listing.state
            and all_present(self.blobs, whole.digests)
            and self.blobs.touch(tree_name(whole.tree))
        ):
            return Artifact(whole.tree, whole.size, "tree")
        known = self._seen.contents(str(root)) if whole is not None else {}
        contents = self._put_files(found, known, link, chunked)
        artifact = self.put_manifest(Manifest(tuple(_entries(found, contents)), checked=True), check=False)
        self._seen.remember_folder(str(root), listing, contents, artifact.digest, started)
        return artifact

    def _put_joined(self, folder: Path, link: bool, chunked: bool, trees: Mapping[str, str]) -> Artifact:
        """One manifest over the folder's own files and those of ``trees``; no other is stored on the way."""
        inner = {f"{name}/": self.manifest(tree) for name, tree in trees.items()}
        found = scan(folder.absolute())
        own = _entries(found, self._put_files(found, {}, link, chunked))
        joined = (ManifestEntry(name + entry.path, *entry[1:]) for name, tree in inner.items() for entry in tree)
        return self.put_manifest(Manifest.of([*own, *joined]))

    def _put_files(
        self, found: Sequence[ScannedFile], known: Mapping[str, tuple[Status, Content]], link: bool, chunked: bool
    ) -> list[Content]:
        """Put each file that is not known, or not as it was. What each of them holds."""
        check_tree(file.path for file in found)  # before the first byte is written
        contents: list[Content | None] = [None] * len(found)
        present = presence(self.blobs)
        for number, file in enumerate(found) if known else ():
            status, content = known.get(file.path, (None, None))
            if content is not None and status == Status.of(file.status) and present(content.digest):
                contents[number] = content
        fresh = [file for file, content in zip(found, contents, strict=True) if content is None]
        new = iter(self._put_fresh(fresh, link, chunked))
        return [content or next(new) for content in contents]

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
        """Whether there is an artifact of that digest. No evidence about its bytes: ``verify`` is."""
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

        ``parts`` is the Merkle root that a manifest gives for the file. It is needed only for a blob whose digest is its
        plain sha256, as older manifests have it: without it such a blob is read as a whole.

        Raises:
            ValueError: a negative start or length.
            NotFound: the store has no such blob.
            Tampered: what was read does not match its digest.
        """
        if start < 0 or length < 0:
            raise ValueError(f"a range from {start} of {length} bytes")
        return self.blobs.read_range(digest, start, length, parts)

    def manifest(self, digest: str) -> Manifest:
        """The list of a tree's files, verified."""
        return Manifest.parse(self._manifest_text(digest), where=digest)

    def _manifest_text(self, digest: str) -> bytes:
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
        return data

    def open_file(self, tree: str, path: str) -> BinaryIO:
        """A verified stream over one file of a tree; large files are read part by part under the tree's digest."""
        return self._open_entry(self.manifest(tree).entry(path))

    def folder(self, tree: str) -> StoredFolder:
        """A tree as a folder that is read where it lies."""
        return StoredFolder.of(self.manifest(tree), self._open_entry)

    def _open_entry(self, entry: ManifestEntry) -> BinaryIO:
        stream = self.blobs.open(entry.digest, entry.parts)
        size = stream.seek(0, os.SEEK_END)
        if size != entry.size:  # anyone who reads from the end would read elsewhere
            stream.close()
            raise Tampered(
                "a file of a tree is not as long as its manifest says",
                where=f"{entry.path} ({entry.digest})",
                expected=f"{entry.size} bytes",
                found=str(size),
                cure="put the tree again or pull it from a remote",
            )
        stream.seek(0)
        return stream

    @collector_paused()
    def checkout(
        self, digest: str, dest: Path, *, how: checkout.How = "auto", replace: bool = False
    ) -> checkout.CheckedOut:
        """Make ``dest`` the file or the folder that a digest names: all of it or nothing. See
        ``ledger.store.trees.checkout``."""
        if self._has_tree(digest):
            text = self._manifest_text(digest)
            return checkout.tree(self.blobs, text, dest, where=digest, how=how, replace=replace)
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
        sound = self._sound_in_packfiles(manifest)
        for entry in manifest:
            if sound.get(entry.digest) == entry.size:
                continue
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
            if name.startswith(PACKFILES):
                return self._verify_packfile(name)
            digest = digest_of(name, PACKED if name.startswith(PACKED) else BLOBS)
        except LedgerError as error:
            return [_finding(error, name)]
        return self._verify_blob(digest, None, digest)

    def digests(self) -> Iterator[tuple[str, Kind]]:
        """Every artifact in the store, trees first. Files that do not belong there are left to ``verify_all``."""
        areas: Sequence[tuple[str, Kind]] = ((TREES, "tree"), (BLOBS, "blob"), (PACKED, "blob"))
        for area, kind in areas:
            for name in self.storage.list(area):
                with suppress(LedgerError):
                    digest = digest_of(name, area)
                    if area != PACKED or not self.blobs.is_whole(digest):
                        yield digest, kind
        sliced = {digest for index in self.blobs.packfiles.indexes() for digest, _ in index}
        yield from ((digest, "blob") for digest in sorted(sliced) if not self.blobs.is_whole(digest))

    # The parts

    def _has_tree(self, digest: str) -> bool:
        return self.blobs.has_name(tree_name(digest))

    def _put_fresh(self, files: Sequence[ScannedFile], link: bool, chunked: bool) -> list[Content]:
        """Put files that no cache knows: the small ones in batches that share the cost of durability."""
        taken = [None] * len(files) if chunked else take_many(self.blobs, files, link=link)
        done = list(taken)
        batch: dict[str, bytes] = {}
        held = 0
        writing: Future[None] | None = None
        # One batch is written while the next one is read and hashed.
        with ThreadPoolExecutor(1) as writer:
            for number, file in enumerate(files):
                if done[number] is not None:
                    continue
                if chunked and file.status.st_size > CHUNK_MAX:
                    done[number] = _content(put_chunked(self.blobs, Path(file.location)))
                    continue
                if file.status.st_size > _SMALL:
                    done[number] = _content(self.blobs.put_file(Path(file.location), link=link and not file.executable))
                    continue
                data = _file_bytes(file.location)
                hashed = hash_bytes(data)
                done[number] = _content(hashed)
                if hashed.digest not in batch:
                    batch[hashed.digest] = data
                    held += len(data)
                if held >= BATCH_BYTES or len(batch) >= _BATCH_FILES:
                    if writing is not None:
                        writing.result()
                    writing = writer.submit(self.blobs.put_many, batch)
                    batch, held = {}, 0
            if writing is not None:
                writing.result()
            self.blobs.put_many(batch)
        return [content for content in done if content is not None]

    def _sound_in_packfiles(self, entries: Iterable[ManifestEntry]) -> dict[str, int]:
        """The length of each small blob that is in a packfile, and nowhere else, with the bytes of its digest."""
        sound: dict[str, int] = {}
        small = (entry.digest for entry in entries if entry.size <= PART_SIZE)
        for some in batched(small, _BATCH_FILES):
            for digest, data in self.blobs.packfiles.read_many(some).items():
                if small_digest(data) == digest and not self.blobs.is_whole(digest):
                    sound[digest] = len(data)
        return sound

    def _verify_packfile(self, name: str) -> list[Finding]:
        """What is wrong with a packfile: its index, or blobs that are nowhere else in the store."""
        findings = []
        for digest, place in check_packfile(self.storage, name):
            if small_digest(self.blobs.packfiles.read(place)) != digest:
                findings.extend(self._verify_blob(digest, None, digest))
        return findings

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
    return Finding(error.what, place, error.expected, error.found, missing=isinstance(error, NotFound))


def _entries(found: Sequence[ScannedFile], contents: Sequence[Content]) -> list[ManifestEntry]:
    """What a manifest says of scanned files, in their order."""
    return [
        ManifestEntry.of((file.path, content.size, content.digest, file.executable, content.parts))
        for file, content in zip(found, contents, strict=True)
    ]


def _content(hashed: Hashed) -> Content:
    return Content(hashed.digest, hashed.size, hashed.parts.root if hashed.parts else None)


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


def _file_bytes(location: str) -> bytes:
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
