"""Buckets (gs://, s3://) as storage, through obstore.

Every write is one conditional or unconditional put: atomic, and durable when the service has answered.
``create`` is the service's own "only if absent". Journals are small objects that are written whole. A local file above
8 MiB is sent in parts and appears when the last has arrived; it needs its name to itself, which names made from digests
give it.

A lock cannot be trusted between machines, so it is not what protects a log here. A writer works on a guarded
view (``guard``): each overwrite of a guarded name is a compare-and-swap against the version that this view has
read or written last. Of two sequencers on one bucket the later one takes over, and the other is fenced: its
next commit fails with ``Conflict``, and nothing of it is in the log. A guarded name is never deleted, because
an absence has no version: ``remove`` leaves a unique tombstone instead.

obstore repeats requests that fail on the way for up to a minute, so a put whose answer was lost may report a conflict
with itself: as with every failed write, the outcome is unknown until the log is loaded anew.
"""

from __future__ import annotations

import hashlib
import io
import os
import threading
from collections.abc import Callable, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, contextmanager, suppress
from datetime import timedelta
from pathlib import Path
from typing import Any, BinaryIO, Final

import obstore
from obstore.exceptions import AlreadyExistsError, BaseError, NotFoundError, PreconditionError
from obstore.store import from_url

from ledger.errors import AlreadyExists, Conflict, Fenced, LedgerError, Locked, NotFound, Refused, StorageFailed
from ledger.format.budgets import BUDGETS, exceeded
from ledger.storage.port import Detail, Storage, check_name, check_prefix

_THREADS = 16
_PIECE = 8 * 1024 * 1024
_PIECES_AT_ONCE = 4
_RETRY: Final = {"max_retries": 5, "retry_timeout": timedelta(seconds=60)}
_TOMBSTONE = b"removed "
_TAGS = 65536

_SHOWN: Final = {
    ".html": "text/html; charset=utf-8",
    ".json": "application/json",
    ".md": "text/markdown; charset=utf-8",
    ".png": "image/png",
}
"""What a browser is told of an object whose name ends so, where a bucket is served as it is; others are bytes."""

_Version = dict[str, str]


