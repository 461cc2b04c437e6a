"""A root on another machine: appends and files through the service there (:mod:`ledger.service.remote_server`)."""

from __future__ import annotations

import logging
import os
import socket
import ssl
import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager, suppress
from pathlib import Path
from typing import Any, BinaryIO, NoReturn

import msgspec

from ledger.errors import LedgerError, Malformed, NotFound, Refused, StorageFailed, Unavailable, Unverified
from ledger.format.event import Draft
from ledger.format.note import Signer
from ledger.log.batch import Receipt
from ledger.service import wire
from ledger.service.tls import client_context, peer_certificate
from ledger.storage.failure import storage_failed
from ledger.storage.port import Detail, Storage, check_name, check_prefix
from ledger.storage.ranges import open_by_ranges
from ledger.store.layout import LEASES

_CONNECT_SECONDS = 10.0
_ANSWER_SECONDS = 120.0
AWAY_SECONDS = 600.0
"""How long a service that went away is waited for."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 10.0

logger = logging.getLogger(__name__)


class RemoteClient:
    """A connection to the service at an address, by this user's key, to the holder of that certificate and nobody else."""

    def __init__(self, host: str, port: int, signer: Signer, certificate: bytes) -> None:
        self._address = f"{host}:{port}"
        try:
            plain = socket.create_connection((host, port), timeout=_CONNECT_SECONDS)
        except OSError as error:
            raise self._gone(error) from error
        try:
            connection = client_context(signer, certificate).wrap_socket(plain)
        except OSError as error:
            plain.close()
            raise self._refused(error) from error
        self._frames = wire.FrameSocket(connection)
        try:
            if peer_certificate(connection) != certificate:
                raise Unverified("the service at this address has another key", where=self._address)
            connection.settimeout(_ANSWER_SECONDS)
            self.origin = wire.decode_text(self._received(), "origin")
        except OSError as error:
            self.close()
            raise self._refused(error) from error
        except LedgerError:
            self.close()
            raise

    def close(self) -> None:
        """End the connection; what was acknowledged stays."""
        with suppress(OSError):
            self._frames.close()

    def append(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """As ``Log.append``, of drafts that are signed. ``Unavailable`` when the connection broke: the outcome is unknown,
        hand the same drafts in again."""
        (outcome,) = self.append_each([drafts])
        if isinstance(outcome, LedgerError):
            raise outcome
        return outcome

    def append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]:
        """Several atomic batches, one after another, each with its own outcome."""
        return [wire.decode_outcome(self.exchange(wire.encode_drafts(drafts))) for drafts in requests]

    def ask(self, *asked: object, pieces: Iterable[bytes] = (), kind: Any = object) -> Any:
        """What the storage there answers, as ``kind``.

        Raises:
            Malformed: the answer is nothing of this kind.
        """
        answer = wire.decode_done(self.exchange(wire.encode_storage_request(list(asked)), pieces))
        try:
            return msgspec.convert(answer, kind)
        except (msgspec.ValidationError, RecursionError) as error:
            raise Malformed(
                "the service answered in another language", where=self._address, found=str(error)[:200]
            ) from error

    def ask_bytes(self, *asked: object) -> bytes:
        """As :meth:`ask`, for an answer that has bytes behind it."""
        with self._whole():
            self.ask(*asked)
            return self._received()

    def exchange(self, frame: bytes, pieces: Iterable[bytes] = ()) -> bytes:
        """One request and its answer."""
        with self._whole():
            self._frames.send(frame)
            for piece in pieces:
                self._frames.send(piece)
            return self._received()

    def _whole(self) -> AbstractContextManager[None]:
        return wire.whole_exchange(self.close, self._gone, ends=(Malformed, StorageFailed))

    def _received(self) -> bytes:
        try:
            frame = self._frames.receive()
        except Malformed as error:
            raise self._gone(error) from error
        if frame is None:
            raise self._gone(None)
        return frame

    def _gone(self, error: Exception | None) -> Unavailable:
        return Unavailable(
            "the service of this log cannot be reached",
            where=self._address,
            expected="`ledger serve` with --at, on the machine where the root lies",
            found=str(error or "the connection ended"),
            cure="try again when it is back: what was committed is not appended twice",
        )

    def _refused(self, error: OSError) -> LedgerError:
        if not isinstance(error, ssl.SSLError) or isinstance(error, ssl.SSLEOFError | ssl.SSLZeroReturnError):
            return self._gone(error)  # nothing was said of a key: it ended, or what forwards to it has nobody behind it
        reason = str(error.reason or error)[:120]
        if "ALERT" in reason:  # the other side's word: what it thinks of the certificate that was shown
            return Unverified(
                "the log has not enrolled this key, or revoked it",
                where=self._address,
                expected="a key that `ledger key people` lists there",
                found=f"the service refused this one ({reason})",
                cure="let somebody enrol it (`ledger key enrol`, with its line)",
            )
        return Unverified(
            "the service at this address has another key",
            where=self._address,
            expected="the key of the invitation",
            found=reason,
            cure="ask for a new invitation and join again",
        )


