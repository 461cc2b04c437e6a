"""The one writer of a log: append, commit, publish.

The life of an event. A client hands in a ``Draft``. Under the log's lock the draft gets its place (index,
``seq``, time), its canonical bytes become an entry, the tree grows by its leaf, and the new size and root are
signed. Entries and signed checkpoint go to the journal in one synced write: that is the commit, and only then
is the client told. Later, once a second while appends go on and at the end, the committed entries are
published: tiles and bundles first, then ``log/checkpoint``, which is all that foreign tools read; our own
readers also read the journal.

A process that dies at any point leaves one of: nothing (the journal's last record is not whole), a committed
record that is not yet published, or some tiles of it. Opening the log loads what is committed and publishes
it again, with the same bytes. There is no repair.

Anyone who opens the log for a few events at a time may leave them in the journal (``patient``), where our readers find
them: each size that is published is one more partial tile and one more partial bundle, which tlog-tiles wants kept until
the complete ones are there. Sixty-four events are published together, and what completes a tile always.

After an error in the middle of an append its outcome is unknown; the log then loads itself anew before the
next one, and handing in the same drafts again gives the same places.
"""

from __future__ import annotations

import logging
import sqlite3
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from contextlib import AbstractContextManager, ExitStack
from datetime import UTC, datetime, timedelta
from pathlib import Path
from types import TracebackType

from ledger.authors.authority import Authority, check_id
from ledger.errors import AlreadyExists, Conflict, Fenced, LedgerError, OutOfSequence, Refused, StorageFailed
from ledger.format import layout
from ledger.format.bundle import pack_entries
from ledger.format.checkpoint import LogCheckpoint
from ledger.format.event import KEPT_TYPES, Draft, Event, EventTypes, format_time, parse_time
from ledger.format.note import NoteSignature, NoteSigner, Signer, VerifierKey, add_signatures, parse_note
from ledger.format.tlog import EMPTY_ROOT, TILE_WIDTH, Frontier, Tile, leaf_hash
from ledger.log.batch import Batch, Entered, Placed, Receipt
from ledger.log.index import WriterIndex, reserve
from ledger.log.journal import JournalWriter, Record
from ledger.log.trust import follow_keys
from ledger.log.view import LogView
from ledger.storage.port import Storage

_LOG = logging.getLogger(__name__)
_CLOCK_TOLERANCE = timedelta(seconds=300)
_JOURNAL_HARD_LIMIT = 4
_LEFT = 64
"""So many events a patient writer leaves in the journal."""


def _now() -> datetime:
    return datetime.now(UTC)


