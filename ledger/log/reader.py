"""Verified reads of a log: what leaves here was found under a root that a trusted key signed.

A reader needs no lock and no key but public ones. It sees the log as of its last ``refresh``, and every answer
in between belongs to that one checkpoint. Committed entries that are not yet published as tiles are read from
the journal.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Sequence

from ledger.errors import LedgerError, Malformed, Refused, Tampered, Unverified
from ledger.format.checkpoint import LogCheckpoint
from ledger.format.event import Event
from ledger.format.layout import LOG
from ledger.format.note import VerifierKey
from ledger.format.tlog import consistency_proof, inclusion_proof, tree_root
from ledger.log.trust import check_signers, follow_keys
from ledger.log.view import LogView
from ledger.storage.port import Storage

_LOG = logging.getLogger(__name__)


class LogReader:
    """Reads the log below ``log/`` of a storage, or elsewhere for a foreign one (``log=""``)."""

    def __init__(
        self, storage: Storage, verifiers: Sequence[VerifierKey], *, log: str = LOG, origin: str | None = None
    ) -> None:
        self._storage = storage
        self._verifiers = tuple(verifiers)
        self._log = log
        self._origin = origin
        self._loaded: LogView | None = None
        self._keys: tuple[VerifierKey, ...] = self._verifiers

    @property
    def _view(self) -> LogView:
        if self._loaded is None:
            self.refresh()
        assert self._loaded is not None  # refresh sets it or raises
        return self._loaded

    def refresh(self) -> LogCheckpoint:
        """Load the newest state of the log, which must continue the one known before."""
        try:
            loaded = self._load()
        except Unverified:  # others may have changed the keys meanwhile
            loaded = self._load()
        if self._loaded is not None:
            _check_continues(self._loaded.checkpoint, loaded)
        self._loaded = loaded
        return loaded.checkpoint

    def _load(self) -> LogView:
        # A foreign log has no keys of its own beside it.
        keys = follow_keys(self._storage, self._verifiers) if self._log == LOG else self._verifiers
        self._keys = tuple(keys)
        return LogView.load(self._storage, keys, log=self._log, origin=self._origin)

    def checkpoint(self) -> LogCheckpoint:
        """The newest log checkpoint; its signature is verified."""
        return self._view.checkpoint

    def note(self) -> bytes:
        """The signed note of that checkpoint, as it was published."""
        return self._view.note

    def signers(
        self, changes: Sequence[tuple[int, Event]] = (), also: Sequence[VerifierKey] = ()
    ) -> tuple[VerifierKey, ...]:
        """The keys that signed the newest checkpoint and count for it, by the events of keys in ``changes`` too.

        ``also``: further keys of this log, whose signatures are required as those of the reader's own keys are.

        Raises:
            Unverified: no key that counts signed, or half of a hybrid key's signatures is missing.
        """
        checkpoint = self.checkpoint()
        return check_signers(checkpoint, self.note(), (*self._keys, *also), changes)

    @property
    def keys(self) -> tuple[VerifierKey, ...]:
        """The keys under which the log is read: those that were given, and what they handed over to."""
        self.checkpoint()
        return self._keys

    def published(self) -> LogCheckpoint:
        """The checkpoint up to which tiles are there, for foreign tools."""
        return self._view.published

    def entry(self, index: int) -> bytes:
        """The bytes of one entry; ``Refused`` where the log has no such index."""
        if not 0 <= index < self.checkpoint().size:
            raise Refused(
                "no such entry",
                where=f"index {index}",
                expected=f"0 to {self.checkpoint().size - 1}" if self.checkpoint().size else "an entry in the log",
                cure="the log has no more entries at this checkpoint",
            )
        ((_, entry),) = self._view.entries(index, index + 1)
        return entry

    def entries(self, start: int = 0, end: int | None = None) -> Iterator[tuple[int, bytes]]:
        """(index, entry) from ``start`` to before ``end``, or to the last one."""
        return self._view.entries(start, end)

    def event(self, index: int) -> Event:
        """The event of one entry."""
        return _decode(index, self.entry(index))

    def events(self, start: int = 0, end: int | None = None, *, lenient: bool = False) -> Iterator[tuple[int, Event]]:
        """(index, event) from ``start`` to before ``end``, or to the last one.

        ``lenient``: an entry that is not an event is named and left out, where it would raise ``Malformed``.
        """
        for index, entry in self.entries(start, end):
            try:
                event = _decode(index, entry)
            except Malformed as error:
                if not lenient:
                    raise
                _LOG.warning("an entry of the log is left out: %s", error)
                continue
            yield index, event

    def hash(self, level: int, index: int) -> bytes:
        """The hash of the complete subtree (level, index): a ``HashReader``."""
        return self._view.hash(level, index)

    def leaf_hash(self, index: int) -> bytes:
        """The RFC 6962 hash of one entry."""
        return self._view.hash(0, index)

    def inclusion_proof(self, index: int, size: int | None = None) -> list[bytes]:
        """That entry ``index`` is in the tree of ``size`` leaves, or of the newest checkpoint."""
        return inclusion_proof(index, self._up_to(size), self._view.hash)

    def consistency_proof(self, old: int, new: int | None = None) -> list[bytes]:
        """That the tree of ``new`` leaves only appended to that of ``old``."""
        return consistency_proof(old, self._up_to(new), self._view.hash)

    def root(self, size: int) -> bytes:
        """The root that the log had at this size."""
        return tree_root(self._up_to(size), self._view.hash)

    def check_continues(self, older: LogCheckpoint) -> None:
        """Raise ``Tampered`` unless this log is that of ``older``, and has only been appended to since."""
        _check_continues(older, self._view)

    def _up_to(self, size: int | None) -> int:
        newest = self.checkpoint().size
        if size is None:
            return newest
        if not 0 <= size <= newest:
            raise Refused("no tree of that size", where=f"size {size}", expected=f"0 to {newest}")
        return size


def _check_continues(older: LogCheckpoint, view: LogView) -> None:
    newer = view.checkpoint
    if newer.origin != older.origin:
        raise Tampered("another log", expected=older.origin, found=newer.origin)
    if newer.size < older.size:
        raise _fork("the log was rolled back", f"at least {older.size} entries", f"{newer.size}")
    root = tree_root(older.size, view.hash)
    if root != older.root:
        raise _fork(
            "the log has another history", f"root {older.root.hex()} at size {older.size}", f"root {root.hex()}"
        )


def _fork(what: str, expected: str, found: str) -> LedgerError:
    return Tampered(
        what, expected=expected, found=found, cure="keep both checkpoints: two signed roots that conflict are evidence"
    )


def _decode(index: int, entry: bytes) -> Event:
    try:
        return Event.decode(entry)
    except Malformed as error:
        raise Malformed(
            error.what,
            where=f"entry {index}" + (f", {error.where}" if error.where else ""),
            expected=error.expected,
            found=error.found,
        ) from error