class ObjectStorage:
    """The objects below an address. Threads may share it."""

    def __init__(
        self, store: Any, address: str, *, readonly: bool = False, guarded: frozenset[str] = frozenset()
    ) -> None:
        """`store` is one of obstore's; use ``open_objects`` for an address."""
        self._store = store
        self._address = address
        self._readonly = readonly
        self._guarded = guarded
        self._versions: dict[str, _Version | None] = {}
        self._tags: dict[str, str] = {}
        self._mutex = threading.Lock()
        self._holders: dict[str, str] = {}

    def guard(self, names: Sequence[str]) -> Storage:
        view = ObjectStorage(self._store, self._address, readonly=self._readonly, guarded=frozenset(names))
        view._mutex, view._holders = self._mutex, self._holders
        return view

    @property
    def writable(self) -> bool:
        return not self._readonly

    def describe(self) -> str:
        return self._address

    def local_path(self, name: str) -> Path | None:
        check_name(name)
        return None

    # Reading

    def read(self, name: str) -> bytes:
        check_name(name)
        try:
            with self._storage_errors("read", name):
                found = obstore.get(self._store, name)
                if (size := int(found.meta["size"])) > (most := BUDGETS.of_file(name)):
                    raise exceeded("a file is too large to be read", name, f"{most} bytes", size)
                data = bytes(found.bytes())
        except NotFound:
            self._saw(name, None)
            raise
        self._saw(name, _version(found.meta))
        return data

    def read_range(self, name: str, start: int, length: int) -> bytes:
        end = min(start + length, self.size(name))
        if start >= end:
            return b""
        with self._storage_errors("read", name):
            return bytes(obstore.get_range(self._store, name, start=start, end=end))

    def open(self, name: str) -> BinaryIO:
        check_name(name)
        with self._storage_errors("read", name):
            found = obstore.get(self._store, name)
        pieces = found.stream(min_chunk_size=_PIECE)
        return io.BufferedReader(_Streamed(pieces, lambda: self._storage_errors("read", name)), _PIECE)

    def size(self, name: str) -> int:
        check_name(name)
        with self._storage_errors("look for", name):
            return int(obstore.head(self._store, name)["size"])

    def exists(self, name: str) -> bool:
        try:
            self.size(name)
        except NotFound:
            return False
        return True

    def list(self, prefix: str = "") -> Iterator[str]:
        for detail in self.details(prefix):
            yield detail.name

    def details(self, prefix: str = "") -> Iterator[Detail]:
        folder = check_prefix(prefix).rpartition("/")[0]
        with self._storage_errors("list", prefix):
            found = [
                Detail(item["path"], item["size"], item["last_modified"].timestamp())
                for chunk in obstore.list(self._store, prefix=folder or None)
                for item in chunk
                if item["path"].startswith(prefix)
            ]
        yield from sorted(found, key=lambda detail: detail.name)

    # Writing

    def create(self, name: str, data: bytes) -> None:
        self._put(name, data, "create")

    def ensure(self, name: str, data: bytes) -> None:
        try:
            self.create(name, data)
        except AlreadyExists:
            if self.read(name) != data:
                raise self._other_bytes(name) from None

    def ensure_many(self, items: Iterable[tuple[str, bytes]]) -> None:
        pending = list(items)
        for name, _ in pending:
            check_name(name)
        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(lambda item: self.ensure(*item), pending):
                pass

    def replace(self, name: str, data: bytes) -> None:
        self._overwrite(name, data)

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        before = self._before(name)[:offset] if offset else b""
        if len(before) < offset:
            raise Conflict(
                "a journal is shorter than its writer knows",
                where=f"{self._address}/{name}",
                expected=f"at least {offset} bytes",
                found=f"{len(before)}",
                cure="open the log again",
            )
        self._overwrite(name, before + data)

    def adopt(self, name: str, path: Path, *, link: bool = False) -> None:
        del link  # a bucket shares nothing with a file
        try:
            size = path.stat().st_size
            if size <= _PIECE:
                self.ensure(name, path.read_bytes())
            elif not self._is_there(name, path, size):
                self._check_writable(name)
                with self._storage_errors("write", name):
                    result = obstore.put(
                        self._store,
                        name,
                        path,
                        chunk_size=_PIECE,
                        max_concurrency=_PIECES_AT_ONCE,
                        attributes=_attributes(name),
                    )
                self._tagged(name, result)
        except OSError as error:
            raise StorageFailed("could not read a local file", where=str(path), found=str(error)) from error

    def arrived(self, name: str, content: bytes | Path) -> bool:
        """By the entity tag of the answer to the write, where that is the MD5 of what arrived.

        It is for objects that were sent in one request, in S3 unless encrypted by a key of the customer's and in the
        XML interface of GCS; for an object sent in parts S3 gives the MD5 of the parts' MD5s. A tag of another kind
        says nothing.
        """
        tag = self._tags.pop(name, "")
        return bool(tag) and tag == (_md5(content) if isinstance(content, bytes) else _md5_of_parts(content))

    def rename(self, name: str, to: str) -> None:
        """A copy made by the service, then a removal."""
        self._check_writable(name)
        check_name(to)
        with self._storage_errors("rename", name):
            obstore.copy(self._store, name, to)
        self.remove(name)

    def remove(self, *names: str) -> None:
        for name in names:
            self._check_writable(name)
        with ThreadPoolExecutor(_THREADS) as pool:
            for _ in pool.map(self._remove, names):
                pass

    @contextmanager
    def lock(self, name: str, holder: str, *, wait: float = 0.0) -> Iterator[None]:
        """Excludes other users of this object; between processes ``guard`` is what protects.

        Raises:
            Locked: another writer is at work.
        """
        del wait
        self._check_writable(name)
        with self._mutex:
            if name in self._holders:
                raise Locked(
                    "another writer is at work",
                    where=f"{self._address}/{name}",
                    found=f"held by {self._holders[name]}",
                    cure="wait for it to end",
                )
            self._holders[name] = holder
        try:
            yield
        finally:
            del self._holders[name]

    # The parts

    def _is_there(self, name: str, path: Path, size: int) -> bool:
        """Whether an object is there already, byte for byte what a local file is; Conflict if it is another."""
        try:
            same = self.size(name) == size
        except NotFound:
            return False
        if same:
            with self.open(name) as stream, open(path, "rb") as local:
                while same and (piece := local.read(_PIECE)):
                    same = stream.read(len(piece)) == piece
        if not same:
            raise self._other_bytes(name)
        return True

    def _other_bytes(self, name: str) -> Conflict:
        return Conflict("other bytes are there already", where=f"{self._address}/{name}", cure="find out who wrote it")

    def _remove(self, name: str) -> None:
        if name in self._guarded:
            self._overwrite(name, _TOMBSTONE + os.urandom(16).hex().encode())
            return
        with suppress(NotFound), self._storage_errors("remove", name):
            obstore.delete(self._store, name)

    def _before(self, name: str) -> bytes:
        """What a journal holds; of a guarded one, the version that this view knows, or the swap would be blind."""
        known, seen = self._versions.get(name), name in self._versions
        try:
            data = self.read(name)
        except NotFound:
            data = b""
        if seen and self._versions[name] != known:
            self._versions[name] = known
            raise self._fenced(name)
        return data

    def _overwrite(self, name: str, data: bytes) -> None:
        if name not in self._guarded:
            self._put(name, data, "overwrite")
            return
        if name not in self._versions:
            with suppress(NotFound):
                self.read(name)
        known = self._versions[name]
        try:
            self._put(name, data, known or "create")
        except AlreadyExists:
            raise self._fenced(name) from None

    def _put(self, name: str, data: bytes, mode: Any) -> None:
        self._check_writable(name)
        try:
            with self._storage_errors("write", name):
                result = obstore.put(
                    self._store, name, data, mode=mode, use_multipart=False, attributes=_attributes(name)
                )
        except AlreadyExistsError:
            raise AlreadyExists("the name is taken", where=f"{self._address}/{name}") from None
        except PreconditionError:
            raise self._fenced(name) from None
        self._tagged(name, result)
        self._saw(name, _version(result))

    def _tagged(self, name: str, result: Any) -> None:
        if len(self._tags) >= _TAGS:
            self._tags.clear()  # nobody asked for them; anyone who asks now reads back
        self._tags[name] = str(result["e_tag"] or "").strip('"').lower()

    def _saw(self, name: str, version: _Version | None) -> None:
        if name in self._guarded:
            self._versions[name] = version

    def _fenced(self, name: str) -> Fenced:
        return Fenced(
            "another writer has taken over",
            where=f"{self._address}/{name}",
            expected="the version that this writer saw last",
            found="a newer one",
            cure="nothing was overwritten: leave it to the other, or append again to take over",
        )

    def _check_writable(self, name: str) -> None:
        check_name(name)
        if self._readonly:
            raise Refused("the storage is open for reading only", where=f"{self._address}/{name}")

    @contextmanager
    def _storage_errors(self, verb: str, name: str) -> Iterator[None]:
        try:
            yield
        except (FileNotFoundError, NotFoundError) as error:
            raise NotFound("no such object", where=f"{self._address}/{name}") from error
        except (AlreadyExistsError, PreconditionError):
            raise
        except (BaseError, OSError) as error:
            raise _failed(verb, f"{self._address}/{name}", error) from error


