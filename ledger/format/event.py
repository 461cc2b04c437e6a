"""The event: a typed fact in an envelope, and its canonical bytes, which are an entry of the log.

    {"actor":…,"body":{…},"id":…,"seq":…,"stream":…,"time":…,"type":…}

    type    ``train.segment/v1``: a name of ours with a version, never a path in a programming language
    stream  ``run/6f1c…``: facts that belong together and are numbered from 0 without gaps
    id      idempotency key: the same id is the same event
    time    ``2026-11-21T10:29:22.000000Z``, UTC with microseconds

An entry has at most 65,535 bytes; what is larger goes to the store and is named by digest. Types that nobody
registered are kept and shown. A registered type has a schema check, which is asked before anything is
appended.
"""

from __future__ import annotations

import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property, lru_cache
from typing import Any, cast

from ledger.errors import Malformed, Refused
from ledger.format.bundle import MAX_ENTRY_BYTES
from ledger.format.canonical import MAX_INTEGER, canonical_bytes, parse_canonical

KEY_ROTATED = "log.key-rotated/v1"
KEY_RETIRED = "log.key-retired/v1"
KEY_VOUCHED = "log.key-vouched/v1"
KEY_REVOKED = "log.key-revoked/v1"
ANCHORED = "log.anchored/v1"
KEY_TYPES = frozenset({KEY_ROTATED, KEY_RETIRED})
"""Types that decide whom readers of the log believe (``keyring``)."""
KEPT_TYPES = KEY_TYPES | {KEY_VOUCHED, KEY_REVOKED}
"""Types that only the holder of the key appends: they speak for the log itself."""
AUTHOR_ENROLLED = "log.author-enrolled/v1"
AUTHOR_REVOKED = "log.author-revoked/v1"
AUTHORED = "log.authored/v1"
AUTHOR_TYPES = frozenset({AUTHOR_ENROLLED, AUTHOR_REVOKED, AUTHORED})
"""Types that say whose keys write in the log, and what each wrote (``ledger.authors``)."""
RESERVED_IDS = ("log.key-", "log.author")
"""How the ids of those types begin. No other event has such an id: anyone who took it first would keep a key from being
revoked."""

_FIELDS = ("actor", "body", "id", "seq", "stream", "time", "type")
_SYNTAX = {
    "type": re.compile(r"(?=.{1,120}\Z)[a-z][a-z0-9_.-]*/v[0-9]+\Z"),
    "stream": re.compile(r"(?=.{1,200}\Z)[A-Za-z0-9][A-Za-z0-9_.@=-]*(/[A-Za-z0-9][A-Za-z0-9_.@=-]*)*\Z"),
    "id": re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@=+-]{0,199}\Z"),
    "time": re.compile(r"[0-9]{4}-[0-9]{2}-[0-9]{2}T[0-9]{2}:[0-9]{2}:[0-9]{2}\.[0-9]{6}Z\Z"),
    "actor": re.compile(r"[^\x00-\x1f\x7f]{1,200}\Z"),
}
_is_id = _SYNTAX["id"].match
_EXAMPLE = {
    "type": "a type such as train.segment/v1",
    "stream": "a stream such as run/6f1c, of letters, digits and _.@=- between slashes",
    "id": "an id of 1 to 200 letters, digits and _.:/@=+-",
    "time": "a time such as 2026-11-21T10:29:22.000000Z",
    "actor": "an actor of 1 to 200 printable characters",
}


@dataclass(frozen=True)
class Event:
    """A fact as the log holds it. Made by the log, or decoded from an entry."""

    id: str
    type: str
    stream: str
    seq: int
    time: str
    actor: str
    body: Mapping[str, Any]

    def encode(self) -> bytes:
        """The entry: canonical bytes, ``Refused`` if they are too many or there are none."""
        fields = {field: getattr(self, field) for field in _FIELDS}
        entry = canonical_bytes(fields | {"body": dict(self.body)})
        if len(entry) > MAX_ENTRY_BYTES:
            raise _too_large(self.type, self.id, len(entry))
        return entry

    @classmethod
    def decode(cls, entry: bytes) -> Event:
        """The event of an entry; ``Malformed`` unless the bytes are exactly those of an event."""
        return cls(**parse_event(entry))


