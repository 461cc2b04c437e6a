"""What is judged without a root: a dossier or a certificate, whose evidence it brings, by anyone who has a key.

Here is what all of them share: the judgement, whose keys count, and how the events agree with what is known of their log: what
was seen of it before, and the log itself where the verifier has it.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Collection, Mapping, Sequence
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

from ledger import LedgerError, LogReader, Storage, Tampered, Unverified, VerifierKey, WitnessPolicy, follow_keys
from marin.errors import UsageError
from marin.history.runs import History
from marin.process.text import several
from marin.record.root import ROOT_VARIABLE, Root, open_root
from marin.record.trust.evidence import DatedEvidence, is_about, witnessed
from marin.record.trust.pins import Pins, default_pins
from marin.record.trust.policy import own_policy
from marin.record.trust.trusted import WITNESSES, default_trust
from marin.verify.alone.proven import Proven, Until
from marin.verify.verdict import Outcome, Verdict, worst


@dataclass(frozen=True)
class Judgement:
    """The verdicts on ``run`` by question, in the order of causes."""

    run: str
    verdicts: Mapping[str, Verdict]

    @property
    def outcome(self) -> Outcome:
        """The one that decides."""
        return worst([verdict.outcome for verdict in self.verdicts.values()])

    def exit_code(self) -> int:
        """As :meth:`marin.verify.verdict.Report.exit_code`."""
        return {"PASS": 0, "FAIL": 1, "PARTIAL": 4}.get(self.outcome, 3)

    def as_json(self) -> dict[str, Any]:
        """As ``marin verify --json`` prints it."""
        return {
            "run": self.run,
            "verdicts": {name: verdict.outcome for name, verdict in self.verdicts.items()},
            "details": {name: list(verdict.lines) for name, verdict in self.verdicts.items()},
        }


def trusted_keys(named: Sequence[VerifierKey], what: str) -> list[VerifierKey]:
    """The keys that the verifier named for ``what``; where none was named, the verifier's own and those of `marin trust`.

    Raises:
        UsageError: there are none.
        Refused: the file named as the key (``MARIN_KEY``) is not a key.
        LedgerError: the root that was named cannot be opened.
    """
    keys, here = list(named) or list(default_trust().all_keys()), root_here()
    if here is not None:
        keys += () if named else here.own_keys()
        keys = list(follow_keys(here.storage, keys))  # those that they handed over to, by proofs that they signed
    if not keys:
        raise UsageError(
            f"{what} is judged under a key",
            where="--vkey",
            expected="the log's verifier key",
            found="none",
            cure="name it with --vkey, or trust it with `marin trust`",
        )
    return keys


def root_here() -> Root | None:
    """The root of this command: None where none was named and none lies here.

    Raises:
        LedgerError: the one that was named (``--root``, ``MARIN_ROOT``) cannot be opened.
    """
    if os.environ.get(ROOT_VARIABLE):
        return open_root()
    with suppress(LedgerError):
        return open_root()
    return None


def check_signer(shown: Proven, key: str, *, where: str) -> None:
    """Raise :class:`Tampered` where a statement is signed by another log's ``key`` than the events that it rests on."""
    if VerifierKey.parse(key).name != shown.checkpoint.origin:
        raise Tampered(
            "a statement by another log's key", where=where, expected=f"a key of {shown.checkpoint.origin}", found=key
        )


@dataclass(frozen=True)
class LogAgreement:
    """How events that stand alone agree with what is known of their log: in ``lines``; and, where the verifier has witnesses, why
    these are not known to have seen the events (``unseen``)."""

    lines: tuple[str, ...]
    unseen: str = ""

    def graded(self, verdict: Verdict) -> Verdict:
        """The verdict on the events, which is PARTIAL at best where the verifier's witnesses have not seen them."""
        if self.unseen and verdict.outcome == "PASS":
            return Verdict("PARTIAL", (self.unseen, *verdict.lines), verdict.executed)
        return verdict


