"""What the ledger remembers of steps: results by identity, failures that last, and steps found non-deterministic.

Read once through the projection when a graph is planned, and then kept up by reading the events that were appended
since. Results are facts of any run and any graph: who made one does not matter, its identity does. They lie in a
private file, and in memory only where in it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

import msgspec

from ledger import Event, LedgerError, Store
from marin.graph.lease import Claims
from marin.graph.rows import Rows
from marin.history.run import Fact
from marin.record import events as kinds
from marin.record.events import StepChecked, StepCompleted, StepFailed
from marin.record.root import Root

REMEMBERED = 2_000
_READ = (kinds.RUN_STARTED, kinds.STEP_COMPLETED, kinds.STEP_FAILED, kinds.STEP_CHECKED)

Row = tuple[int, int, str, StepCompleted]
"""Place of the result of the same identity before this one (-1: none), index and time of the event, its body."""


class Results:
    """Recorded results by identity. What a ledger has of them takes about 150 bytes of memory each."""

    def __init__(self) -> None:
        self._newest: dict[bytes, int] = {}
        self._rows = Rows()
        self._encode = msgspec.msgpack.Encoder().encode
        self._decode = msgspec.msgpack.Decoder(Row).decode

    def add(self, fact: Fact[StepCompleted]) -> None:
        """Take in a result that is newer than all that are here."""
        key = _key(fact.body.identity)
        row = (self._newest.get(key, -1), fact.index, fact.time, fact.body)
        self._newest[key] = self._rows.append(self._encode(row))

    def of(self, identity: str) -> Iterator[Fact[StepCompleted]]:
        """The results of one identity, newest first."""
        return self._chain(self._newest.get(_key(identity), -1))

    def __iter__(self) -> Iterator[Fact[StepCompleted]]:
        """All results, oldest first."""
        return (Fact(index, time, body) for _, index, time, body in map(self._decode, self._rows))

    def _chain(self, place: int) -> Iterator[Fact[StepCompleted]]:
        while place >= 0:
            place, index, time, body = self._decode(self._rows.read(place))
            yield Fact(index, time, body)


def _key(identity: str) -> bytes:
    return bytes.fromhex(identity.removeprefix("sha256:"))


@dataclass
class Memory:
    """The fold. ``size`` is up to where the log was read."""

    root: Root
    size: int = 0
    results: Results = field(default_factory=Results)
    failures: dict[str, Fact[StepFailed]] = field(default_factory=dict)
    checks: dict[str, Fact[StepChecked]] = field(default_factory=dict)
    claims: Claims = field(default_factory=Claims)
    pipelines: dict[str, str] = field(default_factory=dict)

    @classmethod
    def of(cls, root: Root) -> Memory:
        """What is known now."""
        memory = cls(root)
        reader = root.reader()
        memory.size = reader.checkpoint().size
        history = root.history()
        for kind in _READ:
            for index, event in history.events(type=kind):
                if index < memory.size:
                    memory.see(index, event)
        for index, event in history.events(stream=kinds.LEASES):
            if index < memory.size:
                memory.see(index, event)
        return memory

    def refresh(self) -> None:
        """Take in what was appended since."""
        reader = self.root.reader()
        end = reader.checkpoint().size
        for index, event in reader.events(self.size, end):
            self.see(index, event)
        self.size = end

    def see(self, index: int, event: Event) -> None:
        """Take in one event, whichever comes first."""
        if event.type == kinds.RUN_STARTED:
            self.pipelines[str(event.body.get("run"))] = str(event.body.get("pipeline"))
        elif event.type == kinds.STEP_COMPLETED:
            self.results.add(_read(StepCompleted, index, event))
        elif event.type == kinds.STEP_FAILED:
            failed = _read(StepFailed, index, event)
            if failed.body.lasting:
                self.failures[failed.body.identity] = failed
        elif event.type == kinds.STEP_CHECKED:
            checked = _read(StepChecked, index, event)
            known = self.checks.get(checked.body.identity)
            if known is None or known.body.deterministic or not checked.body.deterministic:
                self.checks[checked.body.identity] = checked
        elif event.stream == kinds.LEASES:
            self.claims.see(event.type, event.seq, event.body)

    def candidates(self, step: str, identity: str, pipeline: str = "") -> Iterator[Fact[StepCompleted]]:
        """Recorded results of this step and identity, newest first; of runs of one pipeline only if it is named."""
        return (
            fact
            for fact in self.results.of(identity)
            if fact.body.step == step and pipeline in ("", self.pipelines.get(fact.body.run))
        )

    def failure(self, identity: str) -> Fact[StepFailed] | None:
        """A lasting failure that no later result made good."""
        failed = self.failures.get(identity)
        if failed is None or any(fact.index > failed.index for fact in self.results.of(identity)):
            return None
        return failed

    def unsteady(self, identity: str) -> Fact[StepChecked] | None:
        """The event that says that this step is not deterministic."""
        checked = self.checks.get(identity)
        return checked if checked is not None and not checked.body.deterministic else None


@dataclass
class Wholeness:
    """Which artifacts were hashed again in this process and found to be what they are called."""

    store: Store
    known: dict[str, str] = field(default_factory=dict)
    """Of the newest :data:`REMEMBERED` that were looked at: outputs that several steps share are mostly near each
    other."""

    def damage(self, body: StepCompleted) -> str:
        """The first thing wrong with the stored bytes of a result, all of them hashed; "" when it is whole."""
        for digest in (body.output.artifact, *body.tables.values()):
            if (damage := self.known.get(digest)) is None:
                damage = self.known[digest] = self._look(digest)
                if len(self.known) > REMEMBERED:
                    del self.known[next(iter(self.known))]
            if damage:
                return damage
        return ""

    def forget(self, digest: str) -> None:
        """It is being put again."""
        self.known.pop(digest, None)

    def _look(self, digest: str) -> str:
        try:
            findings = self.store.verify(digest)
        except LedgerError as error:
            return str(error)
        return str(findings[0]) if findings else ""


def _read[T: kinds.Body](kind: type[T], index: int, event: Event) -> Fact[T]:
    return Fact(index=index, time=event.time, body=kinds.read(kind, event.body, where=f"event {index}"))