def parse_event(entry: bytes) -> dict[str, Any]:
    """The fields of an entry, by name; ``Malformed`` unless the bytes are exactly those of an event."""
    if len(entry) > MAX_ENTRY_BYTES:
        raise Malformed("not an event", expected=f"at most {MAX_ENTRY_BYTES} bytes", found=f"{len(entry)}")
    value = parse_canonical(entry)
    # Canonical bytes have their keys in order, and so has what was parsed from them.
    if not isinstance(value, dict) or tuple(value) != _FIELDS:
        found = ", ".join(sorted(value))[:200] if isinstance(value, dict) else type(value).__name__
        raise Malformed("not an event", expected=f"the fields {', '.join(_FIELDS)}", found=found)
    id, seq = value["id"], value["seq"]
    try:
        # The usual case in few steps; whatever is odd is looked at again, to say what.
        if type(id) is str and _is_id(id) and type(seq) is int and seq >= 0 and type(value["body"]) is dict:
            _check_shared(value["type"], value["stream"], value["actor"], value["time"])
        else:
            _check_envelope(**value)
    except Refused as error:
        raise Malformed("not an event", where=error.where, expected=error.expected, found=error.found) from None
    return value


@dataclass(frozen=True)
class Draft:
    """A fact on its way to the log, which gives it its place.

    Without an ``id`` one is drawn here, once, so that handing in the same draft again is safe. ``expect_seq`` is
    the number in its stream that the event must get (the first has 0), for writers that decided on what they
    had read.
    """

    type: str
    stream: str
    body: Mapping[str, Any]
    id: str | None = None
    expect_seq: int | None = None
    actor: str | None = None
    time: str | None = None

    def __post_init__(self) -> None:
        if self.id is None:
            object.__setattr__(self, "id", os.urandom(16).hex())

    @classmethod
    def received(
        cls,
        type: str,
        stream: str,
        body: dict[str, Any],
        id: str,
        expect_seq: int | None,
        actor: str | None,
        time: str | None,
        body_bytes: bytes,
    ) -> Draft:
        """A draft that came over a wire, with the canonical bytes of its body, which need not be made again."""
        draft = cls.__new__(cls)
        draft.__dict__.update(
            type=type,
            stream=stream,
            body=body,
            id=id,
            expect_seq=expect_seq,
            actor=actor,
            time=time,
            body_bytes=body_bytes,
        )
        return draft

    @cached_property
    def body_bytes(self) -> bytes:
        """The canonical bytes of the body, made once; ``Refused`` if it has none."""
        return canonical_bytes(dict(self.body))

    def event(self, seq: int, time: str, actor: str) -> Event:
        """This draft in its place. Checks all that an envelope asks for."""
        assert self.id is not None  # drawn above
        event = Event(self.id, self.type, self.stream, seq, self.time or time, self.actor or actor, self.body)
        _check_envelope(**{field: getattr(event, field) for field in _FIELDS})
        return event

    def entry(self, seq: int, time: str, actor: str) -> bytes:
        """The entry of this draft in its place: the bytes of ``event(…).encode()``, put together from parts."""
        time, actor = self.time or time, self.actor or actor
        _check_envelope(actor=actor, body=self.body, id=self.id, seq=seq, stream=self.stream, time=time, type=self.type)
        # What was just checked needs no escapes in JSON, but for the actor.
        entry = b'{"actor":%b,"body":%b,"id":"%b","seq":%d,"stream":"%b","time":"%b","type":"%b"}' % (
            _text_bytes(actor),
            self.body_bytes,
            cast(str, self.id).encode(),
            seq,
            self.stream.encode(),
            time.encode(),
            self.type.encode(),
        )
        if len(entry) > MAX_ENTRY_BYTES:
            raise _too_large(self.type, cast(str, self.id), len(entry))
        return entry

    def matches(self, event: Event, *, any_actor: bool = False) -> bool:
        """Whether ``event`` is what became of this draft, so that it was handed in before; ``any_actor``: by anybody."""
        return (
            (self.id, self.type, self.stream) == (event.id, event.type, event.stream)
            and (any_actor or self.actor in (None, event.actor))
            and self.time in (None, event.time)
            and self.expect_seq in (None, event.seq)
            and self.body_bytes == canonical_bytes(dict(event.body))
        )


