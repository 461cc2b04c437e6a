"""A drawn change of bytes, of a value, of an event; and whether bytes read as they did before."""

from __future__ import annotations

import base64
import binascii
from random import Random
from typing import Any

from tests.adversary.forgeries.workshop import OTHER


def changed(data: bytes, draw: Random) -> bytes:
    """Other bytes: a bit flipped, a byte less or more, cut short, a stretch repeated or wiped out."""
    if not data:
        return b"\0"
    at, much = draw.randrange(len(data)), draw.randint(1, 40)
    match draw.randrange(6):
        case 0 | 1:
            return data[:at] + bytes([data[at] ^ 1 << draw.randrange(8)]) + data[at + 1 :]
        case 2:
            return data[:at] + data[at + 1 :]
        case 3:
            return data[:at] + bytes([draw.randrange(256)]) + data[at:]
        case 4:
            return data[:at]
        case _:
            return data[:at] + data[at : at + much] * 2 + data[at + much :] + b"\0"


def reads_as(before: bytes, after: bytes) -> bool:
    """Whether two signed texts differ in bits that base64 does not use, or in spaces of JSON, alone."""
    if before == after:
        return True
    parts = [data.replace(b'"', b" ").split() for data in (before, after)]
    return len(parts[0]) == len(parts[1]) and all(map(_same, *parts))


def _same(one: bytes, other: bytes) -> bool:
    try:
        return one == other or (len(one) > 40 and base64.b64decode(one) == base64.b64decode(other))
    except (binascii.Error, ValueError):
        return False


def leaves(value: Any, path: tuple[str | int, ...] = ()) -> list[tuple[str | int, ...]]:
    """Where the values stand that hold no others."""
    items = list(value.items() if isinstance(value, dict) else enumerate(value) if isinstance(value, list) else ())
    return [leaf for name, item in items for leaf in leaves(item, (*path, name))] if items else [path]


def set_other(body: Any, path: tuple[str | int, ...], digests: list[str], draw: Random) -> None:
    """Another value of the same kind at this place."""
    for part in path[:-1]:
        body = body[part]
    body[path[-1]] = _other(body[path[-1]], digests, draw)


def _other(value: Any, digests: list[str], draw: Random) -> Any:
    match value:
        case bool():
            return not value
        case int():
            return value + draw.choice((1, -1, 1000))
        case float():
            return value * 2 + 1
        case None:
            return 1
        case str() if value.startswith("sha256:"):
            return draw.choice([digest for digest in digests if digest != value] or [OTHER])
        case str() if "0x" in value and "p" in value:
            number = float.fromhex(value)
            return draw.choice((number + 2**-20, -number or 1.0, number / 2 + 1)).hex()
        case str():
            return value + "x"
    return {"x": 1} if isinstance(value, dict) else ["x"]
