"""Which place of a log of this user's is the log itself: a copy of it, wherever it came from, names the same key.

Anyone who verifies a copy records a verdict. Were it signed into the copy, one key would stand under two histories, and
anyone who handed the copy over could show both. So what is found in a copy is recorded in the log that it is a copy of, and
nothing is appended to a copy.
"""

from __future__ import annotations

import shlex

import ledger
from marin.record.trust.pins import Pins, default_pins

VKEY = "vkey"
"""The file of a root that names its verifier key, and below it the other half of a hybrid one."""


def named_keys(storage: ledger.Storage) -> list[ledger.VerifierKey]:
    """The verifier key that the root in ``storage`` names, and the other half of a hybrid one after it.

    Raises:
        ledger.NotFound: there is no root.
        Malformed: what it names is not a key.
    """
    lines = storage.read(VKEY).decode("utf-8", "replace").strip().split("\n")
    return [ledger.VerifierKey.parse(line) for line in lines]


def check_home(key: ledger.VerifierKey, storage: ledger.Storage, place: str) -> None:
    """Before something is appended to the log of ``key`` in ``storage``, which is at ``place``: it lives there, from now
    on where it lived nowhere.

    Raises:
        ledger.Refused: this is a copy. What were appended here would stand under the same numbers and the same key as what is
            appended to the log itself, for ever.
        ledger.Unavailable: the place where the log lives cannot be asked.
    """
    home = home_of(key, storage, place)
    if home != place:
        raise ledger.Refused(
            "this is a copy of a log that lives elsewhere",
            where=place,
            expected=home,
            found="another place: two that both went on would be two histories under one key",
            cure=f"append there (--root {shlex.quote(home)}), or remove that one first",
        )
    Pins(default_pins()).settle(key.name, place)


def home_of(key: ledger.VerifierKey, storage: ledger.Storage, place: str) -> str:
    """Where the log is that the one of ``key`` in ``storage``, one of this user's, is a copy of; ``place``, where that is,
    if it is that log, which may have moved.

    Raises:
        ledger.Unavailable: the place where the log lives cannot be asked.
    """
    pins = Pins(default_pins())
    home = pins.home(key.name)
    if home is None or home == place:
        return place
    log = log_at(home, key)
    if log is not None:
        known = log.checkpoint()
        reader = ledger.LogReader(storage, ledger.follow_keys(storage, [key]))
        if known.size >= reader.checkpoint().size:
            return home
        try:
            reader.check_continues(known)
        except ledger.Tampered:
            return home
    pins.settle(key.name, place, moved=True)  # it moved, or went on here
    return place


def log_at(home: str, key: ledger.VerifierKey) -> ledger.LogReader | None:
    """The log of ``key``'s origin at ``home``, whose checkpoint holds; None where there is none any more.

    Raises:
        ledger.Unavailable: the place cannot be asked.
    """
    try:
        storage = ledger.open_storage(home, readonly=True)
        named = named_keys(storage)
        if named[0].name != key.name:
            return None
        reader = ledger.LogReader(storage, ledger.follow_keys(storage, [key, *named]))
        reader.checkpoint()
    except ledger.NotFound:
        return None
    except ledger.LedgerError as error:
        raise ledger.Unavailable(
            "the place where this log lives cannot be asked whether it went on there",
            where=home,
            expected="its log, or none",
            found=str(error),
            cure="reach it or mend it; if it is gone for good, remove what is left of it there",
        ) from error
    return reader
