"""What clients and the append service say to each other: frames of JSON over a local socket.

A frame is its length as a big-endian uint32 and that many bytes of UTF-8 JSON. The client's first frame is
``{"token": …}``, answered by ``{"origin": …}``. Each further one is a request ``{"drafts": [[type, stream, body,
id, expect_seq, actor, time], …]}``, one atomic batch, answered in order by ``{"receipts": [[index, leaf hash,
seq, tree size], …]}`` or ``{"error": [kind, what, where, expected, found, cure]}``. A client may send requests
ahead of the answers. A greeting has at most 1 KiB, a request at most 64 MiB. ``{"do": name}`` asks for something else
that anyone who serves has a name for, and is answered by ``{"done": …}``, whatever that gives, or an error.
"""

from __future__ import annotations

import json
import socket
import struct
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from typing import Any

import msgspec

from ledger import errors
from ledger.errors import LedgerError, Malformed
from ledger.format.canonical import parse_canonical
from ledger.format.event import Draft
from ledger.log.batch import Receipt
from ledger.service.lobby import PromptReader

MAX_FRAME = 64 << 20
MAX_PIECE = 8 << 20
"""Bytes of a file that travel in one frame."""
MAX_GREETING = 1 << 10
"""Bytes of the frame that a client sends before the service knows it."""
_KINDS = {name: kind for name, kind in vars(errors).items() if isinstance(kind, type) and issubclass(kind, LedgerError)}


@contextmanager
def whole_exchange(
    close: Callable[[], None], gone: Callable[[OSError], LedgerError], *, ends: tuple[type[LedgerError], ...] = ()
) -> Iterator[None]:
    """A request and its answer. One that is cut short, as by a signal, ends the connection: its answer would be taken for the
    next one's. So do errors of ``ends``; ``gone``: what a lost connection is to the caller."""
    try:
        yield
    except OSError as error:
        raise gone(error) from error
    except LedgerError as error:
        if isinstance(error, ends):
            close()
        raise
    except BaseException:
        close()
        raise


class FrameSocket:
    """Frames over a connected socket. A closed connection is None when read between frames."""

    def __init__(self, connection: socket.socket) -> None:
        if connection.family == socket.AF_INET:
            connection.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        self._connection = connection
        self._stream = connection.makefile("rb")

    def greeting(self, seconds: float) -> bytes | None:
        """The first frame of an unknown client: small, whole within ``seconds``, and nothing behind it is read yet."""
        reader = PromptReader(self._connection, seconds=seconds, limit=4 + MAX_GREETING)
        head = reader.exactly(4)
        if not head:
            return None
        size = _size(head, MAX_GREETING)
        return _uncut(reader.exactly(size), size)

    def be_patient(self, seconds: float) -> None:
        """From here on the peer may be silent between frames, but not longer than ``seconds`` within one, and must take
        what is sent within that time."""
        self._connection.settimeout(None)
        seconds_and_microseconds = struct.pack("@ll", int(seconds), int(seconds % 1 * 1e6))
        for way in (socket.SO_RCVTIMEO, socket.SO_SNDTIMEO):
            self._connection.setsockopt(socket.SOL_SOCKET, way, seconds_and_microseconds)
        self._connection.setsockopt(socket.SOL_SOCKET, socket.SO_KEEPALIVE, 1)

    def send(self, *frames: bytes) -> None:
        self._connection.sendall(b"".join(part for frame in frames for part in (len(frame).to_bytes(4), frame)))

    def receive(self) -> bytes | None:
        size = self.next_size()
        return None if size is None else self.body(size)

    def next_size(self) -> int | None:
        """The size of the frame that comes; ``body`` reads it."""
        head: bytes | None = None
        while head is None:  # silent for as long as be_patient allows, which is not a fault between frames
            head = self._stream.read(4)
        return _size(head, MAX_FRAME) if head else None

    def body(self, size: int) -> bytes:
        """The frame of which ``next_size`` gave the size."""
        return _uncut(self._stream.read(size) or b"", size)

    def hang_up(self) -> None:
        """End the connection for anyone who reads or sends on it in another thread."""
        with suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)

    def close(self) -> None:
        self._stream.close()
        self._connection.close()


def _size(head: bytes, limit: int) -> int:
    size = int.from_bytes(head)
    if len(head) < 4 or size > limit:
        raise Malformed("not a frame", expected=f"at most {limit} bytes", found=f"{size}")
    return size


def _uncut(frame: bytes, size: int) -> bytes:
    if len(frame) < size:
        raise Malformed("a frame is cut short", expected=f"{size} bytes", found=f"{len(frame)}")
    return frame


class _Row(msgspec.Struct, array_like=True, gc=False):
    """A draft on the wire. The body travels as the canonical bytes that the client made, and is not made again."""

    type: str
    stream: str
    body: msgspec.Raw
    id: str
    expect_seq: int | None
    actor: str | None
    time: str | None


class _Request(msgspec.Struct, gc=False):
    drafts: list[_Row]


class _Receipts(msgspec.Struct, gc=False):
    receipts: list[Receipt]