class _Streamed(io.RawIOBase):
    """The bytes of an object as they arrive, forwards only."""

    def __init__(self, pieces: Iterable[Any], explained: Callable[[], AbstractContextManager[None]]) -> None:
        super().__init__()
        self._pieces, self._storage_errors = iter(pieces), explained
        self._held = memoryview(b"")

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: object, /) -> int:
        target = memoryview(buffer).cast("B")  # type: ignore[arg-type]
        with self._storage_errors():
            while not self._held and (piece := next(self._pieces, None)) is not None:
                self._held = memoryview(bytes(piece))
        count = min(len(target), len(self._held))
        target[:count] = self._held[:count]
        self._held = self._held[count:]
        return count


def open_objects(address: str, *, readonly: bool = False) -> ObjectStorage:
    """The bucket and prefix that ``address`` names, with the credentials of the environment."""
    try:
        store = from_url(address, retry_config=_RETRY)
    except (BaseError, ValueError) as error:
        raise _failed("open", address, error) from error
    return ObjectStorage(store, address.rstrip("/"), readonly=readonly)


def _md5(data: bytes) -> str:
    return hashlib.md5(data, usedforsecurity=False).hexdigest()


def _md5_of_parts(path: Path) -> str:
    """S3's tag of an object that was sent in parts, here of 8 MiB."""
    with open(path, "rb") as stream:
        hashes = [
            hashlib.md5(piece, usedforsecurity=False).digest() for piece in iter(lambda: stream.read(_PIECE), b"")
        ]
    return f"{_md5(b''.join(hashes))}-{len(hashes)}"


def _attributes(name: str) -> dict[Any, str] | None:
    kind = _SHOWN.get(Path(name).suffix)
    return {"Content-Type": kind} if kind is not None else None


def _version(meta: Any) -> _Version:
    return {key: meta[key] for key in ("e_tag", "version") if meta[key] is not None}


def _failed(verb: str, where: str, error: Exception) -> LedgerError:
    return StorageFailed(
        f"could not {verb} an object",
        where=where,
        found=str(error).split("\n")[0],
        cure="check address and credentials",
    )
