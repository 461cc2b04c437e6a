"""Events that stand alone: some of a log, each with its proof of inclusion (C2SP tlog-proof), read as a history.

What is written for people without the log (a dossier, a certificate) is read from :class:`Proven` events and from nothing
else, by who writes it and by who judges it. So it is a function of what its proofs show, and can be made again by anyone who
has them. A stream that anything follows from is there whole, up to its last event here: an event that was left out before
it is missed.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property

import ledger
from marin.history.run import Fact, Indexed
from marin.history.runs import History
from marin.record.events import ReplayCompleted
from marin.verify.derivation.attempts import beside


@dataclass(frozen=True)
class Proven:
    """Events of one log that are shown to be in it under one signed checkpoint; a :class:`History` of them alone."""

    entries: Mapping[int, ledger.Event]
    checkpoint: ledger.LogCheckpoint
    signers: tuple[ledger.VerifierKey, ...] = ()
    """The log's own keys that signed it, as far as they are trusted; empty for anyone who reads an own log to write of it."""
    notes: tuple[str, ...] = ()
    """The signed checkpoint as the proofs have it, with cosignatures where it has some."""

    def events(self, *, stream: str | None = None, type: str | None = None, **named: str | None) -> Iterator[Indexed]:
        """As :meth:`History.events`.

        Raises:
            ledger.Tampered: an event of the asked-for stream was left out.
        """
        found = self._ordered if stream is None else self._streams.get(stream, [])
        for number, (index, event) in enumerate(found):
            if stream is not None and event.seq != number:
                raise ledger.Tampered(
                    "an event was left out",
                    where=f"event {index}, in stream {stream}",
                    expected=f"number {number} of the stream",
                    found=f"number {event.seq}",
                    cure="ask for one that brings every event of the run",
                )
            body = event.body
            if (type is None or event.type == type) and all(
                value is None or body.get(name) == value for name, value in named.items()
            ):
                yield index, event

    @cached_property
    def _ordered(self) -> list[Indexed]:
        return sorted(self.entries.items())

    @cached_property
    def _streams(self) -> dict[str, list[Indexed]]:
        found: dict[str, list[Indexed]] = {}
        for index, event in self._ordered:
            found.setdefault(event.stream, []).append((index, event))
        return found

    def event(self, index: int) -> ledger.Event | None:
        return self.entries.get(index)

    def strays(self, naming: str) -> tuple[ledger.Stray, ...]:
        """None: what is proven here are events."""
        return ()

    def newest(self, stream: str) -> int:
        return max((index for index, _ in self.events(stream=stream)), default=-1)

    def counts(self, verdict: Fact[ReplayCompleted]) -> bool:
        """A verdict counts that is about an earlier state of this log, by the name that it gives."""
        about = verdict.body.log_checkpoint
        size = about.get("size")
        return about.get("origin") == self.checkpoint.origin and type(size) is int and size <= self.checkpoint.size


@dataclass
class Noting:
    """A history that remembers what it gave: what is to be proven of it."""

    history: History
    noted: dict[int, ledger.Event] = field(default_factory=dict)

    def events(self, *, stream: str | None = None, type: str | None = None, **named: str | None) -> Iterator[Indexed]:
        """As :meth:`History.events`; of a stream, all is noted; of what only names a run, not what is beside it."""
        found = list(self.history.events(stream=stream, type=type, **named))
        is_part = stream is not None and any(value is not None for value in (type, *named.values()))
        told = self.history.events(stream=stream) if is_part else found
        self.noted |= {index: event for index, event in told if stream or type or not beside(event)}
        yield from found

    def event(self, index: int) -> ledger.Event | None:
        event = self.history.event(index)
        if event is not None:
            self.noted[index] = event
        return event

    def strays(self, naming: str) -> Iterable[ledger.Stray]:
        return self.history.strays(naming)

    def newest(self, stream: str) -> int:
        """As :meth:`History.newest`; that is not part of what is proven."""
        return self.history.newest(stream)

    def counts(self, verdict: Fact[ReplayCompleted]) -> bool:
        return self.history.counts(verdict)


