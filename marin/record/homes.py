"""Which root of a log of this user's is the log itself: a copy of it, wherever it came from, names the same key.

Whoever verifies a copy records his verdict. Were it signed into the copy, one key would stand under two histories, and
whoever handed the copy over could show both. So what is found in a copy is recorded in the log that it is a copy of.
"""

from __future__ import annotations

from contextlib import suppress

from ledger import LedgerError, Tampered, VerifierKey
from marin.record.root import Root, open_root
from marin.record.trust.pins import Pins, default_pins


def settle_copy(key: VerifierKey, place: str) -> str | None:
    """The log of ``key``, brought to ``place``, lives there from now on; unless it still lives where it did, which is returned:
    then this is a copy, and two places that both went on would be two histories under one key."""
    pins = Pins(default_pins())
    home = pins.home(key.name)
    with suppress(LedgerError):
        if home is not None and home != place and open_root(home).verifier == key:
            return home
    pins.settle(key.name, place, moved=True)
    return None


def home_of(root: Root) -> Root:
    """The log that ``root``, one of this user's, is a copy of; ``root`` where it is that log, which may have moved."""
    pins, origin = Pins(default_pins()), root.verifier.name
    place = pins.home(origin)
    if place is None or place == root.absolute:
        return root
    try:
        home = open_root(place)
        known = home.reader().checkpoint()
    except LedgerError:
        pins.settle(origin, root.absolute, moved=True)
        return root
    if home.verifier != root.verifier:
        return root
    reader = root.reader()
    if known.size >= reader.checkpoint().size:
        return home
    try:
        reader.check_continues(known)
    except Tampered:
        return home
    pins.settle(origin, root.absolute, moved=True)  # it went on here
    return root