class RemoteStorage:
    """The files of a root on another machine, as far as an author may read and add to them. Safe in threads and forks, each of
    which has a connection of its own. A service that was reached and went away is waited for, ``away_seconds`` at most."""

    def __init__(
        self, address: str, connect: Callable[[], RemoteClient], *, away_seconds: float = AWAY_SECONDS
    ) -> None:
        self.address = address
        self._connect = connect
        self._away_seconds, self._reached = away_seconds, False
        self._here = threading.local()

    @property
    def writable(self) -> bool:
        return True

    def guard(self, names: Sequence[str]) -> Storage:
        return self

    def describe(self) -> str:
        return self.address

    def local_path(self, name: str) -> Path | None:
        check_name(name)
        return None

    def read(self, name: str) -> bytes:
        found = bytearray()
        while True:
            piece = self.read_range(name, len(found), wire.MAX_PIECE)
            found += piece
            if len(piece) < wire.MAX_PIECE:
                return bytes(found)

    def read_range(self, name: str, start: int, length: int) -> bytes:
        check_name(name)
        found = bytearray()
        while length > len(found):
            wanted = min(wire.MAX_PIECE, length - len(found))
            piece = self._piece(name, start + len(found), wanted)
            found += piece
            if len(piece) < wanted:
                break
        return bytes(found)

    def _piece(self, name: str, start: int, length: int) -> bytes:
        found: bytes = self._do(lambda client: client.ask_bytes("range", name, start, length))
        if len(found) > length:
            raise Malformed(
                "the service sent more than was asked for",
                where=f"{self.address}/{name}",
                expected=f"at most {length} bytes",
                found=f"{len(found)}",
            )
        return found

    def open(self, name: str) -> BinaryIO:
        return open_by_ranges(self, name)

    def size(self, name: str) -> int:
        return int(self._do(lambda client: client.ask("size", check_name(name), kind=int)))

    def exists(self, name: str) -> bool:
        return bool(self._do(lambda client: client.ask("exists", check_name(name), kind=bool)))

    def list(self, prefix: str = "") -> Iterator[str]:
        for name in self._do(lambda client: client.ask("list", check_prefix(prefix), kind=list[str])):
            yield self._listed(name, prefix)

    def details(self, prefix: str = "") -> Iterator[Detail]:
        rows = list[tuple[str, int, float]]
        for name, size, modified in self._do(lambda client: client.ask("details", check_prefix(prefix), kind=rows)):
            yield Detail(self._listed(name, prefix), size, modified)

    def _listed(self, name: str, prefix: str) -> str:
        """A name in an answer: a safe one, and one that was asked for."""
        if not check_name(name).startswith(prefix):
            raise Malformed("not a name that was asked for", where=self.address, expected=f"{prefix}…", found=name)
        return name

    def create(self, name: str, data: bytes) -> None:
        self._put("create", name, data)

    def ensure(self, name: str, data: bytes) -> None:
        self._put("ensure", name, data)

    def ensure_many(self, items: Iterable[tuple[str, bytes]]) -> None:
        for name, data in items:
            if not self.exists(name) or self.size(name) != len(data):  # what is there under a digest was checked there
                self.ensure(name, data)

    def replace(self, name: str, data: bytes) -> None:
        if not check_name(name).startswith(LEASES):
            self._refuse(name)
        self._do(lambda client: client.ask("renew", name, data.decode()))

    def write_at(self, name: str, offset: int, data: bytes) -> None:
        self._refuse(name)

    def adopt(self, name: str, path: Path, *, link: bool = False) -> None:
        size = path.stat().st_size
        if self.exists(name) and self.size(name) == size:  # it was checked when it came there
            return
        count = -(-size // wire.MAX_PIECE)
        self._do(lambda client: client.ask("ensure", check_name(name), count, pieces=_pieces(path, count)))

    def arrived(self, name: str, content: bytes | Path) -> bool:
        return False

    def rename(self, name: str, to: str) -> None:
        """Never done here: ``Refused``, or ``NotFound`` where there is nothing."""
        if self.exists(name):
            self._refuse(name)
        raise NotFound("no such name", where=name)

    def remove(self, *names: str) -> None:
        for name in names:
            self._remove(name)

    def _remove(self, name: str) -> None:
        if not check_name(name).startswith(LEASES):
            self._refuse(name)
        self._do(lambda client: client.ask("remove", name))

    def lock(self, name: str, holder: str, *, wait: float = 0.0) -> AbstractContextManager[None]:
        self._refuse(name)

    def _put(self, how: str, name: str, data: bytes) -> None:
        pieces = [data[at : at + wire.MAX_PIECE] for at in range(0, len(data), wire.MAX_PIECE)]
        self._do(lambda client: client.ask(how, check_name(name), len(pieces), pieces=pieces))

    def _do(self, act: Callable[[RemoteClient], Any]) -> Any:
        """On this thread's connection; on another where it has ended meanwhile, as soon as there is one."""
        if getattr(self._here, "process", None) != os.getpid():
            self._here.process, self._here.client = os.getpid(), None
        deadline, pause = time.monotonic() + self._away_seconds, _PAUSE_SECONDS
        while True:
            fresh = self._here.client is None
            try:
                if fresh:
                    self._here.client = self._connect()
                    self._reached = True
                return act(self._here.client)
            except Unavailable as error:
                if self._here.client is not None:
                    self._here.client.close()
                    self._here.client = None
                if not fresh:
                    continue
                if not self._reached or time.monotonic() + pause > deadline:
                    raise
                logger.warning("%s; the next try in %.1f s", error, pause)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)

    def _refuse(self, name: str) -> NoReturn:
        raise Refused(
            "an author may not do this to a root that is served",
            where=f"{self.address}/{name}",
            expected="reading log and store, and adding to the store",
            cure="do it on the machine where the root lies",
        )


def _pieces(path: Path, count: int) -> Iterator[bytes]:
    try:
        with open(path, "rb") as stream:
            for _ in range(count):
                yield stream.read(wire.MAX_PIECE)
    except OSError as error:  # of this machine: the service did not go away
        raise storage_failed("a file cannot be read", str(path), error) from error
