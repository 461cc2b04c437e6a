"""What a dossier rests on: the events that say something of one run, each with its proof of inclusion (C2SP tlog-proof).

Who writes a dossier and who judges it read the run from the same :class:`Proven` events, and from nothing else. So the
documents are a function of what the proofs show, and can be made again by whoever has them.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from ledger import (
    Event,
    LogCheckpoint,
    LogProof,
    LogReader,
    Malformed,
    Tampered,
    Unverified,
    VerifierKey,
    make_proof,
    verify_proof,
)
from marin.dossier.stated import card_stream
from marin.history.run import Fact, Indexed, Run
from marin.history.runs import History, evaluation_stream, load, read_fact
from marin.recipe.schema import DocumentsDataset, parts
from marin.record.bodies.collections import (
    COLLECTION_COMPLETED,
    COLLECTION_STARTED,
    CollectionCompleted,
    CollectionStarted,
)
from marin.record.events import REPLAY_COMPLETED, ReplayCompleted

FOLDER, SUFFIX = "evidence", ".tlog-proof"
_MOST = 2_000_000


def proof_path(index: int) -> str:
    """Where a dossier has the proof of event ``index``."""
    return f"{FOLDER}/{index}{SUFFIX}"


@dataclass(frozen=True)
class Proven:
    """Events of one log that are shown to be in it under one signed checkpoint; a :class:`History` of them alone."""

    entries: Mapping[int, Event]
    checkpoint: LogCheckpoint

    def events(
        self, *, stream: str | None = None, type: str | None = None, run: str | None = None, identity: str | None = None
    ) -> Iterator[Indexed]:
        """As :meth:`History.events`."""
        for index, event in sorted(self.entries.items()):
            body = event.body
            if (
                (stream is None or event.stream == stream)
                and (type is None or event.type == type)
                and (run is None or body.get("run") == run)
                and (identity is None or body.get("identity") == identity)
            ):
                yield index, event

    def event(self, index: int) -> Event | None:
        """As :meth:`History.event`."""
        return self.entries.get(index)

    def counts(self, verdict: ReplayCompleted) -> bool:
        """A verdict counts that is about an earlier state of this log, by the name that it gives."""
        about, size = verdict.log_checkpoint, verdict.log_checkpoint.get("size")
        return about.get("origin") == self.checkpoint.origin and type(size) is int and size <= self.checkpoint.size


@dataclass
class _Noting:
    """A history that remembers what it was asked for."""

    history: History
    noted: dict[int, Event] = field(default_factory=dict)

    def events(
        self, *, stream: str | None = None, type: str | None = None, run: str | None = None, identity: str | None = None
    ) -> Iterable[Indexed]:
        for index, event in self.history.events(stream=stream, type=type, run=run, identity=identity):
            self.noted[index] = event
            yield index, event

    def event(self, index: int) -> Event | None:
        event = self.history.event(index)
        if event is not None:
            self.noted[index] = event
        return event

    def counts(self, verdict: ReplayCompleted) -> bool:
        return self.history.counts(verdict)


def gather(history: History, reader: LogReader, run: str) -> tuple[Proven, dict[str, bytes]]:
    """The events that ``run`` is folded from, those with its card, and the files with their proofs."""
    noting = _Noting(history)
    view = load(noting, run)
    for stream in (card_stream(run), evaluation_stream(run)):
        noting.noted |= dict(history.events(stream=stream))
    noting.noted |= dict(history.events(type=REPLAY_COMPLETED, run=run))
    for index, _, begun, _ in collections_of(history, view):
        noting.event(index)
        if begun is not None:
            noting.event(begun)
    files = {proof_path(index): str(make_proof(reader, index)).encode() for index in sorted(noting.noted)}
    return Proven(noting.noted, reader.checkpoint()), files


def collections_of(
    history: History, run: Run
) -> Iterator[tuple[int, CollectionCompleted, int | None, CollectionStarted | None]]:
    """The collections of documents that the data sets of ``run`` are: each with the event that says it is whole, and the one
    that began it, as far as this log has them."""
    for part in parts(run.recipe.dataset).values():
        artifact = part.artifact if isinstance(part, DocumentsDataset) else None
        whole = [fact for fact in _completed(history) if fact.body.artifact == artifact]
        if not whole or artifact is None:
            continue
        (last,) = whole[-1:]
        begun = [read_fact(CollectionStarted, item) for item in
                 history.events(type=COLLECTION_STARTED, identity=last.body.identity)]  # fmt: skip
        yield last.index, last.body, begun[-1].index if begun else None, begun[-1].body if begun else None


def _completed(history: History) -> Iterator[Fact[CollectionCompleted]]:
    for item in history.events(type=COLLECTION_COMPLETED):
        yield read_fact(CollectionCompleted, item)


def proven(folder: Path, keys: Sequence[VerifierKey]) -> Proven:
    """The events that the proofs below ``folder`` show under ``keys``, each verified.

    Raises:
        Malformed: a file is none, or lies under another event's name.
        Unverified: a proof shows nothing under these keys, or under one that is not named for the log.
        Tampered: the proofs are of several states of a log.
    """
    entries: dict[int, Event] = {}
    checkpoints = set()
    for path in sorted((folder / FOLDER).glob(f"*{SUFFIX}")):
        if path.is_symlink() or path.stat().st_size > _MOST:
            raise Malformed(
                "not a proof", where=path.name, expected=f"a file of at most {_MOST} bytes", found="another"
            )
        shown = verify_proof(LogProof.parse(path.read_bytes()), keys)
        if shown.checkpoint.origin not in shown.signers:
            raise Unverified("a checkpoint that its own log did not sign", where=path.name,
                             expected=f"a signature by {shown.checkpoint.origin}", found=", ".join(shown.signers),
                             cure="a key signs the one log that it is named for")  # fmt: skip
        if path.name != f"{shown.index}{SUFFIX}":
            raise Malformed("a proof of another event", where=path.name, expected=path.name, found=str(shown.index))
        entries[shown.index] = Event.decode(shown.entry)
        checkpoints.add(shown.checkpoint)
    if len(checkpoints) != 1:
        raise Tampered("proofs under several checkpoints", where=FOLDER, expected="one", found=str(len(checkpoints)))
    return Proven(entries, checkpoints.pop())