_encode = msgspec.json.Encoder().encode
_decode_request = msgspec.json.Decoder(_Request).decode
_decode_answer = msgspec.json.Decoder(_Receipts).decode


def encode_drafts(drafts: Sequence[Draft]) -> bytes:
    """A request. What cannot be encoded exactly is refused here, at the client.

    Raises:
        Malformed: text with a lone surrogate.
    """
    rows = [_Row(d.type, d.stream, msgspec.Raw(d.body_bytes), str(d.id), d.expect_seq, d.actor, d.time) for d in drafts]
    try:
        return _encode(_Request(rows))
    except UnicodeEncodeError as error:
        raise Malformed("text with a lone surrogate", found=str(error)) from error


def decode_drafts(frame: bytes) -> list[Draft]:
    """The drafts of a request; ``Malformed`` unless each body is an object in canonical form."""
    try:
        rows = _decode_request(frame).drafts
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        raise Malformed(
            "not a request of this protocol",
            expected='{"drafts":[[type, stream, body, id, expect_seq, actor, time], …]}',
            found=str(error)[:200],
        ) from None
    return [_draft(row) for row in rows]


def _draft(row: _Row) -> Draft:
    raw = bytes(row.body)
    body = parse_canonical(raw)
    if not isinstance(body, dict):
        raise Malformed("not a draft", where=f"body of {row.id}", expected="an object", found=type(body).__name__)
    return Draft.received(row.type, row.stream, body, row.id, row.expect_seq, row.actor, row.time, raw)


def encode_receipts(receipts: Sequence[Receipt]) -> bytes:
    """The answer to a request to append."""
    return _encode(_Receipts(list(receipts)))


def encode_error(error: LedgerError) -> bytes:
    """The answer that raises this error at the client."""
    parts = [type(error).__name__, error.what, error.where, error.expected, error.found, error.cure]
    return json.dumps({"error": parts}).encode()


def decode_receipts(frame: bytes) -> list[Receipt]:
    """The receipts of an answer; raises the error if it is one.

    Raises:
        Malformed: not an answer.
    """
    try:
        return _decode_answer(frame).receipts
    except (msgspec.MsgspecError, ValueError, RecursionError) as error:
        answer = _object(frame)
        if "error" in answer:
            raise _error(answer["error"]) from None
        raise Malformed("not an answer", expected="receipts or an error", found=str(error)[:200]) from None


def decode_outcome(frame: bytes) -> list[Receipt] | LedgerError:
    """As :func:`decode_receipts`, with the error that the answer is.

    Raises:
        Unavailable: not an answer.
    """
    try:
        return decode_receipts(frame)
    except Malformed as error:
        raise errors.Unavailable("the service answered in another language", found=str(error)) from error
    except LedgerError as error:
        return error


def encode_done(value: object) -> bytes:
    """The answer to an act; ``value`` is what JSON has."""
    return json.dumps({"done": value}).encode()


def decode_done(frame: bytes) -> Any:
    """What an act gave; raises the error if the answer is one.

    Raises:
        Malformed: not an answer.
    """
    answer = _object(frame)
    if "error" in answer:
        raise _error(answer["error"])
    if "done" not in answer:
        raise Malformed("not an answer", expected="a member done", found=repr(frame[:60]))
    return answer["done"]


def decode_act(frame: bytes) -> str | None:
    """The name of what a frame asks for, where it is not a request to append."""
    return str(_member(frame, "do", str)) if frame.startswith(b'{"do"') else None


def encode_storage_request(asked: list[object]) -> bytes:
    """What a client asks of the storage of a remote service."""
    return json.dumps({"store": asked}).encode()


def decode_storage_request(frame: bytes) -> list[Any] | None:
    """What is asked of the storage, where a frame is not a request to append."""
    return list(_member(frame, "store", list)) if frame.startswith(b'{"store"') else None


def encode_member(name: str, value: str) -> bytes:
    """A frame of one member."""
    return json.dumps({name: value}).encode()


def decode_text(frame: bytes, name: str) -> str:
    """The one text of a greeting."""
    answer = _object(frame)
    if "error" in answer:
        raise _error(answer["error"])
    return str(_member(frame, name, str))


def _member(frame: bytes, name: str, kind: type) -> Any:
    value = _object(frame).get(name)
    if not isinstance(value, kind):
        raise Malformed("not a frame of this protocol", expected=f"a member {name}", found=repr(frame[:60]))
    return value


def _object(frame: bytes) -> dict[str, Any]:
    try:
        value = json.loads(frame)
    except (ValueError, RecursionError):
        value = None
    if not isinstance(value, dict):
        raise Malformed("not a frame of this protocol", expected="a JSON object", found=repr(frame[:60]))
    return value


def _error(parts: object) -> LedgerError:
    if not isinstance(parts, list) or len(parts) != 6 or not all(isinstance(part, str) for part in parts):
        return Malformed("not an answer", found=repr(parts)[:100])
    kind, what, where, expected, found, cure = parts
    return _KINDS.get(kind, LedgerError)(what, where=where, expected=expected, found=found, cure=cure)
