"""What others vouch for: witnesses that cosigned the log, time stamps of its root, roots that Git commits name.

None of it is needed for the log to be whole. What is there is checked against the log, and says that these events
existed before that time; what contradicts the log is evidence that it was rewritten or rolled back.

Whose word counts is the verifier's choice (:class:`Sources`): own witnesses and their quorum, own time stamp
authorities, own Git repositories. What the root brings of the kind is shown as claimed by the log, and vouches for
nothing: anyone who signs a log can also make three witnesses and an authority.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING

import ledger  # whose time stamps are imported where a log has some
from marin.record.trust.anchors import check_anchor, find_anchors
from marin.record.trust.policy import POLICY, WITNESSED, load_policy, own_policy
from marin.record.trust.trusted import WITNESSES, default_trust

if TYPE_CHECKING:
    from cryptography import x509

AUTHORITIES = "authorities.pem"
"""In the root: certificates of time stamp authorities that were named when a stamp was made. A claim of the log's."""


@dataclass(frozen=True)
class DatedEvidence:
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
    """What holds, what contradicts the log, what could not be judged here, and what only the log itself claims."""

    vouched: tuple[DatedEvidence, ...]
    findings: tuple[ledger.Finding, ...]
    undecided: tuple[str, ...]
    claimed: tuple[str, ...] = ()


@dataclass(frozen=True)
class Sources:
    """Whose word counts. ``policy``: witnesses and their quorum; ``authorities``: a PEM file of time stamp authorities,
    None for the system's; ``repositories``: where Git is asked."""

    policy: ledger.WitnessPolicy | None = None
    authorities: Path | None = None
    repositories: tuple[Path, ...] = ()

    def gather(
        self,
        storage: ledger.Storage,
        reader: ledger.LogReader,
        keys: Sequence[ledger.VerifierKey],
        anchored: Sequence[tuple[int, ledger.Event]],
    ) -> Evidence:
        """Check all there is. ``anchored`` are the events of type ``log.anchored/v1``."""
        vouched: list[DatedEvidence] = []
        findings: list[ledger.Finding] = []
        undecided: list[str] = []
        claimed: list[str] = []
        try:
            vouched += witnessed(storage, reader, keys, self.policy)
        except ledger.LedgerError as error:
            findings.append(_finding(error, WITNESSED))
        if not vouched:
            try:
                claimed += _witnessed_by_its_own(storage, reader, keys)
            except ledger.Tampered as error:  # the log's own key signed another history
                findings.append(_finding(error, WITNESSED))
        certificates = ledger.load_authorities(self.authorities) if anchored else []
        for index, event in anchored:
            shown = ledger.check_stamp(reader, index, event, certificates)
            if isinstance(shown, ledger.Stamped):
                vouched.append(DatedEvidence("time stamp", shown.size, shown.time, shown.authority))
            elif not isinstance(shown, ledger.Unverified) or self.authorities is not None:
                findings.append(_finding(shown, f"event {index}"))
            elif isinstance(own := ledger.check_stamp(reader, index, event, _brought(storage)), ledger.Stamped):
                claimed.append(
                    str(DatedEvidence("time stamp", own.size, own.time, f"{own.authority}, an authority of the root's"))
                )
            else:
                undecided.append(str(shown))
        for repository in self.repositories:
            for anchor in find_anchors(repository, reader.checkpoint().origin):
                try:
                    check_anchor(reader, anchor)
                except ledger.LedgerError as error:
                    findings.append(_finding(error, anchor.commit))
                else:
                    vouched.append(
                        DatedEvidence(f"Git {anchor.kind}", anchor.size, anchor.time, f"commit {anchor.commit[:12]}")
                    )
        return Evidence(tuple(vouched), tuple(findings), tuple(undecided), tuple(claimed))


NOBODY = Sources()
"""Nobody's word but the system's authorities'."""


def sources(policy: Path | None = None, ca: Path | None = None, git: Sequence[Path] = ()) -> Sources:
    """What the command line names, and for what it does not, the user's own configuration."""
    trust = default_trust()
    return Sources(
        ledger.WitnessPolicy.parse(policy.read_bytes()) if policy is not None else own_policy(trust),
        ca or trust.authorities(),
        tuple(git) or tuple(trust.repositories()),
    )


def trusted_authorities(given: Path | None) -> list[x509.Certificate]:
    """Certificates from the file that was given, or that MARIN_TSA_CA or the user's own trust names; else the
    system's."""
    return ledger.load_authorities(given or default_trust().authorities())


def _brought(storage: ledger.Storage) -> list[x509.Certificate]:
    """The certificates that the root brings."""
    from cryptography import x509

    try:
        return x509.load_pem_x509_certificates(storage.read(AUTHORITIES))
    except (ledger.NotFound, ValueError):
        return []


def is_about(policy: ledger.WitnessPolicy, origin: str) -> bool:
    """Whether a policy is for this log: it names it, or none."""
    return not policy.logs or origin in {key.name for key in policy.logs}


def witnessed(
    storage: ledger.Storage,
    reader: ledger.LogReader,
    keys: Sequence[ledger.VerifierKey],
    policy: ledger.WitnessPolicy | None,
) -> list[DatedEvidence]:
    """What the verifier's own witnesses say. Their policy is for the logs that it names, or for all where it names none."""
    if policy is None or not is_about(policy, reader.checkpoint().origin):
        return []
    try:
        checkpoint, names = policy.check(reader.note(), keys)  # the newest there is
    except ledger.Unverified:
        try:
            checkpoint, names = policy.check(storage.read(WITNESSED), keys)
        except ledger.NotFound:
            checkpoint, names = policy.check(reader.note(), keys)
    reader.check_continues(checkpoint)
    return [DatedEvidence(WITNESSES, checkpoint.size, "", ", ".join(names))]


def _witnessed_by_its_own(
    storage: ledger.Storage, reader: ledger.LogReader, keys: Sequence[ledger.VerifierKey]
) -> list[str]:
    """What witnesses say that the root itself names; ledger.Tampered where the log's key signed what is not this log."""
    try:
        policy = load_policy(storage)
        if policy is None:
            return []
        checkpoint, names = ledger.WitnessPolicy(
            quorum=policy.quorum, witnesses=policy.witnesses, groups=policy.groups
        ).check(storage.read(WITNESSED), keys)
        reader.check_continues(checkpoint)
    except ledger.Tampered:
        raise
    except ledger.LedgerError as error:
        return [f"{POLICY}: {error.what}"]
    return [
        str(DatedEvidence("witnesses", checkpoint.size, "", f"{', '.join(names)}, witnesses of the root's own choice"))
    ]


def _finding(error: ledger.LedgerError, where: str) -> ledger.Finding:
    return ledger.Finding(error.what, error.where or where, error.expected, error.found)
