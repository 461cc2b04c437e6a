"""Canonical JSON (RFC 8785, JCS): one value, one sequence of bytes.

Everything that is hashed or signed as JSON goes through here. What has no exact and portable encoding is
refused, with the path of the offending value, and never rounded: NaN and infinities, integers beyond 2^53-1
(write them as strings), keys that are not strings, lone surrogates, types that JSON does not have.

``rfc8785`` does the encoding. Two shorter ways lead to the same bytes, and a test holds all three equal. Values
without floats whose keys are ASCII, where UTF-16 order and code point order agree, go through the standard
library's encoder. Objects without floats that are ASCII all through go through ``orjson``, which is thirty times
faster; what it wrote must decode to an equal value, so that nothing was converted on the way (NaN, dates).
"""

from __future__ import annotations

import json
import math
from typing import Any

import msgspec
import orjson
import rfc8785

from ledger.errors import Malformed, Refused

MAX_INTEGER = 2**53 - 1

_encode_plain = json.JSONEncoder(
    ensure_ascii=False, check_circular=False, allow_nan=False, sort_keys=True, separators=(",", ":")
).encode

_STRICT = (
    orjson.OPT_SORT_KEYS
    | orjson.OPT_STRICT_INTEGER
    | orjson.OPT_PASSTHROUGH_DATACLASS
    | orjson.OPT_PASSTHROUGH_DATETIME
    | orjson.OPT_PASSTHROUGH_SUBCLASS
)


def _no_float(text: str) -> Any:
    raise ValueError(f"{text} takes the longer way")


_decode_without_floats = msgspec.json.Decoder(float_hook=_no_float).decode


def canonical_bytes(value: object) -> bytes:
    """The RFC 8785 encoding of ``value``, or ``Refused`` naming the path of what cannot be encoded."""
    if type(value) is dict:
        try:
            data = orjson.dumps(value, option=_STRICT)
            if data.isascii() and _decode_without_floats(data) == value:
                return data
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
            pass  # the long way finds out where
    try:
        if _is_plain(value):
            return _encode_plain(value).encode()
    except (UnicodeEncodeError, RecursionError):
        pass  # the long way finds out where
    try:
        _check(value, "$")
        return rfc8785.dumps(value)  # type: ignore[arg-type]
    except RecursionError:
        raise Refused(
            "a JSON value is nested too deeply", where="$", cure="flatten it, or put it into the store by digest"
        ) from None
    except (rfc8785.CanonicalizationError, ValueError) as error:
        raise Refused("a value has no canonical JSON", where="$", found=str(error)) from error


def parse_canonical(data: bytes) -> Any:
    """The value of canonical JSON bytes; ``Malformed`` unless ``data`` is exactly what ``canonical_bytes`` would write."""
    if data.isascii():
        try:
            value = _decode_without_floats(data)
            if type(value) is dict and orjson.dumps(value, option=_STRICT) == data:
                return value
        except (TypeError, ValueError, msgspec.MsgspecError, RecursionError):
            pass  # the long way says what is wrong
    try:
        value = json.loads(data.decode())
        if _is_plain(value) and _encode_plain(value).encode() == data:
            return value
    except (ValueError, RecursionError):
        pass  # the long way says what is wrong
    return _parse_strictly(data)


def _parse_strictly(data: bytes) -> Any:
    try:
        value = json.loads(data.decode(), object_pairs_hook=_unique, parse_constant=_no_constant, parse_int=_integer)
    except RecursionError:
        raise Malformed("JSON is nested too deeply", where="$") from None
    except ValueError as error:  # also UnicodeDecodeError and JSONDecodeError
        raise Malformed("not JSON", found=str(error)[:200]) from error
    try:
        again = canonical_bytes(value)
    except Refused as error:
        raise Malformed("JSON that has no canonical form", where=error.where, found=error.found) from error
    if again != data:
        at = next((i for i, (a, b) in enumerate(zip(again, data, strict=False)) if a != b), min(len(again), len(data)))
        raise Malformed(
            "JSON is not canonical (RFC 8785)",
            where=f"byte {at}",
            expected=repr(again[at : at + 24]),
            found=repr(data[at : at + 24]),
        )
    return value


def _is_plain(value: object) -> bool:
    """Whether the standard library encodes ``value`` exactly as RFC 8785 does (lone surrogates aside)."""
    kind = type(value)
    if kind is str or value is None or kind is bool:
        return True
    if kind is int:
        return -MAX_INTEGER <= value <= MAX_INTEGER  # type: ignore[operator]
    if kind is dict:
        for key, item in value.items():  # type: ignore[attr-defined]  # noqa: SIM110 - twice as fast as all()
            if type(key) is not str or not key.isascii() or not _is_plain(item):
                return False
        return True
    return (kind is list or kind is tuple) and all(map(_is_plain, value))  # type: ignore[call-overload]


def _check(value: object, path: str) -> None:
    """Raise ``Refused`` at the first value that has no encoding."""
    if value is None or isinstance(value, bool):
        return
    if isinstance(value, str):
        _check_text(value, path)
    elif isinstance(value, int):
        if not -MAX_INTEGER <= value <= MAX_INTEGER:
            raise _refusal(path, f"an integer within ±(2^53-1), found {value}", "write it as a string")
    elif isinstance(value, float):
        if not math.isfinite(value):
            raise _refusal(path, f"a finite number, found {value}", "leave it out, or write it as a string")
    elif isinstance(value, list | tuple):
        for at, item in enumerate(value):
            _check(item, f"{path}[{at}]")
    elif isinstance(value, dict):
        for key, item in value.items():
            if not isinstance(key, str):
                raise _refusal(path, f"keys that are strings, found {key!r}", "convert the key")
            _check_text(key, f"{path} (a key)")
            _check(item, f"{path}.{key}")
    else:
        raise _refusal(path, f"a JSON type, found {type(value).__name__}", "convert it before it is recorded")


def _check_text(value: str, path: str) -> None:
    try:
        value.encode()
    except UnicodeEncodeError as error:
        raise _refusal(
            path, f"text without lone surrogates, found one at {error.start}", "decode the text properly"
        ) from None


def _refusal(path: str, expected: str, cure: str) -> Refused:
    return Refused("a value has no canonical JSON", where=path, expected=expected, cure=cure)


def _unique(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    value = dict(pairs)
    if len(value) != len(pairs):
        raise ValueError("an object has a key twice")
    return value


def _no_constant(text: str) -> Any:
    raise ValueError(f"{text} is not JSON")


def _integer(text: str) -> int | float:
    # RFC 8785 numbers are doubles: 1e20 is written with all its digits, and is a float again when read.
    if len(text) > 16 and abs(float(text)) > MAX_INTEGER:
        return float(text)
    number = int(text)
    return number if -MAX_INTEGER <= number <= MAX_INTEGER else float(text)
