"""Which place of a log of this user's is the log itself: a copy of it, wherever it came from, names the same key.

Whoever verifies a copy records his verdict. Were it signed into the copy, one key would stand under two histories, and
whoever handed the copy over could show both. So what is found in a copy is recorded in the log that it is a copy of, and
nothing is appended to a copy.
"""

from __future__ import annotations

import shlex

from ledger import LedgerError, LogReader, Refused, Storage, Tampered, VerifierKey, open_storage
from marin.record.trust.pins import Pins, default_pins

VKEY = "vkey"
"""The file of a root that names its verifier key, and below it the other half of a hybrid one."""


def settle_copy(key: VerifierKey, place: str) -> str | None:
    """The log of ``key``, brought to ``place``, lives there from now on; unless it still lives where it did, which is returned:
    then this is a copy, and two places that both went on would be two histories under one key."""
    pins = Pins(default_pins())
    home = pins.home(key.name)
    if home is not None and home != place and _named_at(home) == key:
        return home
    pins.settle(key.name, place, moved=True)
    return None


def check_home(key: VerifierKey, storage: Storage, place: str) -> None:
    """Before something is appended to the log of ``key`` in ``storage``, which is at ``place``: it lives there, from now
    on where it lived nowhere.

    Raises:
        Refused: this is a copy. What were appended here would stand under the same numbers and the same key as what is
            appended to the log itself, for ever.
    """
    home = home_of(key, storage, place)
    if home != place:
        raise Refused(
            "this is a copy of a log that lives elsewhere",
            where=place,
            expected=home,
            found="another place: two that both went on would be two histories under one key",
            cure=f"append there (--root {shlex.quote(home)}), or remove that one first",
        )
    Pins(default_pins()).settle(key.name, place)


def home_of(key: VerifierKey, storage: Storage, place: str) -> str:
    """Where the log is that the one of ``key`` in ``storage``, one of this user's, is a copy of; ``place``, where that is,
    if it is that log, which may have moved."""
    pins = Pins(default_pins())
    home = pins.home(key.name)
    if home is None or home == place:
        return place
    named = _named_at(home)
    if named is not None and named.name != key.name:
        return place
    try:
        known = LogReader(open_storage(home, readonly=True), [key]).checkpoint()
    except LedgerError:
        pins.settle(key.name, place, moved=True)
        return place
    reader = LogReader(storage, [key])
    if known.size >= reader.checkpoint().size:
        return home
    try:
        reader.check_continues(known)
    except Tampered:
        return home
    pins.settle(key.name, place, moved=True)  # it went on here
    return place


def _named_at(place: str) -> VerifierKey | None:
    """The key that the root at ``place`` names; None where there is no root."""
    try:
        return VerifierKey.parse(open_storage(place, readonly=True).read(VKEY).decode("utf-8").strip().split("\n")[0])
    except (LedgerError, UnicodeDecodeError):
        return None
