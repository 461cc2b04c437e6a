"""The append service for machines that share no folder: TLS between enrolled keys, and the root's files beside appends.

An author appends what the author signed, and nothing else. Of the root an author reads log and store, and writes to the store
alone: blobs, manifests and part hashes whose bytes have the digest in their name, and leases. Nothing that is there is
replaced or removed. A connection has one thread, which answers one request after the other; those of all connections are
committed together.

    client: a request of wire.py                                     server: its answer
    client: {"store": ["range", NAME, START, LENGTH]}                server: {"done": null}, and a frame of bytes
            "size", "exists", "list", "details" alike                server: {"done": …}
            ["ensure", NAME, N]; "create" alike, and N frames        server: {"done": null}
"""

from __future__ import annotations

import hashlib
import socket
import ssl
import tempfile
from collections.abc import Callable, Iterator, Sequence
from contextlib import AbstractContextManager, closing
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

from ledger.authors.reading import Author
from ledger.authors.statement import read_signed
from ledger.errors import LedgerError, Refused, Tampered, Unavailable, Unverified
from ledger.format.event import AUTHOR_TYPES, Draft
from ledger.format.note import Signer
from ledger.service import wire
from ledger.service.lobby import Door, Lobby
from ledger.service.server import GroupCommit
from ledger.service.tls import peer_certificate, server_context
from ledger.storage.port import Storage, check_name, check_prefix
from ledger.store.blobs.hashing import hash_file
from ledger.store.layout import BLOBS, LEASES, PARTS, STORE, TREES, digest_of
from ledger.store.parts import PartHashes

_STRANGERS = 64
_CLIENTS = 256
_HANDSHAKE_SECONDS = 10.0
_PATIENCE_SECONDS = 300.0
"""How long a client may be silent; one that comes back connects again."""
_READ = ("log/checkpoint", "log/journal", "log/tile/", "keys/", STORE)
_READ_FILES = ("vkey", "witnessed", "witness-policy", "authorities.pem")
_MOST_PIECES = 1 << 16
_MOST_LEASE = 1 << 16
_MOST_NAMES = 200_000


@dataclass(frozen=True)
class Served:
    """What a remote service serves. ``people``: the authors whose keys count by now."""

    origin: str
    storage: Storage
    key: Signer
    people: Callable[[], Sequence[Author]]


