"""Push and pull: artifacts from one store to another, over whatever storages the two lie on.

    copy_artifacts(local, bucket, [digest])     push
    copy_artifacts(bucket, local, [digest])     pull

What the target has already is asked first and not sent. Blobs go in parallel, their manifests last, so a tree that is
there can be read. Bytes are hashed where they arrive: what is pulled by us, what is pushed by the service, if its
answer has its own hash of what it got, and else by reading it back; other bytes are never kept. A break costs
little: blobs that arrived stay, and a large one resumes from the parts of it that arrived, each checked against its
hash. On the way into a bucket, where bytes cannot be added to an object, a blob of 64 MiB and more goes in parts that
are blobs of their own, with a record of how they make the whole (``packs.packing``); with ``cut="content"`` every blob
above 1 MiB goes in pieces cut by its content, so that an edited corpus sends only what was touched. Failures of the
storage are retried a few times, with growing pauses, before one error says what failed.
"""

from __future__ import annotations

import fcntl
import itertools
import logging
import os
import shutil
import tempfile
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_EXCEPTION, ThreadPoolExecutor, wait
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import BinaryIO, Final, Literal

from ledger.errors import NotFound, StorageFailed, Tampered, Unavailable
from ledger.format.digest import digest_bytes, parse_digest
from ledger.storage.failure import storage_failed
from ledger.storage.plain import open_plain
from ledger.store.blobs.hashing import Hashed, hash_file, hash_stream
from ledger.store.blobs.reflink import clone
from ledger.store.layout import BLOBS, INCOMING, PACKED, blob_name, packed_name, tree_name
from ledger.store.packs.packing import CHUNK_MAX, Chunks, Packed, cut_by_content, exactly
from ledger.store.parts import PART_SIZE, PartHashes, small_digest
from ledger.store.store import BATCH_BYTES, Store
from ledger.store.trees.manifest import Manifest
from ledger.store.workers.fileworker import PackWriter
from ledger.store.workers.manyfiles import MOST_PACKED, WORTH

Cut = Literal["auto", "content", "whole"]
"""Which blobs travel in pieces: large ones into buckets; all above 1 MiB, by their content; none."""

DEFAULT_WORKERS: Final = 8
RESUMABLE: Final = 64 * 1024 * 1024
"""From this size on a blob goes into a bucket in parts, so that an upload that broke off goes on."""
_PAUSES: Final = (0.5, 1.0, 2.0)
_BLOCK: Final = 1024 * 1024
_READ_AT_ONCE: Final = 1024
_FOLDERS: Final = 256
_PAGE: Final = 1000
"""How many names a bucket lists in one answer."""
_log = logging.getLogger(__name__)


@dataclass(frozen=True, slots=True)
class Progress:
    """How far a transfer is."""

    blobs: int
    of_blobs: int
    size: int
    of_size: int


@dataclass(frozen=True, slots=True)
class Copied:
    """What a transfer did: blobs sent with their bytes, blobs that were there, trees published."""

    blobs: int
    size: int
    there: int
    trees: int


@dataclass(frozen=True, slots=True)
class _MissingBlob:
    """A blob to bring; ``inside`` a blob of the source at an offset, where it is a piece that was cut just now."""

    digest: str
    size: int
    parts: str | None = None
    inside: tuple[str, int] | None = None


def copy_artifacts(
    source: Store,
    target: Store,
    digests: Iterable[str],
    *,
    workers: int = DEFAULT_WORKERS,
    progress: Callable[[Progress], None] | None = None,
    pause: Callable[[float], None] = time.sleep,
    even_if_there: bool = False,
    dry_run: bool = False,
    cut: Cut = "auto",
) -> Copied:
    """Bring artifacts, with everything that trees name, from one store to the other.

    ``even_if_there`` sends blobs that the target has by name, to replace what may have rotted there. ``dry_run`` says
    what would be sent and writes nothing.
    """
    transfer = _Transfer(source, target, workers, pause, target.blobs.has if dry_run else target.blobs.renew)
    blobs, trees = transfer.plan(digests)
    missing = list(blobs.values()) if even_if_there else transfer.missing(blobs.values())
    there = len(blobs) - len(missing)
    if even_if_there:
        absent, records = missing, list[Packed]()
    else:
        absent, records = transfer.taken_apart(missing, cut)
    if dry_run:
        return Copied(len(absent), sum(blob.size for blob in absent), there, len(trees))
    counter = _Counter(len(absent), sum(blob.size for blob in absent), progress)
    transfer.send(transfer.bundled(absent, counter) if not even_if_there else absent, counter)
    for record in records:
        transfer.publish(record)
    for manifest in trees:
        transfer.publish_tree(manifest)
    return Copied(len(absent), counter.size, there, len(trees))