def check_known(
    shown: Proven,
    keys: Sequence[VerifierKey],
    told: Callable[[History], Collection[int]],
    *,
    policy: WitnessPolicy | None,
    since: Callable[[History], None] = lambda history: None,
) -> LogAgreement:
    """How the events agree with what is known of their log here: what was seen of it, the log itself where it is the root of
    this command (``--root``, or the one of this folder), and what the verifier's witnesses cosigned (``policy``; of `marin
    trust` where it is None). ``told``: the events that must be among them; ``since`` raises where the whole log says something
    that ends what is shown.

    Raises:
        Tampered: their log had another history when it was seen, or has one here; or it has events up to their
            checkpoint that are not among them.
        Unverified: the log at hand is not signed by ``keys``, or not any more by them.
        Unavailable: what was seen cannot be compared.
        LedgerError: the root that was named cannot be opened.
    """
    about, pins, log = shown.checkpoint, Pins(default_pins()), root_here()
    if log is None or log.verifier.name != about.origin:
        other = "" if log is None else f"; the root at hand is another log, {log.verifier.name}"
        unknown = f"the log is not at hand: what it says after its events here is unknown{other}"
        return _with_witnesses((pins.agrees(about, shown.signers), unknown), shown, keys, policy, None)
    reader = LogReader(log.storage, keys)
    line, size = pins.compare(reader, log.storage, log.absolute).line, reader.checkpoint().size
    history = log.history_as_read(reader, keys)
    since(history)
    if size < about.size:  # too short to be compared by its root: event by event
        shared = sorted(index for index in shown.entries if index < size)
        for index in shared:
            if reader.entry(index) != shown.entries[index].encode():
                raise _another_history(log, f"event {index}")
        held = f"with the first {len(shared)} of these {len(shown.entries)} events"
        ends = f"the log at hand ends before, at size {size}, {held}"
        return _with_witnesses((pins.agrees(about, shown.signers), ends), shown, keys, policy, None)
    reader.check_continues(about)
    known = sorted(told(Until(history, about.size)))
    left_out = [index for index in known if index not in shown.entries]
    if left_out:
        raise Tampered(
            "events are left out",
            where=log.location,
            expected=f"{len(known)} events of this run",
            found=f"none of {', '.join(map(str, left_out[:5]))}",
            cure="ask for one that brings every event of the run",
        )
    streams = {event.stream for event in shown.entries.values()}
    later = sum(1 for stream in streams for index, _ in history.events(stream=stream) if index >= about.size)
    lines = (
        f"the log at hand, {line}, has the same",
        *([f"it says more of this run since: {several(later, 'events')}"] * bool(later)),
    )
    return _with_witnesses(lines, shown, keys, policy, (log.storage, reader))


def _with_witnesses(
    lines: tuple[str, ...],
    shown: Proven,
    keys: Sequence[VerifierKey],
    policy: WitnessPolicy | None,
    log: tuple[Storage, LogReader] | None,
) -> LogAgreement:
    """These lines, and what the verifier's witnesses say: of the state under which the events are proven, or of the log at
    hand."""
    mine, about = policy or own_policy(default_trust()), shown.checkpoint
    if mine is None or not is_about(mine, about.origin):
        return LogAgreement(lines)
    told = "nothing of this log"
    for note in shown.notes:
        with suppress(Unverified):
            _, names = mine.check(note.encode(), keys)
            return LogAgreement((*lines, str(DatedEvidence(WITNESSES, about.size, "", ", ".join(names)))))
    if log is not None:
        with suppress(Unverified):
            (seen,) = witnessed(*log, keys, mine)
            if seen.size > max(shown.entries):
                return LogAgreement((*lines, str(seen)))
            told = f"the first {seen.size} events of it"
    unseen = (
        f"your witnesses ({mine.describe()}) are not known to have seen event {max(shown.entries)}: what they cosigned, as "
        f"far as is known here, is {told}. Ask for a proof under a checkpoint that they cosigned, or name the log by --root"
    )
    return LogAgreement(lines, unseen)


def _another_history(log: Root, where: str) -> Tampered:
    return Tampered(
        "the log at hand has another history",
        where=f"{log.location}, {where}",
        expected="the event that is proven here",
        found="another one",
        cure="keep both: two signed logs that conflict are evidence",
    )
