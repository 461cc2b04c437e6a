"""A storage that another process reads: for one that has no network of its own.

A stranger's root is read in a process without network. Its parent, which has one, serves this protocol on a socket in a
private folder and asks the real storage. It can be asked for nothing but bytes of that one root.

    request   one line of JSON: ["read", NAME] ["range", NAME, START, LENGTH] ["size", NAME] ["exists", NAME]
              ["list", PREFIX] ["details", PREFIX]
    answer    one line of JSON, [ok, value, n], and n bytes; not ok: value is [class, what, where, expected, found, cure]

``MARIN_BROKER`` names the socket; :func:`ledger.storage.open_storage` then hands every address to it.
"""

from __future__ import annotations

import json
import os
import socket
import socketserver
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO, Final

from ledger import errors
from ledger.errors import LedgerError, StorageFailed, Unavailable
from ledger.storage import BROKER_VARIABLE
from ledger.storage.port import Detail, Storage
from ledger.storage.ranges import open_by_ranges
from ledger.storage.readonly import ReadOnly

_MOST_LINE: Final = 1 << 16
_PARTS: Final = 5
_AT_ONCE: Final = 4
"""Answers that are held in memory together; each is bounded by the storage that gives it."""


class BrokeredStorage(ReadOnly):
    """The storage at ``address`` as the process behind ``path`` reads it. Safe in several threads."""

    def __init__(self, path: str, address: str) -> None:
        self.address = address.rstrip("/")
        self._path = path
        self._here = threading.local()

    def read(self, name: str) -> bytes:
        return self._ask("read", name)[1]

    def read_range(self, name: str, start: int, length: int) -> bytes:
        return self._ask("range", name, start, length)[1]

    def open(self, name: str) -> BinaryIO:
        return open_by_ranges(self, name)

    def size(self, name: str) -> int:
        return int(self._ask("size", name)[0])

    def exists(self, name: str) -> bool:
        return bool(self._ask("exists", name)[0])

    def list(self, prefix: str = "") -> Iterator[str]:
        yield from json.loads(self._ask("list", prefix)[1])

    def details(self, prefix: str = "") -> Iterator[Detail]:
        yield from (Detail(*item) for item in json.loads(self._ask("details", prefix)[1]))

    def _ask(self, *request: object) -> tuple[Any, bytes]:
        stream = self._stream()
        try:
            stream.write(json.dumps(request).encode() + b"\n")
            stream.flush()
            ok, value, size = json.loads(stream.readline())
            data = stream.read(size)
        except (OSError, ValueError) as error:
            del self._here.stream
            raise StorageFailed(
                "the process that reads the root is gone", where=self.address, found=str(error)
            ) from error
        if not ok:
            raise _error(value)
        return value, data

    def _stream(self) -> Any:
        if not hasattr(self._here, "stream"):
            connection = socket.socket(socket.AF_UNIX)
            try:
                connection.connect(self._path)
                self._here.stream = connection.makefile("rwb")
            except OSError as error:
                raise StorageFailed(
                    "nobody reads the root for this process", where=self._path, found=str(error)
                ) from error
            finally:
                connection.close()  # what was made of it stays open
        return self._here.stream


def open_brokered(address: str, *, readonly: bool = True) -> BrokeredStorage:
    """The storage at ``address`` as the process that ``MARIN_BROKER`` names reads it."""
    return BrokeredStorage(os.environ[BROKER_VARIABLE], address)


@contextmanager
def serving(storage: Storage, path: Path) -> Iterator[None]:
    """While entered, ``storage`` is read for anyone who may open the socket at ``path``."""

    turns = threading.Semaphore(_AT_ONCE)

    class Handler(socketserver.StreamRequestHandler):
        def handle(self) -> None:
            while line := self.rfile.readline(_MOST_LINE):
                with turns:
                    self._answer(line)

        def _answer(self, line: bytes) -> None:
            try:
                answer, data = _answer(storage, json.loads(line))
                head: list[Any] = [True, answer, len(data)]
            except LedgerError as error:
                data = b""
                kind = type(error) if hasattr(errors, type(error).__name__) else _base(error)
                head = [False, [kind.__name__, error.what, error.where, error.expected, error.found, error.cure], 0]
            self.wfile.write(json.dumps(head).encode() + b"\n")
            self.wfile.write(data)

    class Server(socketserver.ThreadingUnixStreamServer):
        daemon_threads = True

        def handle_error(self, request: object, client_address: object) -> None:
            """Anyone who asked is gone, or asked nonsense: the connection ends."""

    with in_thread(Server(str(path), Handler)):
        yield


@contextmanager
def in_thread(server: socketserver.BaseServer) -> Iterator[None]:
    """While entered, a thread answers for ``server``."""
    with server:
        thread = threading.Thread(
            target=server.serve_forever,
            kwargs={"poll_interval": 0.02},  # anyone who leaves the block waits for it
            daemon=True,
        )
        thread.start()
        try:
            yield
        finally:
            server.shutdown()
            thread.join()


def _answer(storage: Storage, request: Any) -> tuple[Any, bytes]:
    match request:
        case ["read", str(name)]:
            return None, storage.read(name)
        case ["range", str(name), int(start), int(length)]:
            return None, storage.read_range(name, start, length)
        case ["size", str(name)]:
            return storage.size(name), b""
        case ["exists", str(name)]:
            return storage.exists(name), b""
        case ["list", str(prefix)]:
            return None, json.dumps(list(storage.list(prefix))).encode()
        case ["details", str(prefix)]:
            return None, json.dumps([[d.name, d.size, d.modified] for d in storage.details(prefix)]).encode()
    raise ValueError("not a request")


def _base(error: LedgerError) -> type[LedgerError]:
    """The first class of the error that :mod:`ledger.errors` itself has; what only failed to answer is unavailable."""
    if isinstance(error, Unavailable):
        return Unavailable
    return next(kind for kind in type(error).__mro__ if hasattr(errors, kind.__name__))


def _error(value: Any) -> LedgerError:
    kind = getattr(errors, str(value[0]), None)
    known = kind if isinstance(kind, type) and issubclass(kind, LedgerError) else StorageFailed
    what, where, expected, found, cure = map(str, value[1 : 1 + _PARTS])
    return known(what, where=where, expected=expected, found=found, cure=cure)
