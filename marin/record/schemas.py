"""The shape of an event's body, by its type: the ledger checks it before it takes an event, and it is looked at again when
one is read, because someone else's log took what its operator wanted."""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import lru_cache
from typing import Any

import msgspec

from ledger import Event, EventTypes, Refused
from marin.kinds.body import Body
from marin.kinds.known import CORE, kind_of

log = logging.getLogger(__name__)

MALFORMED = "malformed/v1"
"""As what an event is read whose body does not fit its type; its own type is in the body. No log takes one for anything."""

MOST_NAMED = 8
"""How many such events a process names."""


def as_it_fits(index: int, event: Event, *, where: str) -> Event:
    """The event, or one of type :data:`MALFORMED` in its place, named once: so that it says nothing, and a reader of its
    stream sees that it is there."""
    kind = kind_of(event.type)
    if kind is None:
        return event
    try:
        msgspec.convert(event.body, kind.body)
    except (msgspec.ValidationError, RecursionError) as error:
        found = str(error)[:200]
        _name(where, index, event.type, event.stream, found)
        return replace(event, type=MALFORMED, body={"type": event.type, "found": found})
    return event


@lru_cache(maxsize=1024)
def _name(where: str, index: int, kind: str, stream: str, found: str) -> None:
    named = _name.cache_info().currsize  # this one is not among them yet
    if named < MOST_NAMED:
        log.warning(
            "event %d of %s (%s in %s) does not fit its type, and is left out: %s", index, where, kind, stream, found
        )
    elif named == MOST_NAMED:
        log.warning("further events of %s do not fit their types, and are left out", where)


class Schemas(EventTypes):
    """The shapes of bodies, for the ledger: a body of the wrong shape is ``Refused``. What a plugin writes is looked for when an
    event of it comes."""

    def __init__(self) -> None:
        super().__init__()
        for kind in CORE.values():
            self.register(kind.type, _checker(kind.type, kind.body))

    def check(self, name: str, body: Mapping[str, Any]) -> None:
        """Raise ``Refused`` for a body that does not fit its type."""
        if name not in self and (kind := kind_of(name)) is not None:
            self.register(name, _checker(name, kind.body))
        super().check(name, body)


def _checker(name: str, kind: type[Body]) -> Callable[[Any], None]:
    def check(body: Any) -> None:
        try:
            msgspec.convert(body, kind)
        except msgspec.ValidationError as error:
            fields = ", ".join(field.encode_name for field in msgspec.structs.fields(kind) if field.required)
            raise Refused(
                "the body of an event does not fit its type",
                where=name,
                expected=f"an object with {fields}",
                found=str(error),
                cure="correct the body; a new shape is a new version of the type",
            ) from None

    return check
