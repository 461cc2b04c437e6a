"""The fields that an event has and its type has not: what they say is only claimed."""

from __future__ import annotations

import typing
from collections.abc import Iterator
from typing import Any

import msgspec
import msgspec.inspect


def unknown_fields(kind: Any, value: Any, prefix: str = "") -> Iterator[str]:
    """The fields that the type of an event does not have, also inside of what it holds."""
    if isinstance(value, list | dict) and typing.get_origin(kind) in (list, dict):
        inner = typing.get_args(kind)[-1]
        for name, item in value.items() if isinstance(value, dict) else enumerate(value):
            yield from unknown_fields(inner, item, f"{prefix}{name}.")
        return
    if not isinstance(value, dict):
        return
    struct = next((part for part in (kind, *typing.get_args(kind)) if msgspec.inspect.is_struct_type(part)), None)
    if struct is None:
        return  # free JSON
    fields = {field.encode_name: field.type for field in msgspec.structs.fields(struct)}
    for name in sorted(value):
        if name not in fields:
            yield f"{prefix}{name}"
        else:
            yield from unknown_fields(fields[name], value[name], f"{prefix}{name}.")