class RemoteService(AbstractContextManager["RemoteService"]):
    """Serves a log and its store to enrolled authors, until closed. Use it as a context manager."""

    def __init__(
        self,
        served: Served,
        committer: GroupCommit,
        host: str,
        port: int,
        *,
        strangers: int = _STRANGERS,
        clients: int = _CLIENTS,
        handshake_seconds: float = _HANDSHAKE_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        self._served, self._committer = served, committer
        self._handshake_seconds, self._patience_seconds = handshake_seconds, patience_seconds
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        listener = socket.create_server((host, port), family=family, backlog=128)
        self._lobby = Lobby(seats=strangers, inside=clients)
        self._door = Door(listener, self._lobby, self._serve, self._secured)
        self.port = self._door.port
        self._door.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take nobody more, and end every connection once its request is answered."""
        self._door.close()

    def _secured(self, plain: socket.socket) -> ssl.SSLSocket:
        context = server_context(self._served.key, [author.certificate for author in self._served.people()])
        return context.wrap_socket(plain, server_side=True, do_handshake_on_connect=False)

    def _serve(self, connection: socket.socket) -> None:
        assert isinstance(connection, ssl.SSLSocket), "what was secured"
        connection.settimeout(self._handshake_seconds)
        host = str(connection.getpeername()[0])  # as long as it is there
        try:
            connection.do_handshake()
        except ssl.SSLCertVerificationError as error:
            raise Unverified(
                "the log has not enrolled this key, or revoked it",
                where=host,
                found=error.verify_message,
                cure="if it is somebody who should write here, enrol the line that `ledger key join` gave them",
            ) from error
        shown = peer_certificate(connection)
        connection.settimeout(self._patience_seconds)
        with closing(wire.FrameSocket(connection)) as frames:
            self._greet(frames, connection)
            self._answer(frames, shown)

    def _greet(self, frames: wire.FrameSocket, connection: ssl.SSLSocket) -> None:
        if not self._lobby.admit(connection):
            full = Unavailable("the service has as many clients as it takes", cure="close some, or try again later")
            frames.send(wire.encode_error(full))
            raise full
        frames.send(wire.encode_member("origin", self._served.origin))

    def _answer(self, frames: wire.FrameSocket, shown: bytes) -> None:
        while not self._door.closing.is_set() and (frame := frames.receive()) is not None:
            try:
                author = self._known(shown)
                asked = wire.decode_storage_request(frame)
                answer = self._appended(author, frame) if asked is None else self._stored(frames, asked)
            except LedgerError as error:
                answer = [wire.encode_error(error)]
            frames.send(*answer)

    def _known(self, shown: bytes) -> Author:
        """Whose certificate it is that was shown: asked before each request, for keys are revoked meanwhile."""
        for author in self._served.people():
            if author.certificate == shown:
                return author
        raise Unverified(
            "the log has not enrolled this key, or revoked it",
            where=self._served.origin,
            expected="a key that `ledger key people` lists there",
            cure="ask who holds the log's key",
        )

    def _appended(self, author: Author, frame: bytes) -> list[bytes]:
        drafts = wire.decode_drafts(frame)
        check_all_signed(self._served.origin, author, drafts)
        return [wire.encode_receipts(self._committer.submit(drafts).result())]

    def _stored(self, frames: wire.FrameSocket, asked: list[Any]) -> list[bytes]:
        storage = self._served.storage
        match asked:
            case ["range", str(name), int(start), int(length)] if start >= 0 and 0 <= length <= wire.MAX_PIECE:
                return [wire.encode_done(None), storage.read_range(_readable(name), start, length)]
            case ["size", str(name)]:
                return [wire.encode_done(storage.size(_readable(name)))]
            case ["exists", str(name)]:
                return [wire.encode_done(storage.exists(_readable(name)))]
            case ["list", str(prefix)]:
                return [wire.encode_done(list(_some(storage.list(_listable(prefix)))))]
            case ["details", str(prefix)]:
                return [
                    wire.encode_done([[d.name, d.size, d.modified] for d in _some(storage.details(_listable(prefix)))])
                ]
            case ["ensure" | "create" as how, str(name), int(pieces)]:
                if not 0 <= pieces <= _MOST_PIECES:
                    raise OSError(f"{pieces} pieces")  # nobody reads so far, so the connection ends
                with tempfile.NamedTemporaryFile(prefix="ledger-incoming-") as file:
                    for _ in range(pieces):  # read whatever it is, so that the next request is found
                        file.write(frames.receive() or b"")
                    file.flush()
                    file.seek(0)
                    self._put(how, check_name(name), file)
                return [wire.encode_done(None)]
            case ["remove", str(name)] if check_name(name).startswith(LEASES):
                storage.remove(name)
                return [wire.encode_done(None)]
            case ["renew", str(name), str(text)] if check_name(name).startswith(LEASES) and len(text) <= _MOST_LEASE:
                storage.replace(name, text.encode())
                return [wire.encode_done(None)]
        raise Refused(
            "an author may not do this to a root that is served",
            where=repr(asked)[:120],
            expected="reading log and store, and adding to the store",
            cure="do it on the machine where the root lies",
        )

    def _put(self, how: str, name: str, file: Any) -> None:
        size = Path(file.name).stat().st_size
        if name.startswith(LEASES) and size <= _MOST_LEASE:
            self._served.storage.create(name, file.read())
            return
        check_content(name, file)
        file.seek(0)
        if how == "create" or size <= wire.MAX_PIECE:
            write = self._served.storage.create if how == "create" else self._served.storage.ensure
            write(name, file.read())
        else:
            self._served.storage.adopt(name, Path(file.name))


def check_all_signed(origin: str, author: Author, drafts: Sequence[Draft]) -> None:
    """Raises unless each of these drafts is signed by the author who hands them in, or speaks of keys by a signature of its own.

    Raises:
        Refused: one is not.
    """
    signed = read_signed(origin, drafts)
    for draft in drafts:
        statement = signed.get(str(draft.id))
        if draft.type not in AUTHOR_TYPES and (statement is None or statement.author != author.vkey):
            raise Refused(
                "an event that its sender has not signed",
                where=f"{draft.type} {draft.id}",
                expected=f"a signature of {author.name}",
                found="none" if statement is None else f"one of {statement.author.name}",
                cure="append with the key that the connection shows",
            )


def check_content(name: str, file: BinaryIO) -> None:
    """Raises unless these bytes may lie under this name of the store, because the name says what they are.

    Raises:
        Refused: no name of the kind.
        Tampered: other bytes.
    """
    if name.startswith(BLOBS):
        expected, found = digest_of(name, BLOBS), hash_file(file).digest
    elif name.startswith(TREES):
        expected, found = digest_of(name, TREES), f"sha256:{hashlib.sha256(file.read()).hexdigest()}"
    elif name.startswith(PARTS):
        parts = PartHashes.parse(file.read(wire.MAX_PIECE), where=name)
        expected, found = digest_of(name, PARTS), parts.digest if parts.certified else "another root"
    else:
        raise Refused(
            "an author adds nothing of this kind to a root that is served",
            where=name,
            expected=f"a name below {BLOBS}, {TREES}, {PARTS} or {LEASES}",
            found=name[:80],
            cure="do it on the machine where the root lies",
        )
    if expected != found:
        raise Tampered("bytes that are not what their name says", where=name, expected=expected, found=found)


def _readable(name: str) -> str:
    if check_name(name).startswith(_READ) or name in _READ_FILES:
        return name
    raise Refused(
        "an author does not read this of a root that is served",
        where=name,
        expected=f"a name below {', '.join(_READ)}, or {', '.join(_READ_FILES)}",
        found=name[:80],
    )


def _listable(prefix: str) -> str:
    check_prefix(prefix)
    return prefix if prefix.startswith(_READ) else _readable(prefix)


def _some[T](found: Iterator[T]) -> Iterator[T]:
    for count, one in enumerate(found):
        if count == _MOST_NAMES:
            raise Refused(
                "a list that is too long", expected=f"at most {_MOST_NAMES} names", cure="ask for a part of it"
            )
        yield one