class Log(AbstractContextManager["Log"]):
    """An open log: holds its lock until closed. Use it as a context manager. Safe for threads."""

    _view: LogView
    _checkpoint: LogCheckpoint
    _frontier: Frontier
    _stale: bool
    _published_at: float

    def __init__(
        self,
        storage: Storage,
        signer: Signer,
        *,
        verifiers: Sequence[VerifierKey],
        actor: str,
        types: EventTypes | None,
        publish_seconds: float,
        journal_bytes: int,
        clock: Callable[[], datetime],
        index: Path | None,
        patient: bool,
        resources: ExitStack,
    ) -> None:
        """Use ``Log.open``, which takes the lock first."""
        self._storage = storage = storage.guard((layout.checkpoint_path(), layout.journal_path()))
        self._signer = signer
        self._keys = follow_keys(storage, [*signer.verifiers, *verifiers])
        _check_signs(signer, self._keys)
        self._actor = actor
        self._types = types or EventTypes()
        self._publish_seconds = publish_seconds
        self._journal_bytes = journal_bytes
        self._clock = clock
        self._patient = patient
        self._resources = resources
        self._mutex = threading.RLock()
        self._idle = threading.Condition(self._mutex)
        self._open: Batch | None = None
        self._syncing: Batch | None = None
        self._waiting = 0
        self._closed = False
        self._journal = JournalWriter(storage, layout.journal_path())
        local = storage.local_path(layout.index_path()) if index is None else resources.enter_context(reserve(index))
        self._index = WriterIndex(local)
        self._authority = Authority(signer.name, self._signing_keys, self._event_named)
        self._resources.callback(self._index.close)
        self._view = LogView.load(storage, self._keys, origin=signer.name)
        self._settle()

    @staticmethod
    def create(storage: Storage, signer: Signer) -> LogCheckpoint:
        """Begin an empty log, whose origin is the signer's name. ``AlreadyExists`` if there is one."""
        checkpoint = LogCheckpoint(signer.name, 0, EMPTY_ROOT)
        with storage.lock(layout.lock_path(), _command()):
            try:
                storage.create(layout.checkpoint_path(), checkpoint.sign([signer, *signer.companions]).encode())
            except AlreadyExists:
                raise AlreadyExists(
                    "there is a log here already",
                    where=f"{storage.describe()}: {layout.LOG}",
                    cure="use it, or name another root; nothing was overwritten",
                ) from None
        return checkpoint

    @classmethod
    def open(
        cls,
        storage: Storage,
        signer: Signer,
        *,
        verifiers: Sequence[VerifierKey] = (),
        actor: str | None = None,
        types: EventTypes | None = None,
        wait: float = 0.0,
        publish_seconds: float = 1.0,
        journal_bytes: int = 4 << 20,
        clock: Callable[[], datetime] = _now,
        index: Path | None = None,
        patient: bool = False,
    ) -> Log:
        """Take the lock, waiting up to ``wait`` seconds, load what is committed, and be ready to append.

        ``actor`` is written into events whose drafts name none; ``verifiers`` are keys that may have signed
        before this one. ``index`` is a local file where the index of ids is kept between two openings; without it, it is
        kept below ``projections/``, or for a storage that is not a local folder folded again from the log, in memory.
        A ``patient`` writer publishes neither when it opens nor by the clock: see ``leave``.
        """
        with ExitStack() as resources:
            resources.enter_context(storage.lock(layout.lock_path(), _command(), wait=wait))
            log = cls(
                storage,
                signer,
                verifiers=verifiers,
                actor=actor or signer.name,
                types=types,
                publish_seconds=publish_seconds,
                journal_bytes=journal_bytes,
                clock=clock,
                index=index,
                patient=patient,
                resources=resources,
            )
            log._resources = resources.pop_all()
            return log

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is None or issubclass(kind, Exception):
            self.close()
        else:  # the process is ending in a hurry; what is committed is published by anyone who opens next
            self._release()

    def close(self) -> None:
        """Publish what is committed and release the lock."""
        with self._mutex:
            if self._closed:
                return
            try:
                self._begin()
                self._publish()
                self._journal.remove()
            except Fenced as error:
                # What was acknowledged here is committed, and the writer that took over publishes it.
                _LOG.warning("left to another writer: %s", error)
            finally:
                self._release()

    def leave(self) -> None:
        """Release the lock; what is committed stays in the journal while it is little, and is published by anyone who opens
        next."""
        with self._mutex:
            if self._closed:
                return
            if self._stale or not self._patient or not self._is_little():
                self.close()
                return
            self._begin()
            self._release()

    def _is_little(self) -> bool:
        """Whether what is pending completes no tile, and is not worth a publication."""
        published, size = self._view.published.size, self._view.checkpoint.size
        return size - published <= _LEFT and size // TILE_WIDTH == published // TILE_WIDTH

    @property
    def checkpoint(self) -> LogCheckpoint:
        """The newest signed checkpoint."""
        return self._checkpoint

    def append(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Append all of ``drafts`` or none, in order, and say where they are, once they are durable.

        Drafts whose ids are in the log already, with the same content, get the receipt of the event that is
        there. ``Conflict`` for the same id with other content, ``OutOfSequence`` for a wrong ``expect_seq``, ``Refused`` for what
        cannot be an event.
        """
        (outcome,) = self.append_each([drafts])
        if isinstance(outcome, LedgerError):
            raise outcome
        return outcome

    def append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]:
        """Group commit: ``append`` for each request, all under one signature and one sync.

        What is wrong with one request is its outcome and touches no other. What goes wrong with the commit is raised,
        for the outcome of all of them is unknown then.
        """
        return self.enter(requests).outcomes()

    def enter(self, requests: Sequence[Sequence[Draft]], *, key_events: bool = False) -> Entered:
        """Place these requests in the batch that is committed next; ``outcomes`` of what is returned waits for that.

        So one thread places events while another waits for the sync of those before. ``key_events`` is for
        ``append_key_event`` alone.
        """
        with self._mutex:
            self._check_open()
            if self._stale:
                self._begin()
            batch = self._open
            if batch is None:
                batch = self._open = Batch(self._checkpoint.size if self._syncing is None else self._syncing.end)
            before = len(batch.fresh)
            try:
                outcomes = self._place_each(requests, batch, key_events)
            except sqlite3.Error as error:
                self._stale = True
                failed = StorageFailed(
                    "the index of the log cannot be read", found=str(error), cure="append again: it is folded anew"
                )
                self._abandon(failed)
                raise failed from error
            except BaseException:
                batch.cut(before)
                raise
            return Entered(self.finish, batch, outcomes)

    def finish(self, batch: Batch) -> None:
        """Return when ``batch`` is durable or has failed; sync it in this thread if nobody else does."""
        with self._mutex:
            while not batch.settled:
                if self._syncing is None and not self._waiting:
                    self._sync(batch)
                else:
                    self._idle.wait()

    def publish(self) -> None:
        """Make tiles of all that is committed, so that foreign tools see it too."""
        with self._mutex:
            self._begin()
            self._publish()

    def add_cosignatures(self, lines: Sequence[NoteSignature], *, text: str | None = None) -> None:
        """Put the cosignatures of witnesses, already verified, under the newest checkpoint and publish it with them.

        ``text`` is what they signed; ``Conflict`` if the newest checkpoint says something else by now.
        """
        with self._mutex:
            self.publish()
            if text is not None and text != parse_note(self._view.note).text:
                raise Conflict(
                    "the log went on while witnesses were asked",
                    where=self._checkpoint.origin,
                    expected=f"size {LogCheckpoint.parse(text).size}",
                    found=f"{self._checkpoint.size}",
                    cure="ask them again",
                )
            self._storage.replace(layout.checkpoint_path(), add_signatures(self._view.note, lines))
            self._load()

    def add_signatures(self, signers: Sequence[NoteSigner]) -> None:
        """Let these keys sign the newest checkpoint too; published with it."""
        with self._mutex:
            self.publish()
            text = parse_note(self._view.note).text
            made = [NoteSignature(s.verifier.name, s.verifier.key_id, s.sign(text)) for s in signers]
            self.add_cosignatures(made, text=text)

    def resign(self) -> None:
        """Publish the newest checkpoint signed by this log's key alone, without what others had put under it."""
        with self._mutex:
            self.publish()
            note = self._checkpoint.sign([self._signer, *self._signer.companions]).encode()
            self._storage.replace(layout.checkpoint_path(), note)
            self._load()

    def index_of(self, id: str) -> int | None:
        """The index of the event with this id; None where the log has none."""
        with self._mutex:
            return self._index.find([id]).get(id)

    def length(self, stream: str) -> int:
        """How many events a stream has."""
        with self._mutex:
            return self._index.length(stream)

    def append_key_event(self, draft: Draft) -> Receipt:
        """Append an event that only the holder of the key appends; for ``keyring`` and ``vouching`` alone."""
        (outcome,) = self.enter([[draft]], key_events=True).outcomes()
        if isinstance(outcome, LedgerError):
            raise outcome
        return outcome[0]

    # The parts of an append

    def _place_each(
        self, requests: Sequence[Sequence[Draft]], batch: Batch, key_events: bool
    ) -> list[list[Placed] | LedgerError]:
        """Each draft in its place; those that are new join ``batch`` in this order."""
        now = self._time(batch)
        there = self._index.find([draft.id for drafts in requests for draft in drafts if draft.id is not None])
        outcomes: list[list[Placed] | LedgerError] = []
        for drafts in requests:
            before = len(batch.fresh)
            try:
                signed = self._authority.check(drafts)
                outcomes.append(
                    [self._place(draft, now, there, batch, key_events, draft.id in signed) for draft in drafts]
                )
            except LedgerError as error:
                outcomes.append(error)
                batch.cut(before)
        return outcomes

    def _signing_keys(self) -> list[VerifierKey]:
        return [key for key in self._keys if key.name == self._signer.name and key.until is None]

    def _event_named(self, id: str) -> Event | None:
        """The event with this id, in the log or placed behind its end."""
        for batch in (self._open, self._syncing):
            if batch is not None and (placed := batch.known.get(id)) is not None:
                return Event.decode(placed.entry)
        index = self._index.find([id]).get(id)
        return None if index is None else Event.decode(self._placed(id, index).entry)

    def _place(
        self, draft: Draft, now: str, there: Mapping[str, int], batch: Batch, key_events: bool, is_signed: bool
    ) -> Placed:
        if draft.type in KEPT_TYPES and not key_events:
            raise _key_event(draft)
        check_id(draft)
        self._types.check(draft.type, draft.body)
        id, stream = draft.id, draft.stream
        assert id is not None  # a draft draws one when it is made
        syncing = self._syncing
        placed = batch.known.get(id)
        if placed is None and syncing is not None:
            placed = syncing.known.get(id)
        if placed is None and id in there:
            placed = self._placed(id, there[id])
        if placed is not None:
            if not draft.matches(Event.decode(placed.entry), any_actor=is_signed):
                raise _id_taken(draft, placed)
            return placed
        seq = batch.lengths.get(stream)
        if seq is None and syncing is not None:
            seq = syncing.lengths.get(stream)
        if seq is None:
            seq = self._index.length(stream)
        entry = draft.entry(seq, now, self._actor)
        _check_seq(draft, seq)
        self._check_time(draft)
        placed = Placed(id, stream, seq, batch.end, entry, leaf_hash(entry))
        batch.add(placed)
        batch.time = max(batch.time, now if draft.time is None else draft.time)
        return placed

    def _placed(self, id: str, index: int) -> Placed:
        """What is in the log at this index."""
        ((_, entry),) = self._view.entries(index, index + 1)
        event = Event.decode(entry)
        return Placed(id, event.stream, event.seq, index, entry, leaf_hash(entry))

    def _sync(self, batch: Batch) -> None:
        """Commit the open batch. The caller holds the mutex once; others may place events while the disk is busy."""
        self._open = None
        fresh = batch.fresh
        if not fresh:
            batch.settle(self._checkpoint.size)
            return
        entries = tuple([placed.entry for placed in fresh])
        leaves = [placed.leaf for placed in fresh]
        frontier = self._frontier.copy()
        frontier.extend(leaves)
        old_size = self._checkpoint.size
        checkpoint = LogCheckpoint(self._checkpoint.origin, frontier.size, frontier.root())
        note = checkpoint.sign([self._signer, *self._signer.companions]).encode()
        record = Record(old_size, note, entries)
        self._syncing = batch
        self._mutex.release()
        try:
            self._journal.write(record)
        except BaseException as error:
            self._mutex.acquire()
            self._syncing = None
            self._stale = True  # what became of the record is unknown until the log is loaded anew
            batch.fail(error)
            self._abandon(_placed_behind(error))
            self._idle.notify_all()
            raise
        self._mutex.acquire()
        self._syncing = None
        self._frontier, self._checkpoint = frontier, checkpoint
        self._view.extend(checkpoint, note, entries, leaves)
        try:
            ids = [placed.id for placed in fresh]
            self._index.add(ids, batch.lengths, batch.time, old_size, checkpoint.size, checkpoint.root)
        except sqlite3.Error as error:
            # The events are committed all the same. The log loads itself anew, index included, before it goes on.
            _LOG.warning("the index of the log could not follow: %s", error)
            self._stale = True
            self._abandon(_placed_behind(error))
        batch.settle(checkpoint.size)
        self._idle.notify_all()
        self._publish_in_time()

    def _abandon(self, error: BaseException) -> None:
        """Nothing of the open batch is committed: what it was placed behind is not as it was."""
        batch, self._open = self._open, None
        if batch is not None:
            batch.fail(error)

    def _check_open(self) -> None:
        if self._closed:
            raise Refused("the log is closed", cure="open it again to append")

    def _begin(self) -> None:
        """Wait for the sync that is under way, and load the log if what became of the last one is unknown."""
        if self._syncing is not None:
            self._waiting += 1  # no other sync begins before it was this one's turn
            try:
                self._idle.wait_for(lambda: self._syncing is None)
            finally:
                self._waiting -= 1
                self._idle.notify_all()
        self._check_open()
        if self._stale:
            self._load()

    def _publish_in_time(self) -> None:
        due = time.monotonic() - self._published_at >= self._publish_seconds and not (
            self._patient and self._is_little()
        )
        if not self._stale and (due or self._journal.used >= self._journal_bytes):
            try:
                self._publish()
            except LedgerError as error:
                # What was asked for is done: the events are durable. Publishing is tried again with every append.
                if self._journal.used >= _JOURNAL_HARD_LIMIT * self._journal_bytes:
                    raise
                _LOG.warning("published later: %s", error)

    def _publish(self) -> None:
        view = self._view
        if view.pending:
            files, done = _files(view)
            self._storage.ensure_many(files)
            self._storage.replace(layout.checkpoint_path(), view.note)
            self._published_at = time.monotonic()
            self._prune(done)
            self._view = LogView.load(self._storage, self._keys, origin=self._signer.name)
            # On a bucket another writer may have gone on meanwhile: then nothing is placed before it is all loaded.
            if self._view.checkpoint != self._checkpoint:
                self._stale = True
                self._abandon(_placed_behind(None))
        self._journal.rewind()

    def _prune(self, done: Sequence[Tile]) -> None:
        """Partial tiles and bundles may go once the complete one is there."""
        try:
            for tile in done:
                tiles, bundles = layout.partial_prefix(tile)
                names = list(self._storage.list(tiles))
                if tile.level == 0:
                    names += self._storage.list(bundles)
                if names:
                    self._storage.remove(*names)
        except LedgerError as error:
            _LOG.warning("superseded partial tiles stay: %s", error)

    def _load(self) -> None:
        before = self._checkpoint
        try:
            self._view = LogView.load(self._storage, self._keys, origin=self._signer.name)
            self._settle()
        except BaseException as error:
            self._abandon(_placed_behind(error))
            raise
        if self._checkpoint != before:  # what was placed meanwhile stands behind another end
            self._abandon(_placed_behind(None))

    def _settle(self) -> None:
        """Start from what was loaded: publish what is committed, and let the index follow."""
        self._stale = True
        self._published_at = time.monotonic()
        self._checkpoint = self._view.checkpoint
        if self._patient and self._view.pending and self._is_little():
            self._journal.resume(self._view.records)
        else:
            self._publish()
            while self._view.pending:
                self._checkpoint = self._view.checkpoint
                self._publish()
        self._checkpoint = self._view.checkpoint
        self._frontier = self._view.edge.frontier()
        self._frontier.extend(self._view.pending_leaves)
        self._index.follow(self._view)
        self._stale = False

    def _release(self) -> None:
        self._closed = True
        self._abandon(Refused("the log is closed", cure="open it again to append"))
        self._resources.close()

    def _time(self, batch: Batch) -> str:
        now, last = self._clock(), self._index.last_time()
        if self._syncing is not None:
            last = max(last, self._syncing.time)
        last = max(last, batch.time)
        shown = format_time(now)
        if shown >= last:  # times of this form sort as their text does
            return shown
        if parse_time(last) - now > _CLOCK_TOLERANCE:
            raise Refused(
                "the clock went backwards",
                where="time of the next event",
                expected=f"not long before {last}, the latest in the log",
                found=shown,
                cure="set this machine's clock",
            )
        return last

    def _check_time(self, draft: Draft) -> None:
        if draft.time is not None and parse_time(draft.time) - self._clock() > _CLOCK_TOLERANCE:
            raise Refused(
                "an event lies in the future",
                where=f"{draft.type} {draft.id}",
                expected=f"a time not after {format_time(self._clock())}",
                found=draft.time,
                cure="set the clock of the machine that wrote it",
            )


def _files(view: LogView) -> tuple[list[tuple[str, bytes]], list[Tile]]:
    """What publishing ``view`` must write, and the tiles that become complete by it."""
    start, end = view.published.size, view.checkpoint.size
    edge, complete = view.edge.copy(), []
    for leaf in view.pending_leaves:
        complete += edge.append(leaf)
    files = [(layout.tile_path(tile), data) for tile, data in (*complete, *edge.partial())]
    first = start - start % TILE_WIDTH
    entries = [entry for _, entry in view.entries(first, end)]
    for at in range(first, end, TILE_WIDTH):
        tile = Tile(0, at // TILE_WIDTH, min(TILE_WIDTH, end - at))
        files.append((layout.entries_path(tile), pack_entries(entries[at - first : at - first + TILE_WIDTH])))
    return files, [tile for tile, _ in complete]


def _check_signs(signer: Signer, keys: Sequence[VerifierKey]) -> None:
    for key in keys:
        if key == signer.verifier and key.until is not None:
            raise Refused(
                "the signing key is retired",
                where=f"{key.name}+{key.key_id:08x}",
                expected="the key that took over",
                found=f"a key that counts up to size {key.until}",
                cure="name the newer key; signatures of this one are refused by every reader",
            )


def _placed_behind(error: BaseException | None) -> StorageFailed:
    return StorageFailed(
        "what these events were placed behind was not committed",
        found=str(error or "another writer went on"),
        cure="hand the same events in again",
    )


def _key_event(draft: Draft) -> Refused:
    return Refused(
        "events of this type are not appended by hand",
        where=draft.type,
        expected="a change of keys by the holder of the signing key",
        cure="use `ledger key rotate` or `ledger key retire`",
    )


def _id_taken(draft: Draft, placed: Placed) -> Conflict:
    return Conflict(
        "the id is taken by another event",
        where=draft.id or "",
        expected=f"the content of entry {placed.index} ({Event.decode(placed.entry).type} in {placed.stream})",
        found="other content",
        cure="draw a new id for a new event",
    )


def _check_seq(draft: Draft, seq: int) -> None:
    if draft.expect_seq is not None and draft.expect_seq != seq:
        raise OutOfSequence(
            "the stream is not where the writer thought",
            where=draft.stream,
            expected=f"seq {draft.expect_seq}",
            found=f"{seq} is next",
            cure="read the stream again and decide anew",
        )


def _command() -> str:
    return " ".join(sys.argv)[:200] or "python"
