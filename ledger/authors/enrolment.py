"""Whose keys write in a log: each person and machine has one, and an event says so.

    log.author-enrolled/v1   {"by": …, "certificate": …, "may": ["append"], "signature": …, "vkey": …}
    log.author-revoked/v1    {"by": …, "signature": …, "vkey": …}

``vkey`` is the author's verifier key, whose name is the author's; ``by`` is a key that may enrol: one that signs the log, or an
author's with "enrol" in ``may``. ``signature`` is that key's over a text with the log's origin in it, so that no event can
be taken from one log to another, or from one author to another. The id of the event is its author's name: a name stands for
one key, for ever. ``certificate`` (X.509, DER) has the same key, for connections (:mod:`ledger.authors.certificate`).

What a reader believes of these events follows from them and from the log's keys alone (:mod:`ledger.authors.reading`).
"""

from __future__ import annotations

import hashlib
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from ledger.errors import LedgerError, Malformed, Refused
from ledger.format.event import AUTHOR_ENROLLED, AUTHOR_REVOKED
from ledger.format.note import ED25519, VerifierKey, decode_base64

AUTHORS_STREAM = "log/authors"
"""Of the events that enrol and revoke authors."""
STATEMENTS = "log/authorship"
"""Of the events that say what an author wrote."""
APPEND, ENROL = "append", "enrol"
_NAME = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.@-]{0,59}\Z")
_ENROLLED = {"by", "certificate", "may", "signature", "vkey"}
_REVOKED = {"by", "signature", "vkey"}
_MOST_CERTIFICATE = 2_000


@dataclass(frozen=True)
class Enrolment:
    """What an event of enrolment says; ``certificate`` is not looked at here."""

    vkey: VerifierKey
    by: VerifierKey
    may: tuple[str, ...]
    certificate: bytes

    @property
    def may_enrol(self) -> bool:
        return ENROL in self.may


@dataclass(frozen=True)
class Revocation:
    """What an event of revocation says."""

    vkey: VerifierKey
    by: VerifierKey


def check_author_name(name: str) -> str:
    """``name``, if an author can have it.

    Raises:
        Refused: it is malformed.
    """
    if not _NAME.match(name):
        raise Refused(
            "not an author's name",
            where=repr(name[:80]),
            expected="a name such as ada@desk: letters, digits and _.@-, at most 60",
            found=f"{len(name)} characters",
            cure="choose another",
        )
    return name


def enrolled_id(name: str) -> str:
    """The id of the one event that enrols an author of this name."""
    return f"log.author-enrolled:{name}"


def revoked_id(name: str) -> str:
    """The id of the one event that revokes that key."""
    return f"log.author-revoked:{name}"


def read_enrolment(origin: str, id: str, body: Mapping[str, Any]) -> Enrolment:
    """The enrolment of an event with this id and body, whose signature is that of the key which it names. Whether that one
    may enrol is for the caller to see.

    Raises:
        Refused: it is malformed, or not signed.
    """
    texts = _fields_of(body, _ENROLLED, ("by", "certificate", "signature", "vkey"))
    may = body["may"]
    if may not in ([APPEND], [APPEND, ENROL]):
        raise _bad("may", f'["{APPEND}"] or ["{APPEND}", "{ENROL}"]', repr(may))
    certificate = _bytes(texts["certificate"], "certificate")
    if len(certificate) > _MOST_CERTIFICATE:
        raise _bad("certificate", f"at most {_MOST_CERTIFICATE} bytes", f"{len(certificate)}")
    found = Enrolment(_key(texts["vkey"], "vkey"), _key(texts["by"], "by"), tuple(may), certificate)
    check_author_name(found.vkey.name)
    _check(id, enrolled_id(found.vkey.name), found.by, enrolment_text(origin, found), texts["signature"])
    return found


def read_revocation(origin: str, id: str, body: Mapping[str, Any]) -> Revocation:
    """As :func:`read_enrolment`.

    Raises:
        Refused: it is malformed, or not signed.
    """
    texts = _fields_of(body, _REVOKED, ("by", "signature", "vkey"))
    found = Revocation(_key(texts["vkey"], "vkey"), _key(texts["by"], "by"))
    _check(id, revoked_id(found.vkey.name), found.by, revocation_text(origin, found), texts["signature"])
    return found


def enrolment_text(origin: str, found: Enrolment) -> str:
    """What is signed of an enrolment."""
    certificate = hashlib.sha256(found.certificate).hexdigest()
    return f"{AUTHOR_ENROLLED}\n{origin}\n{found.by}\n{found.vkey}\n{' '.join(found.may)}\n{certificate}\n"


def revocation_text(origin: str, found: Revocation) -> str:
    """What is signed of a revocation."""
    return f"{AUTHOR_REVOKED}\n{origin}\n{found.by}\n{found.vkey}\n"


def _check(id: str, expected: str, by: VerifierKey, text: str, signature: str) -> None:
    if id != expected:
        raise _bad("id", expected, id)
    if not by.verify(text, _bytes(signature, "signature")):
        raise _bad("signature", f"one of {by.name}+{by.key_id:08x} over this log, author and rights", "another")


def _fields_of(body: Mapping[str, Any], fields: set[str], texts: tuple[str, ...]) -> dict[str, str]:
    if set(body) != fields or not all(isinstance(body[name], str) for name in texts):
        raise _bad("body", ", ".join(sorted(fields)), ", ".join(sorted(body))[:200])
    return {name: body[name] for name in texts}


def _key(text: str, where: str) -> VerifierKey:
    try:
        key = VerifierKey.parse(text)
    except Malformed as error:
        raise _bad(where, error.expected or "a verifier key", error.found or text[:80]) from None
    if key.algorithm != ED25519 or str(key) != text:
        raise _bad(where, "an Ed25519 key as its text has it", text[:80])
    return key


def _bytes(text: str, where: str) -> bytes:
    try:
        return decode_base64(text, where)
    except LedgerError as error:
        raise _bad(where, "base64", error.found) from None


def _bad(where: str, expected: str, found: str) -> Refused:
    return Refused(
        "not an event of an author's key",
        where=where,
        expected=expected,
        found=found[:200],
        cure="use `ledger key enrol` or `ledger key revoke`",
    )
