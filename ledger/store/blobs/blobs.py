"""Blobs: bytes under the name of their digest (``ledger.store.parts``). Written once, verified whenever they are
read.

Writing. The bytes are complete and durable before they are visible under their digest. On a local disk a
large file is copied (by reflink where the file system can) or hard-linked to a private temporary file, hashed
there, and only then given its name, so that a source that changes meanwhile spoils nothing. Where a blob is
there already, its bytes are compared; if it rotted or was edited through a hard link, the good bytes take its
place.

Reading. Mode, time and existence prove nothing: every read hashes. A blob that collection has set aside is
brought back by anyone who asks for it.
"""

from __future__ import annotations

import hashlib
import io
import logging
import os
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final

from ledger.errors import Conflict, LedgerError, Malformed, NotFound, Refused, Tampered
from ledger.storage.plain import check_plain
from ledger.storage.port import Storage
from ledger.store.blobs.hashing import Hashed, hash_bytes, hash_file, hash_stream
from ledger.store.blobs.partstream import PartStream
from ledger.store.blobs.quarantine import Quarantine
from ledger.store.blobs.staging import READ_ONLY, changed, explained, stage_file, state_of
from ledger.store.layout import BLOBS, PACKED, PACKFILES, STORE, blob_name, packed_name, packfile_name, parts_name
from ledger.store.packs.packfile import Packfiles, Slice
from ledger.store.packs.packing import MAX_DEPTH, Chunks, Packed, PieceStream, Planes, expand, parse_packed
from ledger.store.parts import PART_SIZE, PartHashes, small_digest

RENEW_SECONDS: Final = 60.0
"""A blob touched less than this ago is not touched again: garbage collection adds it to every age."""

_STREAM: Final = 1024 * 1024
_PUT_AGAIN: Final = "put the original again or pull it from a remote; what differs is not used"
_log = logging.getLogger(__name__)


