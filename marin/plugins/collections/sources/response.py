"""A message of HTTP as a crawler stored it (RFC 9110, 9112): its head, its type, its body without codings.

Crawlers store what they saw, and many undo codings and leave the header. So a body that is plainly not in the coding that its
header names is taken as it is, as browsers and warcio do; one that begins so and breaks is damaged.
"""

from __future__ import annotations

import re
import zlib
from collections.abc import Mapping
from dataclasses import dataclass
from functools import lru_cache

GZIP, ZSTD = b"\x1f\x8b", b"\x28\xb5\x2f\xfd"
WINDOW = 8 << 20
"""Bytes of the window that a content coded by zstd may need (RFC 9659)."""
FIRST, BLOCK = 1 << 10, 1 << 16
REGISTERED = frozenset(
    (
        "aes128gcm",
        "compress",
        "x-compress",
        "dcb",
        "dcz",
        "exi",
        "pack200-gzip",
        "bzip2",
        "xz",
        "lzma",
        "lz4",
        "snappy",
        "sdch",
    )
)
"""Codings (IANA's registry, and some in use) that nothing here undoes. Other words of a header, as ``utf-8``, are not codings."""

END = re.compile(rb"\n[ \t]*\r?\n")
"""The end of a head: an empty line, whatever ends its lines (RFC 9112, 2.2)."""
_STATUS = re.compile(rb"HTTP/[0-9](?:\.[0-9]+)?[ \t]+([0-9]{3})(?!\S)")
_SIZE = re.compile(rb"[ \t]*+([0-9A-Fa-f]{1,15})[ \t]*+(?:;[^\n]*+)?\r?\n")
_PART = re.compile(r'(?:[^",]|"(?:[^"\\]|\\.)*+"?)++', re.DOTALL)
_TYPE = re.compile(r"[ \t\r\n]*([!#$%&'*+.^_`|~0-9A-Za-z-]++/[!#$%&'*+.^_`|~0-9A-Za-z-]++)[ \t\r\n]*(?:;|\Z)")
_PARAMETER = re.compile(r';[ \t\r\n]*+([^;=]*+)=(?:"((?:[^"\\]|\\.)*+)|([^;]*))', re.DOTALL)
_BINARY = re.compile(rb"[\x00-\x08\x0b\x0e-\x1a\x1c-\x1f]")


class Damaged(Exception):
    """A body, or a stream of records, that cannot be read further."""


class NotHttp(Exception):
    """No status line begins it."""


@dataclass(frozen=True)
class Response:
    """The final response. ``fields``: by name in small letters (:func:`headers`)."""

    status: str
    fields: Mapping[str, str]
    body: bytes


def response(block: bytes) -> Response:
    """Read a message; interim responses (RFC 9110, 15.2) before it are passed over.

    Raises:
        NotHttp: no status line begins it; the line that is there instead.
    """
    while True:
        end = END.search(block)
        head, body = (block, b"") if end is None else (block[: end.start()], block[end.end() :])
        line, _, rest = head.partition(b"\n")
        status = _STATUS.match(line)
        if status is None:
            raise NotHttp(line[:80].decode("latin-1"))
        if not status[1].startswith(b"1") or status[1] == b"101" or not body.startswith(b"HTTP/"):
            return Response(status[1].decode(), headers(rest), body)
        block = body


def headers(data: bytes) -> dict[str, str]:
    """Fields by name in small letters; of one that stands twice the values with a comma between (RFC 9110, 5.3), lines that begin
    with white space as part of the line before (RFC 9112, 5.2)."""
    found: dict[str, str] = {}
    key = ""
    for line in data.split(b"\n"):
        if key and line.startswith((b" ", b"\t")):
            found[key] = f"{found[key]} {_text(line)}".strip()
            continue
        name, colon, value = line.partition(b":")
        key = name.decode("latin-1").strip().lower() if colon else ""
        if key:  # a name that is empty is a pseudo-header of HTTP/2
            found[key] = f"{found[key]}, {_text(value)}" if key in found else _text(value)
    return found


def _text(value: bytes) -> str:
    return value.decode("utf-8", "replace").strip()


@lru_cache(1024)
def media_type(value: str) -> tuple[str, str]:
    """The type in small letters and the ``charset`` that Content-Type names, each empty where there is none.

    Source: "extract a MIME type" of the Fetch Standard (of several values the last that is one, and its like before it for the
    charset), "parse a MIME type" of MIME Sniffing.
    """
    essence = charset = ""
    for part in _PART.findall(value):
        found = _TYPE.match(part)
        if found is None or found[1] == "*/*":
            continue
        label = ""
        for name, quoted, bare in _PARAMETER.findall(part, found.end(1)):
            said = re.sub(r"\\(.)", r"\1", quoted, flags=re.DOTALL) or bare.rstrip(" \t\r\n")
            label = label or (said if name.lower() == "charset" else "")
        charset = label or (charset if found[1].lower() == essence else "")
        essence = found[1].lower()
    return essence, charset


def textual(body: bytes) -> bool:
    """Whether no byte of its beginning is one of data (MIME Sniffing, 7)."""
    return body.startswith((b"\xff\xfe", b"\xfe\xff")) or _BINARY.search(body, 0, 1445) is None