class _Counter:
    """Counts from several threads and tells anyone who wants to know."""

    def __init__(self, of_blobs: int, of_size: int, tell: Callable[[Progress], None] | None) -> None:
        self._mutex = threading.Lock()
        self._of_blobs, self._of_size, self._tell = of_blobs, of_size, tell
        self.blobs = self.size = 0

    def add(self, blobs: int, size: int) -> None:
        with self._mutex:
            self.blobs += blobs
            self.size += size
            if self._tell is not None:
                self._tell(Progress(self.blobs, self._of_blobs, self.size, self._of_size))


class _Transfer:
    """One transfer between two stores."""

    def __init__(
        self, source: Store, target: Store, workers: int, pause: Callable[[float], None], has: Callable[[str], bool]
    ) -> None:
        self._source, self._target, self._has = source, target, has
        self._workers, self._pause = max(1, workers), pause
        self._remote = target.storage.local_path(INCOMING + "x") is None

    def plan(self, digests: Iterable[str]) -> tuple[dict[str, _MissingBlob], list[Manifest]]:
        """Every blob that is needed, and the trees that need them."""
        blobs: dict[str, _MissingBlob] = {}
        trees: list[Manifest] = []
        for digest in dict.fromkeys(digests):
            manifest = self.retried(self._source, partial(self._manifest, digest))
            if manifest is None:
                size = self.retried(self._source, partial(self._source.blobs.size, digest))
                blobs.setdefault(digest, _MissingBlob(digest, size, None))
                continue
            trees.append(manifest)
            for entry in manifest:
                blobs[entry.digest] = _MissingBlob(entry.digest, entry.size, entry.parts)
        return blobs, trees

    def missing(self, blobs: Iterable[_MissingBlob]) -> list[_MissingBlob]:
        """Those that the target has not."""
        wanted = list(blobs)
        with _pool(self._workers) as pool:
            listed = self._listed(wanted, pool)
            if listed is not None:
                return [blob for blob in wanted if blob.digest not in listed]
            there = list(pool.map(self._there, wanted))
        return [blob for blob, has in zip(wanted, there, strict=True) if not has]

    def taken_apart(self, blobs: list[_MissingBlob], cut: Cut) -> tuple[list[_MissingBlob], list[Packed]]:
        """What to send for these blobs: those that are packed, or are to be, by what they are made from and a
        record."""
        pieces: dict[str, _MissingBlob] = {}
        records: dict[str, Packed] = {}
        whole: list[_MissingBlob] = []
        some_are_packed = self._has_packed()
        waiting = list(reversed(blobs))
        while waiting:
            blob = waiting.pop()
            packed = self._packed(blob.digest) if some_are_packed else None
            if packed is None and not self._is_cut(blob, cut):
                whole.append(blob)
                continue
            whole_as = packed.chunks[0][0] if isinstance(packed, Chunks) and len(packed.chunks) == 1 else blob.digest
            if packed is None or (whole_as != blob.digest and self._is_cut(blob, cut)):
                found = self._cut(whole_as, cut_by_content if cut == "content" else cut_by_size)
                packed = Chunks(blob.digest, found.size, found.chunks)
                starts = itertools.accumulate((size for _, size in packed.chunks), initial=0)
                for (digest, size), start in zip(packed.chunks, starts, strict=False):
                    pieces.setdefault(digest, _MissingBlob(digest, size, None, (whole_as, start)))
            elif isinstance(packed, Chunks):
                pieces |= {digest: _MissingBlob(digest, size) for digest, size in packed.chunks}
            else:
                size = self.retried(self._source, partial(self._source.blobs.size, packed.planes))
                pieces[packed.planes] = _MissingBlob(packed.planes, size)
                if packed.base is not None and packed.base not in records:
                    waiting.extend(self.missing([_MissingBlob(packed.base, packed.size)]))
            records[blob.digest] = packed
        return [*whole, *self.missing(pieces.values())], list(reversed(records.values()))

    def bundled(self, blobs: list[_MissingBlob], counter: _Counter) -> list[_MissingBlob]:
        """Send thousands of small blobs in packfiles, for each by itself costs a request; the others are still to be
        sent."""
        tiny = [blob for blob in blobs if blob.size <= MOST_PACKED and blob.inside is None]
        if len(tiny) < WORTH:
            return blobs
        sent: set[str] = set()
        with _pool(self._workers) as pool:
            for batch in _batches(tiny, 1, most_blobs=len(tiny)):
                read = pool.map(self._read_batch, itertools.batched(batch, _READ_AT_ONCE))
                packed = {
                    digest: data for some in read for digest, data in some.items() if digest_bytes(data) == digest
                }
                self._send_packed(packed)
                counter.add(len(packed), sum(map(len, packed.values())))
                sent |= packed.keys()
        return [
            blob for blob in blobs if blob.digest not in sent
        ]  # the text of a large blob has no place in a packfile

    def _send_packed(self, blobs: dict[str, bytes]) -> None:
        if not blobs:
            return
        with _room(), tempfile.TemporaryDirectory() as folder:
            writer = PackWriter(folder)
            for digest, data in blobs.items():
                writer.add(parse_digest(digest), data)
            writer.finish()
            self.retried(self._target, partial(self._deliver_packfiles, Path(folder)))

    def send(self, blobs: list[_MissingBlob], counter: _Counter) -> None:
        """Send blobs; small ones in batches, large ones each by itself."""
        small = [blob for blob in blobs if blob.size <= PART_SIZE]
        with _pool(self._workers) as pool:
            jobs = [pool.submit(self._send_batch, batch, counter) for batch in _batches(small, self._workers)]
            large = (blob for blob in blobs if blob.size > PART_SIZE)
            jobs.extend(pool.submit(self._send_large, blob, counter) for blob in large)
            done, waiting = wait(jobs, return_when=FIRST_EXCEPTION)
            for job in waiting:
                job.cancel()
            for job in done:
                job.result()

    def publish(self, record: Packed) -> None:
        """The record of a packed blob whose pieces are there, after the part hashes that the source has of it."""
        parts = self.retried(self._source, partial(self._parts, _MissingBlob(record.digest, record.size)))
        if parts is not None:
            self.retried(self._target, partial(self._target.blobs.put_parts, parts))
        self.retried(self._target, partial(self._target.blobs.put_packed, record))
        if not self._remote:  # into a bucket goes what this store has
            try:
                self._target.blobs.verified(record.digest)
            except Tampered:
                self._target.storage.remove(packed_name(record.digest))
                raise

    def publish_tree(self, manifest: Manifest) -> None:
        """A tree whose blobs are there."""
        self.retried(self._target, partial(self._deliver_manifest, manifest))

    def retried[T](self, store: Store, work: Callable[[], T]) -> T:
        """What ``work`` gives; after some more tries if it uses a remote that fails or serves what it should not."""
        pauses = () if store.storage.local_path(INCOMING + "x") else _PAUSES
        for seconds in pauses:
            try:
                return work()
            except (StorageFailed, Tampered) as error:
                _log.warning("%s; trying again in %g s", error, seconds)
                self._pause(seconds)
        return work()

    # The parts

    def _listed(self, wanted: list[_MissingBlob], pool: ThreadPoolExecutor) -> set[str] | None:
        """Digests that a remote lists, when that takes fewer requests than asking for each; None when it does not."""
        storage = self._target.storage
        if storage.local_path(INCOMING + "x") is not None or len(wanted) < _FOLDERS * 2:
            return None
        folders = sorted({blob.digest[7:9] for blob in wanted})
        list_folder = partial(self.retried, self._target)
        first = list_folder(lambda: list(storage.list(f"{BLOBS}{folders[0]}/")))
        if len(folders) + len(first) * _FOLDERS / _PAGE > len(wanted):
            return None
        areas = [f"{area}{folder}/" for area in (BLOBS, PACKED) for folder in folders]
        names = itertools.chain(*pool.map(lambda area: list_folder(lambda: list(storage.list(area))), areas))
        sliced = self.retried(self._target, self._target.blobs.packfiles.indexes)
        return {digest for index in sliced for digest, _ in index} | {
            f"sha256:{''.join(name.split('/')[-2:])}" for name in names
        }

    def _has_packed(self) -> bool:
        """Whether the source may have packed blobs; one that cannot be listed gives them out as what they make."""
        try:
            return self.retried(self._source, lambda: any(True for _ in self._source.storage.list(PACKED)))
        except Unavailable:
            return False

    def _packed(self, digest: str) -> Packed | None:
        blobs = self._source.blobs
        return self.retried(self._source, lambda: None if blobs.is_whole(digest) else blobs.packed(digest))

    def _is_cut(self, blob: _MissingBlob, cut: Cut) -> bool:
        if cut == "content":
            return blob.size > CHUNK_MAX
        into_a_bucket = self._target.storage.local_path(INCOMING + "x") is None
        return cut == "auto" and into_a_bucket and blob.size >= RESUMABLE

    def _cut(self, digest: str, how: Callable[[BinaryIO], Iterator[bytes]]) -> Chunks:
        """The pieces of a blob of the source, which is hashed first; a piece is hashed again when it is sent."""
        self._source.blobs.verified(digest)
        with self._source.blobs.stream(digest) as stream:
            return chunks_of(digest, stream, how)

    def _there(self, blob: _MissingBlob) -> bool:
        return self.retried(self._target, partial(self._has, blob.digest))

    def _manifest(self, digest: str) -> Manifest | None:
        try:
            return self._source.manifest(digest)
        except NotFound:
            return None

    def _send_batch(self, batch: list[_MissingBlob], counter: _Counter) -> None:
        read = self._read_batch(batch)
        self.retried(self._target, partial(self._deliver, read))
        counter.add(len(read), sum(map(len, read.values())))

    def _read_batch(self, batch: Sequence[_MissingBlob]) -> dict[str, bytes]:
        """The bytes of small blobs, verified; those that lie side by side in a packfile by one request."""
        asked = [blob.digest for blob in batch if blob.inside is None]
        near = self.retried(self._source, partial(self._source.blobs.packfiles.read_many, asked))
        good = {digest: data for digest, data in near.items() if small_digest(data) == digest}
        return {
            blob.digest: good[blob.digest]
            if blob.digest in good
            else self.retried(self._source, partial(self._read, blob))
            for blob in batch
        }

    def _read(self, blob: _MissingBlob) -> bytes:
        """All bytes of a small blob, verified."""
        if blob.inside is None:
            return self._source.blobs.read(blob.digest)
        digest, start = blob.inside
        data = self._source.storage.read_range(blob_name(digest), start, blob.size)
        if (found := small_digest(data)) != blob.digest:
            raise self._wrong(blob, found)
        return data

    def _send_large(self, blob: _MissingBlob, counter: _Counter) -> None:
        path = self._source.blobs.local(blob.digest)
        if path is not None and not self._remote:
            self._copy(blob, Path(path), counter)
            return
        if path is not None:
            hashed = self._source.blobs.verified(blob.digest)
            self.retried(self._target, partial(self._deliver_file, hashed, Path(path)))
            counter.add(1, hashed.size)
            return
        with self._partial(blob.digest) as (stream, staged):
            hashed = self._receive(blob, stream, counter)
            if self._remote:
                self.retried(self._target, partial(self._deliver_file, hashed, staged))
            else:
                self.retried(self._target, partial(self._target.blobs.take, hashed, staged))
        counter.add(1, 0)

    def _copy(self, blob: _MissingBlob, path: Path, counter: _Counter) -> None:
        """Bring the file of another folder. The copy is what is hashed: the original is in the hands of others."""
        with self._partial(blob.digest) as (stream, staged):
            with open(open_plain(str(path)), "rb") as original:
                stream.truncate(0)
                if not clone(original, stream):
                    stream.seek(0)
                    shutil.copyfileobj(original, stream, _BLOCK)
            stream.flush()
            hashed = hash_file(stream).under(blob.digest)
            if hashed.digest != blob.digest:
                stream.truncate(0)
                raise self._wrong(blob, hashed.digest)
            self._target.blobs.take(hashed, staged)
        counter.add(1, hashed.size)

    def _deliver(self, blobs: dict[str, bytes]) -> None:
        """Write small blobs, and see that they arrived: by the service's own hash of them, or by reading them back."""
        self._target.blobs.put_many(blobs)
        if self._remote:
            for digest, data in blobs.items():
                if not self._target.storage.arrived(blob_name(digest), data):
                    self._read_back(digest)

    def _deliver_packfiles(self, folder: Path) -> None:
        """Write packfiles, and see that they arrived."""
        for name in self._target.blobs.take_packfiles(folder, link=False):
            path = folder / name.rpartition("/")[2]
            if self._remote and not self._target.storage.arrived(name, path):
                with self._target.storage.open(name) as stream, open(path, "rb") as sent:
                    same = hash_stream(stream).digest == hash_file(sent).digest
                if not same:
                    self._target.storage.remove(name)
                    raise Tampered(
                        "a packfile arrived with other bytes than were sent",
                        where=f"{self._target.storage.describe()}: {name}",
                        cure="send it again",
                    )

    def _deliver_file(self, hashed: Hashed, path: Path) -> None:
        """Write a large blob, and see that it arrived. Copied and not linked: two stores that share a file would rot
        together."""
        self._target.blobs.take(hashed, path, link=False)
        if not self._target.storage.arrived(blob_name(hashed.digest), path):
            self._read_back(hashed.digest)

    def _deliver_manifest(self, manifest: Manifest) -> None:
        """Publish a tree. What is wrong where it arrived is removed, as with blobs."""
        self._target.put_manifest(manifest, check=False)
        if self._remote and not self._target.storage.arrived(tree_name(manifest.digest), manifest.encode()):
            try:
                self._target.manifest(manifest.digest)
            except Tampered:
                self._target.storage.remove(tree_name(manifest.digest))
                raise

    def _read_back(self, digest: str) -> None:
        """Hash a blob where it lies now; what is not what was sent does not stay under the digest."""
        try:
            self._target.blobs.verified(digest)
        except Tampered:
            self._target.storage.remove(blob_name(digest))
            raise

    def _receive(self, blob: _MissingBlob, stream: BinaryIO, counter: _Counter) -> Hashed:
        """Bring a large blob into a local file, from the parts that are there already."""
        whole = self.retried(self._source, partial(self._source.blobs.is_whole, blob.digest))
        parts = self.retried(self._source, partial(self._parts, blob)) if whole else None
        if parts is None:
            self.retried(self._source, partial(self._receive_whole, blob, stream))
            counter.add(0, blob.size)
        else:
            stream.truncate(parts.size)
            for index in range(len(parts.leaves)):
                start, end = parts.span(index)
                if not _holds(stream, parts, index):
                    self.retried(self._source, partial(self._receive_part, blob, parts, index, stream))
                counter.add(0, end - start)
        stream.flush()
        hashed = hash_file(stream, plain=parts is None or not parts.certified).under(blob.digest)
        if hashed.digest != blob.digest:
            stream.truncate(0)  # the remote's own part hashes vouched for other bytes: none of it is worth keeping
            raise self._wrong(blob, hashed.digest)
        return hashed

    def _parts(self, blob: _MissingBlob) -> PartHashes | None:
        """The part hashes that the source has, if they are good for anything; without them the blob comes in one
        piece."""
        try:
            return self._source.blobs.parts(blob.digest, blob.parts)
        except Tampered as error:
            _log.warning("%s; the blob is fetched in one piece", error)
            return None

    def _receive_part(self, blob: _MissingBlob, parts: PartHashes, index: int, stream: BinaryIO) -> None:
        start, end = parts.span(index)
        data = self._source.storage.read_range(blob_name(blob.digest), start, end - start)
        parts.check(index, data)
        os.pwrite(stream.fileno(), data, start)

    def _receive_whole(self, blob: _MissingBlob, stream: BinaryIO) -> None:
        stream.seek(0)
        stream.truncate(0)
        hashed = self._source.blobs.hash(blob.digest, stream.write)
        if hashed.digest != blob.digest:
            raise self._wrong(blob, hashed.digest)

    def _wrong(self, blob: _MissingBlob, found: str) -> Tampered:
        return Tampered(
            "a remote served other bytes than were asked for",
            where=f"{self._source.storage.describe()}: {blob_name(blob.digest)}",
            expected=blob.digest,
            found=found,
            cure="nothing of it was kept; verify the remote, or pull from another",
        )

    @contextmanager
    def _partial(self, digest: str) -> Iterator[tuple[BinaryIO, Path]]:
        """A file for a blob on its way. After a break it stays, and anyone who asks for the blob next goes on with it."""
        name = self._target.storage.local_path(INCOMING + digest.removeprefix("sha256:"))
        with _receiving(digest):
            if name is not None:
                name.parent.mkdir(parents=True, exist_ok=True)
                descriptor = os.open(name, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o644)
                with open(descriptor, "r+b") as stream:
                    if _mine(stream, name):
                        yield stream, name
                        name.unlink(missing_ok=True)
                        return
            with tempfile.TemporaryDirectory(dir=name.parent if name else None) as private:
                path = Path(private, "blob")
                with open(path, "x+b") as stream:
                    yield stream, path