class Blobs:
    """The blobs of one storage."""

    def __init__(self, storage: Storage) -> None:
        self._storage = storage
        self.packfiles = Packfiles(storage)
        self._quarantine = Quarantine(storage)
        here = storage.local_path(STORE + "x")
        # On a local disk; names of the store are made from digests, so they are safe to append to a path as they are.
        self.folder = self._base = None if here is None else f"{here.parent.parent}{os.sep}"

    @property
    def shares(self) -> bool:
        """Whether a file outside may be one of the store's own under a second name."""
        return self._storage.writable

    @property
    def keeps_times(self) -> bool:
        """Whether a put that finds its blob there makes it young: on a disk, not in a bucket."""
        return self._base is not None

    @property
    def where(self) -> str:
        """Where they lie, as people say it: a folder, or an address."""
        return self._base or self._storage.describe()

    # Writing

    def put_bytes(self, data: bytes, hashed: Hashed | None = None) -> Hashed:
        """Keep these bytes."""
        hashed = hashed or hash_bytes(data)
        name = blob_name(hashed.digest)
        try:
            self._storage.ensure(name, data)
        except Conflict:
            self._warn_replaced(name)
            self._storage.replace(name, data)
        self.touch(name)
        self._record_parts(hashed)
        return hashed

    def put_many(self, blobs: Mapping[str, bytes]) -> None:
        """Keep these small blobs, given by digest, with the cost of durability shared."""
        named = {blob_name(digest): data for digest, data in blobs.items()}
        try:
            self._storage.ensure_many(named.items())
        except Conflict:
            for digest, data in blobs.items():
                self.put_bytes(data, Hashed(digest, len(data), None))
        for name in named:
            self.touch(name)

    def put_file(self, path: Path, *, link: bool = False, plain: bool = False) -> Hashed:
        """Keep the bytes of a local file of any size; with ``plain`` a large one is found by its plain sha256 as well."""
        self.check_writable()
        with explained(path, self.where):
            if self._base is None:
                hashed = self._put_remote(path, plain)
            else:
                with stage_file(path, Path(self._base, STORE), link=link, plain=plain) as (private, hashed):
                    self.take(hashed, private)
        if hashed.plain is not None:
            self.put_packed(Chunks(hashed.plain, hashed.size, ((hashed.digest, hashed.size),)))
        return hashed

    def put_packed(self, packed: Packed) -> None:
        """Keep the record of a packed blob, whose ingredients are here already; what it gives is hashed when it is
        read."""
        name, data = packed_name(packed.digest), packed.encode()
        try:
            self._storage.ensure(name, data)
        except Conflict:
            self._storage.replace(name, data)
        self.touch(name)

    def put_parts(self, parts: PartHashes) -> None:
        """Keep the part hashes of a blob that came in pieces."""
        self._record_parts(Hashed(parts.digest, parts.size, parts))

    def take(self, hashed: Hashed, file: Path, *, link: bool = True) -> None:
        """Keep a file whose bytes are known to be these; with ``link`` it is the caller's to give away."""
        self._adopt(blob_name(hashed.digest), file, link)
        self._record_parts(hashed)

    def take_packfiles(self, folder: Path, *, link: bool = True) -> list[str]:
        """Keep the finished packfiles in a folder, which have their names there; their names in the store.

        With ``link`` they are the caller's to give away; see ``ledger.store.workers.fileworker``.
        """
        named = {
            packfile_name(f"sha256:{name}"): folder / name for name in sorted(os.listdir(folder)) if len(name) == 64
        }
        for packfile, path in named.items():
            try:
                self._storage.adopt(packfile, path, link=link)
            except Conflict:
                self._warn_replaced(packfile)
                self._storage.replace(packfile, path.read_bytes())  # at once: the others in it stay readable
            self.touch(packfile)
        self.packfiles.publish()
        return list(named)

    def renew(self, digest: str) -> bool:
        """Make a blob young for garbage collection; False if it is not there."""
        place = None if self._is_there(blob_name(digest)) else self.packfiles.find(digest)
        if place is not None and self.touch(place.packfile):
            return True
        if self.touch(blob_name(digest)) or self._restored(digest) or self.touch(packed_name(digest)):
            return True
        place = self.packfiles.find(digest) if self._look_again() else None
        return place is not None and self.touch(place.packfile)

    def touch(self, name: str) -> bool:
        """Make something in the store young for garbage collection, and read-only; False if it is not there."""
        if self._base is None:
            return self._storage.exists(name) or self._quarantine.restore(name)
        path = self._base + name
        try:
            status = os.lstat(path)
            check_plain(status.st_mode, name)
            if status.st_mode & 0o222:
                os.chmod(path, READ_ONLY)
            if abs(time.time() - status.st_mtime) > RENEW_SECONDS:
                os.utime(path)
        except FileNotFoundError:
            return self._quarantine.restore(name)
        except PermissionError:
            _log.warning("%s belongs to another user: its mode and its age stay", name)
        return True

    # Reading

    def has(self, digest: str) -> bool:
        """Whether a blob is there. No evidence about its bytes."""
        name = blob_name(digest)
        there = (
            self._is_there(name)
            or self.packfiles.find(digest) is not None
            or self._quarantine.restore(name)
            or self._restored(digest)
            or self.has_name(packed_name(digest))
        )
        return there or (self._look_again() and (self.packfiles.find(digest) is not None or self._restored(digest)))

    def has_name(self, name: str) -> bool:
        """As ``has``, for anything in the store."""
        return self._is_there(name) or self._quarantine.restore(name)

    def size(self, digest: str) -> int:
        """How long a blob is, by its file, its packfile or its record."""
        return self._looked_for(partial(self._size, digest))

    def _size(self, digest: str) -> int:
        place = self._slice(digest)
        if place is not None:
            return place.size
        try:
            return self._restoring(blob_name(digest), digest, self._storage.size)
        except NotFound:
            return self._packed_or_missing(digest).size

    def packed(self, digest: str) -> Packed | None:
        """The record of a packed blob; None for one that is kept as it is, or not at all.

        Raises:
            Malformed: the record of a packed blob is not one.
        """
        name = packed_name(digest)
        try:
            data = self._restoring(name, digest, self._storage.read)
        except NotFound:
            return None
        packed = parse_packed(data, where=f"{self._storage.describe()}: {name}")
        if packed.digest != digest:
            raise Malformed("record of a packed blob", where=name, expected=digest, found=packed.digest)
        return packed

    def is_whole(self, digest: str) -> bool:
        """Whether a blob is kept as it is."""
        return self.has_name(blob_name(digest))

    def fetch(self, name: str, digest: str) -> bytes:
        """The bytes under a name of the store, not verified; NotFound names the digest."""
        return self._restoring(name, digest, self._storage.read)

    def read(self, digest: str) -> bytes:
        """All bytes of a blob, verified."""
        return self._looked_for(partial(self._read, digest))

    def _read(self, digest: str) -> bytes:
        place = self._slice(digest)
        if place is not None:
            return self._sliced(digest, place)
        try:
            data = self.fetch(blob_name(digest), digest)
        except NotFound:
            with self.stream(digest) as stream:
                data = stream.read()
        hashed = hash_bytes(data, plain=self._plain(digest)).under(digest)
        if hashed.digest != digest:
            raise self.tampered(digest, hashed)
        return data

    def hash(self, digest: str, sink: Callable[[memoryview], object] | None = None) -> Hashed:
        """What the bytes under this digest hash to in truth, shown to ``sink`` on the way."""
        place = self._slice(digest)
        if place is not None:
            data = self._looked_for(partial(self._sliced, digest, place, sure=False))
            if sink is not None:
                sink(memoryview(data))
            return hash_bytes(data, plain=self._plain(digest)).under(digest)
        with self.stream(digest) as stream:
            if sink is None and isinstance(stream, io.BufferedReader) and isinstance(stream.raw, io.FileIO):
                return self.hash_as(digest, stream)
            return hash_stream(stream, sink, plain=self._plain(digest)).under(digest)

    def hash_as(self, digest: str, file: BinaryIO, into: BinaryIO | None = None) -> Hashed:
        """What a local file hashes to, under ``digest`` if that is a name of its bytes; copied to ``into`` on the way."""
        return hash_file(file, into=into, plain=self._plain(digest)).under(digest)

    def plain_sha256(self, digest: str) -> str:
        """The plain sha256 of a blob's bytes, as other tools name them; every byte is read and verified."""
        hasher = hashlib.sha256()
        self.verified(digest, hasher.update)
        return f"sha256:{hasher.hexdigest()}"

    def stream(self, digest: str, depth: int = MAX_DEPTH + 1) -> BinaryIO:
        """The bytes of a blob, packed or not, forwards only and not verified."""
        return self._looked_for(partial(self._stream, digest, depth))

    def _stream(self, digest: str, depth: int) -> BinaryIO:
        place = self._slice(digest)
        if place is not None:
            return io.BytesIO(self._sliced(digest, place, sure=False))
        try:
            return self._whole(digest)
        except NotFound:
            packed = self._packed_or_missing(digest)
        if depth == 0:
            raise Tampered(
                "a packed blob rests on too many others",
                where=f"{self._storage.describe()}: {packed_name(digest)}",
                expected=f"at most {MAX_DEPTH} in a row",
                cure=_PUT_AGAIN,
            )

        def read(chunk: str) -> bytes:
            place = self._slice(chunk)
            if place is not None:
                return self._sliced(chunk, place)
            with self._whole(chunk) as stream:
                data = stream.read(PART_SIZE + 1)  # no chunk is longer: what a far server sends may be
            if small_digest(data) != chunk:
                raise self.tampered(chunk, hash_bytes(data))
            return data

        pieces = expand(packed, read, lambda ingredient: self.stream(ingredient, depth - 1))
        return io.BufferedReader(PieceStream(pieces), _STREAM)

    def verified(self, digest: str, sink: Callable[[memoryview], object] | None = None) -> Hashed:
        """As ``hash``, and Tampered if that is another digest. What ``sink`` was shown is good only after the return."""
        hashed = self.hash(digest, sink)
        if hashed.digest != digest:
            raise self.tampered(digest, hashed)
        return hashed

    def open(self, digest: str, root: str | None = None) -> BinaryIO:
        """A seekable stream that never gives out a byte which it has not verified.

        Above 8 MiB each part is checked as it is read: under the digest, or ``root`` if the caller has one that it
        trusts. Without either (the blob's digest is its plain sha256) the whole blob is read first.
        """
        if self.size(digest) <= PART_SIZE:
            return io.BytesIO(self.read(digest))
        packed = None if self.is_whole(digest) else self._packed_or_missing(digest)
        if isinstance(packed, Planes):
            return self._unpacked(digest, root)
        parts = self._sure_parts(digest, root) or self.verified(digest).parts
        if parts is None or (root and parts.root != root):
            raise self._other_root(digest, root or "", parts)
        return io.BufferedReader(PartStream(self._fetcher(digest, packed), parts), 256 * 1024)

    def read_range(self, digest: str, start: int, length: int, root: str | None = None) -> bytes:
        """Some bytes of a blob, each part that they touch verified under the digest, or ``root``; see ``open``."""
        if self.size(digest) <= PART_SIZE:
            return self.read(digest)[start : start + length]
        parts = self._sure_parts(digest, root)
        packed = None if self.is_whole(digest) else self._packed_or_missing(digest)
        if parts is None or isinstance(packed, Planes):
            with self.open(digest, root) as stream:
                stream.seek(start)
                return stream.read(length)
        with PartStream(self._fetcher(digest, packed), parts) as verified:
            verified.seek(start)
            wanted = max(0, min(length, parts.size - start))
            return verified.read_exactly(wanted)

    def parts(self, digest: str, root: str | None = None) -> PartHashes | None:
        """The part hashes recorded beside a blob, or None; Tampered if they do not give ``root``."""
        name = parts_name(digest)
        try:
            recorded = PartHashes.parse(self._storage.read(name), where=name)
        except NotFound:
            return None
        except Malformed as error:
            raise Tampered(
                "part hashes recorded beside a blob cannot be read",
                where=f"{self._storage.describe()}: {name}",
                expected=error.expected,
                found=error.found,
                cure=_PUT_AGAIN,
            ) from error
        if recorded.digest != digest or (root is not None and recorded.root != root):
            raise self._other_root(digest, root or digest, recorded)
        return recorded

    def local(self, digest: str) -> str | None:
        """The file of a blob on a local disk, for those who share it and hash it themselves; None where there is
        none."""
        return None if self._base is None else self._looked_for(partial(self._local, self._base, digest))

    def _local(self, base: str, digest: str) -> str | None:
        name = blob_name(digest)
        if self._slice(digest) is not None:
            return None
        if not self.has_name(name):
            self._packed_or_missing(digest)
            return None
        return base + name

    def names(self) -> Iterator[str]:
        """Every name in the areas of blobs, of packed blobs and of packfiles."""
        yield from self._storage.list(BLOBS)
        yield from self._storage.list(PACKED)
        yield from self._storage.list(PACKFILES)

    def tampered(self, digest: str, found: Hashed) -> Tampered:
        """The error for a blob that hashes to something else; names the parts that differ where they are known."""
        where = f"{self._storage.describe()}: {blob_name(digest)}"
        place = self._slice(digest)
        if place is not None:
            last = place.start + place.size - 1
            where = f"{self._storage.describe()}: {place.packfile}, bytes {place.start} to {last}"
        try:
            recorded = self.parts(digest)
        except LedgerError:
            recorded = None
        if recorded is not None and found.parts is not None and recorded.size == found.size:
            bad = recorded.differing(found.parts)
            where += ", " + ", ".join(recorded.name(index) for index in bad[:4]) + (" and more" if len(bad) > 4 else "")
        elif recorded is not None and recorded.size != found.size:
            where += f" (of {recorded.size} bytes, now {found.size})"
        return Tampered(
            "a blob's bytes differ from its digest", where=where, expected=digest, found=found.digest, cure=_PUT_AGAIN
        )

    # The parts

    def check_writable(self) -> None:
        """Refused where the store is open for reading only."""
        if not self._storage.writable:
            raise Refused(
                "the store is open for reading only", where=self._storage.describe(), cure="open it for writing"
            )

    def _is_there(self, name: str) -> bool:
        return self._storage.exists(name)

    def _looked_for[T](self, get: Callable[[], T]) -> T:
        """What ``get`` gives, on a second look where the first one may have been at an old listing of packfiles."""
        try:
            return get()
        except NotFound:
            if not self._look_again():
                raise
        return get()

    def _look_again(self) -> bool:
        again = self.packfiles.look_again()
        if again:
            self._quarantine.look_again()
        return again

    def _slice(self, digest: str) -> Slice | None:
        """Where a blob lies that is in a packfile and not whole."""
        place = self.packfiles.find(digest)
        if place is None:
            self._restored(digest)  # by this thread or by another one
            place = self.packfiles.find(digest)
        # Far away that would be a question for each blob; `_sliced` looks for a whole one where the packfile has other
        # bytes.
        return place if place is None or self._base is None or not self._is_there(blob_name(digest)) else None

    def _sliced(self, digest: str, place: Slice, *, sure: bool = True) -> bytes:
        """The bytes of a blob in a packfile; where they rotted, those of another place that has them right.

        Raises:
            NotFound: there are none any more.
            Tampered: none of them is right, unless the caller is not sure and hashes what is given.
        """
        found: bytes | None = None
        readers = [partial(self.packfiles.read, place)]
        readers += [partial(self.packfiles.read, other) for other in self.packfiles.places(digest) if other != place]
        for read in (*readers, partial(self._storage.read, blob_name(digest))):
            with suppress(NotFound):
                data = read()
                if small_digest(data) == digest:
                    return data
                found = data if found is None else found
        if found is None:
            raise self._missing(digest)
        if sure:
            raise self.tampered(digest, hash_bytes(found))
        return found

    def _restored(self, digest: str) -> bool:
        """Bring back a packfile that has this blob, if garbage collection set it aside and the blob is nowhere else."""
        name = self.packfiles.aside(digest, self._quarantine.packfiles())
        if name is None or self._is_there(blob_name(digest)) or not self._quarantine.restore(name):
            return False
        self.packfiles.publish()
        return True

    def _whole(self, digest: str) -> BinaryIO:
        return self._restoring(blob_name(digest), digest, self._storage.open)

    def _packed_or_missing(self, digest: str) -> Packed:
        packed = self.packed(digest)
        if packed is None:
            raise self._missing(digest)
        return packed

    def _plain(self, digest: str) -> Callable[[], bool]:
        """Whether a large blob's digest may be its plain sha256: not so where the record beside it gives the digest."""
        return lambda: self._certified(digest) is None

    def _certified(self, digest: str) -> PartHashes | None:
        with suppress(LedgerError):
            recorded = self.parts(digest)
            return recorded if recorded is not None and recorded.certified else None
        return None

    def _sure_parts(self, digest: str, root: str | None) -> PartHashes | None:
        """The part hashes recorded beside a blob, where ``root`` or the digest itself vouches for them."""
        return self.parts(digest, root) if root else self._certified(digest)

    def _unpacked(self, digest: str, root: str | None) -> BinaryIO:
        """A packed blob as a temporary file that was hashed on the way there."""
        unpacked = tempfile.TemporaryFile()  # noqa: SIM115 - the caller closes it
        try:
            parts = self.verified(digest, unpacked.write).parts
            if root and (parts is None or parts.root != root):
                raise self._other_root(digest, root, parts)
            unpacked.seek(0)
        except BaseException:
            unpacked.close()
            raise
        return unpacked

    def _put_remote(self, path: Path, plain: bool) -> Hashed:
        with open(path, "rb") as source:
            before = state_of(source)
            hashed = hash_file(source, plain=plain)
        name = blob_name(hashed.digest)
        self._adopt(name, path, link=False)
        with open(path, "rb") as source:
            if state_of(source) != before:
                self._storage.remove(name)
                raise changed(path)
        self._record_parts(hashed)
        return hashed

    def _adopt(self, name: str, file: Path, link: bool) -> None:
        try:
            self._storage.adopt(name, file, link=link)
        except Conflict:
            self._warn_replaced(name)
            self._storage.remove(name)
            self._storage.adopt(name, file, link=link)
        self.touch(name)

    def _record_parts(self, hashed: Hashed) -> None:
        if hashed.parts is None:
            return
        name = parts_name(hashed.digest)
        try:
            self._storage.ensure(name, hashed.parts.encode())
        except Conflict:
            self._warn_replaced(name)
            self._storage.replace(name, hashed.parts.encode())

    def _restoring[T](self, name: str, digest: str, get: Callable[[str], T]) -> T:
        try:
            return get(name)
        except NotFound:
            if self._quarantine.restore(name):
                return get(name)
        raise self._missing(digest)

    def _missing(self, digest: str) -> NotFound:
        return NotFound(
            "no such artifact",
            where=f"{digest} in {self._storage.describe()}",
            cure="pull it from a remote, or run the step that makes it",
        )

    def _fetcher(self, digest: str, packed: Chunks | None) -> Callable[[int, int], bytes]:
        """Reads some bytes of a blob, of one in chunks only the chunks that they touch. Not verified."""
        if packed is None:
            name = blob_name(digest)
            return lambda start, length: self._storage.read_range(name, start, length)
        chunks = packed

        def fetch(start: int, length: int) -> bytes:
            pieces, at = [], 0
            for chunk, size in chunks.chunks:
                first, last = max(start - at, 0), min(start + length - at, size)
                if first < last and (place := self._slice(chunk)) is not None:
                    pieces.append(self._sliced(chunk, place)[first:last])
                elif first < last:
                    read = partial(self._storage.read_range, start=first, length=last - first)
                    pieces.append(self._restoring(blob_name(chunk), chunk, read))
                at += size
            return b"".join(pieces)

        return fetch

    def _other_root(self, digest: str, expected: str, found: PartHashes | None) -> Tampered:
        return Tampered(
            "part hashes of a blob are not those that were named",
            where=f"{self._storage.describe()}: {parts_name(digest)}",
            expected=expected,
            found=found.root if found else "none",
            cure=_PUT_AGAIN,
        )

    def _warn_replaced(self, name: str) -> None:
        _log.warning("%s did not hold the bytes of its digest; the good bytes take its place", name)
