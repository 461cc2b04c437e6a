"""The witnesses of a root's log: asking those of its policy (:mod:`marin.record.trust.policy`), and what they signed."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import ledger
from marin.record.trust.policy import POLICY, WITNESSED, load_policy


@dataclass(frozen=True)
class WitnessAnswers:
    """What came of asking all witnesses: who cosigned, who did not and why, and whether the policy is met by that."""

    size: int
    cosigned: tuple[str, ...]
    failed: tuple[tuple[str, str], ...]
    unmet: str | None

    def as_json(self) -> dict[str, object]:
        """As the append service sends it."""
        return {
            "size": self.size,
            "cosigned": list(self.cosigned),
            "failed": [list(pair) for pair in self.failed],
            "unmet": self.unmet,
        }

    @classmethod
    def from_json(cls, value: Any) -> WitnessAnswers:
        """What :meth:`as_json` gave."""
        failed = tuple((name, why) for name, why in value["failed"])
        return cls(int(value["size"]), tuple(value["cosigned"]), failed, value["unmet"])


def ask_all(storage: ledger.Storage, log: ledger.Log, keys: Sequence[ledger.VerifierKey]) -> WitnessAnswers:
    """Ask every witness of the policy to cosign the newest checkpoint, and publish what they sign.

    A mirror is a witness that wants the entries too, before it signs. A witness that refuses or is away does not keep the
    others from cosigning. When the policy is met, the checkpoint is also kept as ``witnessed``.

    Raises:
        ledger.Unavailable: this root has no witnesses.
    """
    policy = _policy(storage)
    log.publish()
    reader = ledger.LogReader(storage, keys)
    note = reader.note()
    text = str(reader.checkpoint())
    lines, cosigned = [], []
    failed: list[tuple[str, str]] = []
    for witness in policy.witnesses:
        if not witness.url:
            continue
        try:
            lines += _signatures(witness, reader)
            cosigned.append(witness.name)
        except ledger.LedgerError as error:
            failed.append((witness.name, str(error)))
    if lines:
        # A busy log goes on while they are asked: then what they signed is kept as `witnessed` alone.
        with suppress(ledger.Conflict):
            log.add_cosignatures(lines, text=text)
    signed = ledger.add_signatures(note, lines)
    try:
        policy.check(signed, keys)
    except ledger.Unverified as error:
        return WitnessAnswers(reader.checkpoint().size, tuple(cosigned), tuple(failed), str(error))
    storage.replace(WITNESSED, signed)
    return WitnessAnswers(reader.checkpoint().size, tuple(cosigned), tuple(failed), None)


def _signatures(witness: ledger.PolicyWitness, reader: ledger.LogReader) -> list[ledger.NoteSignature]:
    try:
        # It says itself up to where it knows the log; the first guess is that it does not.
        return ledger.ask_witness(witness.url, reader.note(), reader.consistency_proof, [witness.key])
    except ledger.Unverified as unsigned:
        # Taken, and not signed by this key: so does a mirror, which waits for the entries.
        try:
            return ledger.follow_log(ledger.mirror_at(witness.url), reader, [witness.key])
        except ledger.LedgerError as error:
            raise ledger.Conflict(f"{unsigned}; and as a mirror: {error}") from error


@dataclass(frozen=True)
class WitnessView:
    """What a witness shows of this log: up to which size, or why that is not known; ``conflict`` where it saw another history."""

    name: str
    size: int | None
    why: str = ""
    conflict: bool = False


def compare_all(storage: ledger.Storage, keys: Sequence[ledger.VerifierKey]) -> list[WitnessView]:
    """What each witness of the policy has seen of this log, by its monitoring pages, beside the log.

    Raises:
        ledger.Unavailable: this root has no witnesses.
    """
    policy = _policy(storage)
    reader = ledger.LogReader(storage, keys)
    origin = reader.checkpoint().origin
    found = []
    for witness in policy.witnesses:
        if not witness.url:
            continue
        try:
            checkpoint, _ = ledger.read_cosigned(witness.url, origin, keys, [witness.key])
        except ledger.LedgerError as error:
            found.append(WitnessView(witness.name, None, str(error)))
            continue
        try:
            reader.check_continues(checkpoint)
            found.append(WitnessView(witness.name, checkpoint.size))
        except ledger.Tampered as error:
            found.append(WitnessView(witness.name, checkpoint.size, str(error), conflict=True))
    return found


def _policy(storage: ledger.Storage) -> ledger.WitnessPolicy:
    policy = load_policy(storage)
    if policy is None or not policy.witnesses:
        raise ledger.Unavailable(
            "this root has no witnesses",
            where=storage.describe(),
            expected=POLICY,
            found="no file",
            cure="add one with `marin ledger witness add ADDRESS --vkey KEY`",
        )
    return policy