def _mine(stream: BinaryIO, name: Path) -> bool:
    """Whether nobody else writes this file, and it has not become a blob between being opened and being locked."""
    try:
        fcntl.flock(stream, fcntl.LOCK_EX | fcntl.LOCK_NB)
        status = os.fstat(stream.fileno())
        return status.st_nlink == 1 and os.path.samestat(status, os.stat(name))
    except (BlockingIOError, FileNotFoundError):
        return False


@contextmanager
def _pool(workers: int) -> Iterator[ThreadPoolExecutor]:
    """Threads for one piece of work; after an error or an interruption what has not begun never begins."""
    with ThreadPoolExecutor(workers) as pool:
        try:
            yield pool
        except BaseException:
            pool.shutdown(wait=False, cancel_futures=True)
            raise


@contextmanager
def _room() -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_failed("could not make a packfile to send", tempfile.gettempdir(), error) from error


@contextmanager
def _receiving(digest: str) -> Iterator[None]:
    try:
        yield
    except OSError as error:
        raise storage_failed("could not receive a blob (what arrived is kept)", digest, error) from error


def _holds(stream: BinaryIO, parts: PartHashes, index: int) -> bool:
    """Whether a file that was left by a break has a part already."""
    start, end = parts.span(index)
    with suppress(Tampered):
        parts.check(index, os.pread(stream.fileno(), end - start, start))
        return True
    return False


def _batches(blobs: Iterable[_MissingBlob], workers: int, most_blobs: int = 1024) -> Iterator[list[_MissingBlob]]:
    """Small blobs in portions that fit into memory and share the cost of durability."""
    batch: list[_MissingBlob] = []
    held = 0
    for blob in blobs:
        batch.append(blob)
        held += blob.size
        if held >= BATCH_BYTES // workers or len(batch) >= most_blobs:
            yield batch
            batch, held = [], 0
    if batch:
        yield batch


def cut_by_size(stream: BinaryIO) -> Iterator[bytes]:
    """The chunks of a stream, 8 MiB each but the last."""
    while block := exactly(stream, PART_SIZE):
        yield block


def chunks_of(digest: str, stream: BinaryIO, cut: Callable[[BinaryIO], Iterator[bytes]]) -> Chunks:
    """The record of a blob by one way of cutting; nothing is stored."""
    chunks = tuple((small_digest(chunk), len(chunk)) for chunk in cut(stream))
    return Chunks(digest, sum(size for _, size in chunks), chunks)
