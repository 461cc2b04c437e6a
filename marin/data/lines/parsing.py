"""One value of JSON, as Python's json reads it, which is what most lines are written by.

orjson reads it, several times as fast, and json where the two differ: whole numbers beyond 64 bits (orjson rounds them, so two
ids become one), NaN and Infinity, lone surrogates, numbers beyond a double, more than 1024 levels.
"""

from __future__ import annotations

import json

import orjson

_ROUNDED = 2.0**63


def parsed(line: bytes | str) -> object:
    """The value of ``line``. Of equal keys the last one holds, as everywhere.

    Raises:
        UnicodeDecodeError: it is not UTF-8.
        ValueError: it is not JSON; the message says where.
        RecursionError: it nests too deeply.
    """
    try:
        value: object = orjson.loads(line)
    except orjson.JSONDecodeError:
        pass
    else:
        if not _may_be_rounded(value):
            return value
    return json.loads(line.decode("utf-8") if isinstance(line, bytes) else line)


def _may_be_rounded(value: object) -> bool:
    waiting = [value]
    while waiting:
        one = waiting.pop()
        if isinstance(one, dict):
            waiting += one.values()
        elif isinstance(one, list):
            waiting += one
        elif isinstance(one, float) and not -_ROUNDED < one < _ROUNDED:
            return True
    return False


def field_of(value: object, name: str) -> object:
    """What an object has under ``name``, else below the keys that points divide (``a.b``: ``b`` of ``a``).

    Raises:
        KeyError: it has neither.
    """
    if isinstance(value, dict) and name in value:
        return value[name]
    for key in name.split("."):
        if not isinstance(value, dict) or key not in value:
            raise KeyError(name)
        value = value[key]
    return value