def content(found: Response, most: int, *, cut: bool = False) -> bytes:
    """The body without its transfer and content codings, at most one byte longer than ``most``.

    Args:
        cut: the record says that it does not hold all of the body; what there is of it is given.

    Raises:
        Damaged: it ends too early, is broken, or coded in a way that is not undone here.
    """
    body = found.body
    sent = _codings(found.fields.get("transfer-encoding", ""))
    chunks = 0
    for coding in reversed(sent):
        if coding == "chunked":
            body = _unchunked(body, cut, again=bool(chunks))
            chunks += 1
        else:
            body = _undone(body, coding, most, cut)
    for coding in reversed(_codings(found.fields.get("content-encoding", ""))):
        body = _undone(body, coding, most, cut)
    return body


def _codings(value: str) -> list[str]:
    names = (item.partition(";")[0].strip().strip("\"'").lower() for item in value.split(","))
    return [name for name in names if name]


def _undone(body: bytes, coding: str, most: int, cut: bool) -> bytes:
    if coding in REGISTERED:
        raise Damaged(f"coded by {coding}")
    if len(body) > most:
        return body
    if coding in ("gzip", "x-gzip"):
        return _gunzipped(body, most, cut)
    if coding == "deflate":
        return _inflated(body, most, cut)
    if coding == "br":
        return _unbrotlied(body, most, cut)
    if coding == "zstd":
        return _unzstd(body, most, cut)
    return body


def _gunzipped(body: bytes, most: int, cut: bool) -> bytes:
    """All members (RFC 1952, 2.2); what follows the last is passed over, as by gzip and browsers."""
    data, view, place = bytearray(), memoryview(body), 0
    while body.startswith(GZIP, place):
        one, size = zlib.decompressobj(31), FIRST
        while not one.eof and place < len(body):
            block = view[place : place + size]
            try:
                data += one.decompress(block, most + 1 - len(data))
            except zlib.error as error:
                raise Damaged(str(error)) from None
            if len(data) > most:
                return bytes(data)
            # Small blocks first: what a short member leaves of its block is copied.
            place, size = place + len(block) - len(one.unused_data), min(size * 4, BLOCK)
        if not one.eof:
            _ends_early(cut)
    return bytes(data) if place else body


def _inflated(body: bytes, most: int, cut: bool) -> bytes:
    """In zlib's format (RFC 9110, 8.4.1.2), or bare, as some servers send it."""
    begun = b""
    for bits in (15, -15):
        one = zlib.decompressobj(bits)
        try:
            data = one.decompress(body, most + 1)
        except zlib.error:
            continue
        if one.eof or len(data) > most:
            return data
        begun = begun or data
    return _broken(body, begun, "deflate", cut)


def _unbrotlied(body: bytes, most: int, cut: bool) -> bytes:
    try:
        import brotli  # type: ignore[import-untyped]
    except ImportError:
        raise Damaged("coded by br, and the package brotli is not installed") from None

    one, data, place = brotli.Decompressor(), bytearray(), 0
    try:
        while not one.is_finished() and len(data) <= most:
            block = body[place : place + BLOCK] if one.can_accept_more_data() else b""
            place += len(block)
            more = one.process(block, output_buffer_limit=BLOCK)
            data += more
            if not block and not more:
                break
    except brotli.error:
        return _broken(body, b"", "br", cut)
    if one.is_finished() or len(data) > most:
        return bytes(data[: most + 1])
    return _broken(body, bytes(data), "br", cut)


def _unzstd(body: bytes, most: int, cut: bool) -> bytes:
    import zstandard

    data, place = bytearray(), 0
    while body.startswith(ZSTD, place):
        one = zstandard.ZstdDecompressor(max_window_size=WINDOW).decompressobj()
        while not one.eof and place < len(body):
            block = body[place : place + 256]  # a block of zstd is 128 KiB at most, and may be four bytes long
            try:
                data += one.decompress(block)
            except zstandard.ZstdError as error:
                raise Damaged(str(error)) from None
            place += len(block) - len(one.unused_data)
            if len(data) > most:
                return bytes(data[: most + 1])
        if not one.eof:
            _ends_early(cut)
    return bytes(data) if place else _broken(body, b"", "zstd", cut=False)


def _broken(body: bytes, begun: bytes, coding: str, cut: bool) -> bytes:
    """What a body is that is not whole in its coding, which has no mark at its begin: text, cut, or damaged."""
    if textual(body):
        return body
    if not begun or not cut:
        raise Damaged(f"not whole, or not coded by {coding}")
    return begun


def _ends_early(cut: bool) -> None:
    if not cut:
        raise Damaged("the body ends too early")


def _unchunked(body: bytes, cut: bool, again: bool) -> bytes:
    """The chunks of RFC 9112, 7.1. A body that a crawler has put together already is given as it is.

    Args:
        again: chunks were undone before, as a field said so twice; no body has them twice but one that is nothing else.
    """
    parts: list[bytes] = []
    place = 0
    while (size := _SIZE.match(body, place)) is not None:
        count = int(size[1], 16)
        if not count:
            return b"".join(parts) if (parts and not again) or not body[size.end() :].strip() else body
        place = size.end() + count
        parts.append(body[size.end() : place])
        line = 2 if body.startswith(b"\r\n", place) else 1 if body.startswith(b"\n", place) else 0
        if not line:
            break
        place += line
    if not parts or again:
        return body
    if not cut or body.find(b"\n", place) >= 0:
        raise Damaged("the chunks end too early")
    return b"".join(parts)