class EventTypes:
    """Which types have a schema. A check gets the body and raises ``Refused``; an unknown type passes."""

    def __init__(self) -> None:
        self._checks: dict[str, Callable[[Mapping[str, Any]], None]] = {}

    def register(self, name: str, check: Callable[[Mapping[str, Any]], None]) -> None:
        """From now on bodies of this type must pass ``check``; ``Refused`` if the type has one already."""
        _check_field("type", name)
        if name in self._checks:
            raise Refused("a type of event is registered twice", where=name, cure="give the new schema a new version")
        self._checks[name] = check

    def __contains__(self, name: object) -> bool:
        return name in self._checks

    def names(self) -> list[str]:
        """The registered types, in order."""
        return sorted(self._checks)

    def check(self, name: str, body: Mapping[str, Any]) -> None:
        """Raise what the type's check raises for this body; any body of a type that nobody registered will do."""
        if name in self._checks:
            self._checks[name](body)


def format_time(moment: datetime) -> str:
    """A moment as events write it."""
    return moment.astimezone(UTC).isoformat(timespec="microseconds").removesuffix("+00:00") + "Z"


@lru_cache(maxsize=1024)
def parse_time(text: str) -> datetime:
    """The moment that an event's time names."""
    _check_field("time", text)
    try:
        return datetime.fromisoformat(text)
    except ValueError:
        raise _bad("time", text) from None


def _check_envelope(
    *, actor: object, body: object, id: object, seq: object, stream: object, time: object, type: object
) -> None:
    # Decoded JSON and careless callers put anything into these, whatever their annotations say.
    if not isinstance(id, str) or not _is_id(id):
        raise _bad("id", id)
    _check_shared(type, stream, actor, time)
    if not isinstance(body, dict) and not isinstance(body, Mapping):
        raise Refused("not an event", where="body", expected="an object", found=body.__class__.__name__)
    if isinstance(seq, bool) or not isinstance(seq, int) or not 0 <= seq <= MAX_INTEGER:
        raise Refused("not an event", where="seq", expected="an integer from 0 on", found=repr(seq)[:120])


def _check_shared(type: object, stream: object, actor: object, time: object) -> None:
    try:
        _check_repeated(type, stream, actor)
        _check_moment(time)
    except TypeError:  # something that cannot even be a key: which one is it?
        for field, value in (("type", type), ("stream", stream), ("actor", actor), ("time", time)):
            _check_field(field, value)
        raise


@lru_cache(maxsize=1024)
def _check_repeated(type: object, stream: object, actor: object) -> None:
    """What neighbouring events have in common, and need not be checked for each of them."""
    _check_field("type", type)
    _check_field("stream", stream)
    _check_field("actor", actor)


@lru_cache(maxsize=1024)
def _check_moment(time: object) -> None:
    _check_field("time", time)
    parse_time(cast(str, time))


def _check_field(field: str, value: object) -> None:
    if not isinstance(value, str) or not _SYNTAX[field].match(value):
        raise _bad(field, value)


def _bad(field: str, value: object) -> Refused:
    return Refused(
        "not an event",
        where=field,
        expected=_EXAMPLE[field],
        found=repr(value)[:120],
        cure="correct it; nothing was appended",
    )


def _too_large(type: str, id: str, size: int) -> Refused:
    return Refused(
        "an event is too large",
        where=f"{type} {id}",
        expected=f"at most {MAX_ENTRY_BYTES} bytes",
        found=f"{size}",
        cure="put the large part into the store and name its digest",
    )


@lru_cache(maxsize=256)
def _text_bytes(text: str) -> bytes:
    """The JSON of a text that many events have in common."""
    return canonical_bytes(text)
