"""One value of JSON, as Python's json reads it, which is what most lines are written by.

orjson reads it, several times as fast, and json where the two differ: whole numbers beyond 64 bits (orjson rounds them, so two
ids become one), NaN and Infinity, lone surrogates, numbers beyond a double, more than 1024 levels.
"""

from __future__ import annotations

import json

import orjson

_ROUNDED = 2.0**63
_LOOKED_INTO = frozenset({dict, list, float})


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
    """Of every line: so texts and whole numbers, which most values are, are told apart by a set of their types alone."""
    waiting: list[object] = [value]
    while waiting:
        one = waiting.pop()
        if type(one) is float:
            if not -_ROUNDED < one < _ROUNDED:
                return True
            continue
        inner = one.values() if type(one) is dict else one if type(one) is list else ()
        if not _LOOKED_INTO.isdisjoint(map(type, inner)):
            waiting += [each for each in inner if type(each) in _LOOKED_INTO]
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
