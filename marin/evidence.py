"""What others vouch for: witnesses that cosigned the log, time stamps of its root, roots that Git commits name.

None of it is needed for the log to be whole. What is there is checked against the log, and says that these events
existed before that time; what contradicts the log is evidence that it was rewritten or rolled back.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from cryptography import x509

from ledger import (
    Event,
    Finding,
    LedgerError,
    LogReader,
    NotFound,
    Stamped,
    Storage,
    VerifierKey,
    check_stamp,
    load_authorities,
)
from marin.anchors import check_anchor, find_anchors, repository_here
from marin.witnesses import POLICY, WITNESSED, load_policy

AUTHORITIES = "authorities.pem"
"""In the root: certificates of time stamp authorities that were named when a stamp was made. A convenience."""
AUTHORITIES_VARIABLE = "MARIN_TSA_CA"
ANCHORED = "log.anchored/v1"


@dataclass(frozen=True)
class Vouched:
    """One statement that holds: events below ``size`` existed before ``time`` (empty where no time is stated)."""

    kind: str
    size: int
    time: str
    by: str

    def __str__(self) -> str:
        events = f"events 0 to {self.size - 1}" if self.size else "the empty log"
        when = f"existed before {self.time}" if self.time else "are in a log that was only appended to"
        return f"{self.kind}: {events} {when}, says {self.by}"


@dataclass(frozen=True)
class Evidence:
    """What holds, what contradicts the log, and what could not be judged here."""

    vouched: tuple[Vouched, ...]
    findings: tuple[Finding, ...]
    undecided: tuple[str, ...]


def gather(
    storage: Storage,
    reader: LogReader,
    keys: Sequence[VerifierKey],
    anchored: Sequence[tuple[int, Event]],
    *,
    authorities: Path | None = None,
    repository: Path | None = None,
) -> Evidence:
    """Check all there is. ``anchored`` are the events of type ``log.anchored/v1``; ``repository`` defaults to the
    working folder's."""
    vouched: list[Vouched] = []
    findings: list[Finding] = []
    undecided: list[str] = []
    try:
        vouched += _witnessed(storage, reader, keys)
    except LedgerError as error:
        findings.append(_finding(error, WITNESSED))
    if anchored:
        trusted = trusted_authorities(storage, authorities)
        for index, event in anchored:
            shown = check_stamp(reader, index, event, trusted)
            if isinstance(shown, Stamped):
                vouched.append(Vouched("time stamp", shown.size, shown.time, shown.authority))
            elif type(shown).__name__ == "Unverified" and authorities is None:
                undecided.append(str(shown))
            else:
                findings.append(_finding(shown, f"event {index}"))
    place = repository if repository is not None else repository_here()
    for anchor in find_anchors(place, reader.checkpoint().origin) if place is not None else ():
        try:
            check_anchor(reader, anchor)
        except LedgerError as error:
            findings.append(_finding(error, anchor.commit))
        else:
            vouched.append(Vouched(f"Git {anchor.kind}", anchor.size, anchor.time, f"commit {anchor.commit[:12]}"))
    return Evidence(tuple(vouched), tuple(findings), tuple(undecided))


def trusted_authorities(storage: Storage, given: Path | None) -> list[x509.Certificate]:
    """Certificates from the file that was given, or that MARIN_TSA_CA names, or that the root keeps; else the system's."""
    named = given or (Path(os.environ[AUTHORITIES_VARIABLE]) if os.environ.get(AUTHORITIES_VARIABLE) else None)
    if named is not None:
        return load_authorities(named)
    try:
        return x509.load_pem_x509_certificates(storage.read(AUTHORITIES))
    except (NotFound, ValueError):
        return load_authorities(None)


def _witnessed(storage: Storage, reader: LogReader, keys: Sequence[VerifierKey]) -> list[Vouched]:
    policy = load_policy(storage)
    if policy is None:
        return []
    try:
        note = storage.read(WITNESSED)
    except NotFound:
        raise NotFound("no checkpoint is witnessed as the policy asks", where=POLICY, expected=policy.describe(),
                       found="none", cure="ask them: `marin ledger witness ask`") from None
    checkpoint, names = policy.check(note, keys)
    reader.check_continues(checkpoint)
    return [Vouched("witnesses", checkpoint.size, "", ", ".join(names))]


def _finding(error: LedgerError, where: str) -> Finding:
    return Finding(error.what, error.where or where, error.expected, error.found)
