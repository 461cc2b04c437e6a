"""What the ledger remembers of steps: results by identity, failures that last, and steps found non-deterministic.

Read once through the projection when a graph is planned, and then kept up by reading the events that were appended
since. Results are facts of any run and any graph: who made one does not matter, its identity does.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field

from ledger import Event, LedgerError, Store
from marin import events as kinds
from marin.events import StepChecked, StepCompleted, StepFailed
from marin.graph.lease import Claims
from marin.root import Root
from marin.runs import Fact

_READ = (kinds.RUN_STARTED, kinds.STEP_COMPLETED, kinds.STEP_FAILED, kinds.STEP_CHECKED)


@dataclass
class Memory:
    """The fold. ``size`` is up to where the log was read."""

    root: Root
    size: int = 0
    results: dict[str, list[Fact[StepCompleted]]] = field(default_factory=dict)
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
            fact = _read(StepCompleted, index, event)
            self.results.setdefault(fact.body.identity, []).append(fact)
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
        return (fact for fact in sorted(self.results.get(identity, ()), key=lambda fact: -fact.index)
                if fact.body.step == step and pipeline in ("", self.pipelines.get(fact.body.run)))

    def failure(self, identity: str) -> Fact[StepFailed] | None:
        """A lasting failure that no later result made good."""
        failed = self.failures.get(identity)
        if failed is None or any(fact.index > failed.index for fact in self.results.get(identity, ())):
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

    def damage(self, body: StepCompleted) -> str:
        """The first thing wrong with the stored bytes of a result, all of them hashed; "" when it is whole."""
        for digest in (body.output.artifact, *body.tables.values()):
            if digest not in self.known:
                self.known[digest] = self._look(digest)
            if self.known[digest]:
                return self.known[digest]
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