@dataclass(frozen=True)
class Until:
    """A history as it was when its log had ``size`` entries."""

    history: History
    size: int

    def events(self, *, stream: str | None = None, type: str | None = None, **named: str | None) -> Iterator[Indexed]:
        for index, event in self.history.events(stream=stream, type=type, **named):
            if index < self.size:
                yield index, event

    def event(self, index: int) -> ledger.Event | None:
        return self.history.event(index) if index < self.size else None

    def strays(self, naming: str) -> Iterator[ledger.Stray]:
        return (stray for stray in self.history.strays(naming) if stray.index < self.size)

    def newest(self, stream: str) -> int:
        return max((index for index, _ in self.events(stream=stream)), default=-1)

    def counts(self, verdict: Fact[ReplayCompleted]) -> bool:
        return self.history.counts(verdict)


def note_keys(noting: Noting) -> None:
    """What the log says of its own keys: whose signatures count."""
    for kind in sorted(ledger.KEY_TYPES):
        tuple(noting.events(type=kind))


def proofs(reader: ledger.LogReader, indexes: Iterable[int]) -> dict[int, str]:
    """The proof of each of these events, as a file has it."""
    return {index: str(ledger.make_proof(reader, index)) for index in sorted(indexes)}


def proven(files: Iterable[tuple[str, bytes]], keys: Sequence[ledger.VerifierKey], *, where: str) -> Proven:
    """The events that these proofs show under ``keys``, each verified; by name of event ("12"), all of ``where``.

    Raises:
        ledger.Malformed: a file is not a proof, or has another event's name.
        ledger.Unverified: a proof shows nothing under these keys, or under one that is not named for the log; by what the
            events say of its keys, these count no more; or half of a hybrid key's signatures is missing.
        ledger.Tampered: the proofs are of several states of a log.
    """
    entries: dict[int, ledger.Event] = {}
    ids = dict[str, int]()
    checkpoints, notes = set(), dict[str, None]()
    for name, data in files:
        proof = ledger.LogProof.parse(data)
        shown = ledger.verify_proof(proof, keys)
        if shown.checkpoint.origin not in shown.signers:
            raise ledger.Unverified(
                "a checkpoint that its own log did not sign",
                where=f"{where}, event {name}",
                expected=f"a signature by {shown.checkpoint.origin}",
                found=", ".join(shown.signers),
                cure="a key signs the one log that it is named for",
            )
        if name != str(shown.index):
            raise ledger.Malformed(
                "a proof of another event", where=f"{where}, event {name}", expected=name, found=str(shown.index)
            )
        entries[shown.index] = ledger.Event.decode(shown.entry)
        _check_id(entries[shown.index], ids.setdefault(entries[shown.index].id, shown.index), shown.index, where)
        checkpoints.add(shown.checkpoint)
        notes[proof.note] = None
    if len(checkpoints) != 1:
        raise ledger.Tampered(
            "proofs under several checkpoints", where=where, expected="one", found=str(len(checkpoints))
        )
    (checkpoint,) = checkpoints
    changes = [(index, event) for index, event in sorted(entries.items()) if event.type in ledger.KEY_TYPES]
    signers = [set(ledger.check_signers(checkpoint, note.encode(), keys, changes)) for note in notes]
    return Proven(entries, checkpoint, tuple(sorted(set.intersection(*signers), key=str)), tuple(notes))


def _check_id(event: ledger.Event, first: int, index: int, where: str) -> None:
    """Of two entries with one id, one is not an event of the log.

    Raises:
        ledger.Tampered: the id is that of another one here.
    """
    if first != index:
        raise ledger.Tampered(
            "an id occurs twice",
            where=where,
            expected=f"ids of their own in events {min(first, index)} and {max(first, index)}",
            found=event.id,
            cure="no writer numbers so: do not trust the signer of this log",
        )
