"""The moment that a time stamp supports, out of its own bytes (RFC 3161, section 2.4.2; DER, X.690).

A token says when it was made, with a fraction of a second where its authority wants, and how far that may be off. What was
stamped existed before the sum of both. Where it states no accuracy, the last digit that it writes is one unit: a clock that
shows whole seconds has shown this one for up to a second.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from typing import Final

from ledger.errors import Malformed

_INTEGER, _OCTETS, _OBJECT, _SEQUENCE, _TIME = 0x02, 0x04, 0x06, 0x30, 0x18
_MILLIS, _MICROS, _EXPLICIT = 0x80, 0x81, 0xA0
_TOKEN_INFO: Final = bytes.fromhex("2a864886f70d0109100104")
"""id-ct-TSTInfo, 1.2.840.113549.1.9.16.1.4."""
_SIGNED_DATA: Final = bytes.fromhex("2a864886f70d010702")
"""id-signedData, 1.2.840.113549.1.7.2."""
_MOMENT = re.compile(rb"([0-9]{14})(?:\.([0-9]{0,17}[1-9]))?Z")
"""A GeneralizedTime in DER: no zone but Z, no fraction that ends in 0."""
_MOST_SECONDS: Final = 366 * 86400
"""An authority that may be off by more says nothing."""


@dataclass(frozen=True)
class Instant:
    """When a token was made, to the second below, and the moment before which what it stamps existed."""

    second: datetime
    bound: datetime


def instant_of(token: bytes) -> Instant:
    """The instant of a time stamp token (a ContentInfo), whose signature someone else has verified.

    Raises:
        Malformed: not a token in DER, or one that states no moment.
    """
    kind, content = _only(_SEQUENCE, token)[:2]
    if kind != (_OBJECT, _SIGNED_DATA) or content[0] != _EXPLICIT:
        raise _bad("signed data", kind[1].hex())
    signed = _only(_SEQUENCE, content[1])
    kind, content = _exactly(_inner(signed, 2, _SEQUENCE), 2)
    if kind != (_OBJECT, _TOKEN_INFO) or content[0] != _EXPLICIT:
        raise _bad("a TSTInfo", kind[1].hex())
    ((tag, info),) = _exactly(content[1], 1)
    if tag != _OCTETS:
        raise _bad("a TSTInfo in octets", f"tag {tag:#04x}")
    fields = _only(_SEQUENCE, info)
    second, unit, fraction = _moment(_inner(fields, 4, _TIME))
    off = _accuracy(fields[5][1]) if len(fields) > 5 and fields[5][0] == _SEQUENCE else unit
    try:
        return Instant(second, second + fraction + off)
    except OverflowError:
        raise _bad("a moment with its accuracy", f"{second} and {off}") from None


def _moment(value: bytes) -> tuple[datetime, timedelta, timedelta]:
    """The second, the unit of the last digit that is written, and the fraction, rounded up to microseconds."""
    match = _MOMENT.fullmatch(value)
    if match is None:
        raise _bad("a moment as 20260129101500.25Z", repr(value)[:60])
    try:
        second = datetime.strptime(match[1].decode(), "%Y%m%d%H%M%S").replace(tzinfo=UTC)
    except ValueError:
        raise _bad("a moment of the calendar", repr(value)[:60]) from None
    digits = match[2] or b""
    fraction, unit = -(-int(digits or b"0") * 10**6 // 10 ** len(digits)), -(-(10**6) // 10 ** len(digits))
    return second, timedelta(microseconds=unit), timedelta(microseconds=fraction)


def _accuracy(value: bytes) -> timedelta:
    """``Accuracy``: seconds, milliseconds and microseconds, each optional, in this order."""
    parts, last = dict.fromkeys((_INTEGER, _MILLIS, _MICROS), 0), 0
    for tag, number in _each(value):
        most = _MOST_SECONDS if tag == _INTEGER else 999
        amount = _unsigned(number)
        if tag not in parts or (last and tag <= last) or amount > most or (amount == 0 and tag != _INTEGER):
            raise _bad("an accuracy", value.hex()[:60])
        parts[tag], last = amount, tag
    return timedelta(seconds=parts[_INTEGER], milliseconds=parts[_MILLIS], microseconds=parts[_MICROS])


def _unsigned(number: bytes) -> int:
    if not 1 <= len(number) <= 8 or number[0] & 0x80 or (len(number) > 1 and number[0] == 0 and number[1] < 0x80):
        raise _bad("a small number from 0 on", number.hex()[:40])
    return int.from_bytes(number)


def _inner(fields: list[tuple[int, bytes]], place: int, tag: int) -> bytes:
    if len(fields) <= place or fields[place][0] != tag:
        raise _bad(f"tag {tag:#04x} as field {place}", f"{len(fields)} fields")
    return fields[place][1]


def _only(tag: int, data: bytes) -> list[tuple[int, bytes]]:
    """The fields of the one value that ``data`` is."""
    ((found, value),) = _exactly(data, 1)
    if found != tag:
        raise _bad(f"tag {tag:#04x}", f"{found:#04x}")
    fields = list(_each(value))
    if len(fields) < 2:
        raise _bad("at least two fields", str(len(fields)))
    return fields


def _exactly(data: bytes, count: int) -> list[tuple[int, bytes]]:
    fields = list(_each(data))
    if len(fields) != count:
        raise _bad(f"{count} fields", str(len(fields)))
    return fields


def _each(data: bytes) -> Iterator[tuple[int, bytes]]:
    """Tag and content of the values one after the other, in DER: tags of one byte, lengths that are definite and short."""
    at = 0
    while at < len(data):
        if len(data) < at + 2 or data[at] & 0x1F == 0x1F:
            raise _bad("a tag and a length", data[at : at + 4].hex())
        tag, length, at = data[at], data[at + 1], at + 2
        if length >= 0x80:
            size = length & 0x7F
            number = data[at : at + size]
            length = int.from_bytes(number)
            if not 1 <= size <= 4 or len(number) < size or number[0] == 0 or length < 0x80:
                raise _bad("a length in its shortest form", number.hex())
            at += size
        if len(data) < at + length:
            raise _bad(f"{length} bytes", f"{len(data) - at}")
        yield tag, data[at : at + length]
        at += length


def _bad(expected: str, found: str) -> Malformed:
    return Malformed("not a time stamp token", expected=expected, found=found)
