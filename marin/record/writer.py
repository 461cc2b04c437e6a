"""How events reach the one writer of a root's log: through the append service while one runs, else by the log itself.

Several processes append at once through `marin ledger serve`. Anyone who has events looks for its endpoint first, and
opens the log only where there is none; a service that starts or ends meanwhile is noticed, for drafts carry their
ids and handing them in twice makes one event.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ledger import AUTHORED, Draft, LedgerError, Locked, Log, Receipt, Signer, Unavailable, sign_drafts
from marin.kinds.known import kind_of

if TYPE_CHECKING:
    from ledger import LogClient

LOCK_SECONDS = 60.0
"""How long a record waits for another writer: batches take milliseconds, so this is somebody being stuck."""
WRITERS = "marin.writers"
"""The entry points of those who append to a log that another process has open."""
_TURN_SECONDS = 1.0
"""How long the lock is waited for before the service is looked for again."""


class RootWriter:
    """Appends to one log, however that can be done right now. ``close`` it when done."""

    def __init__(
        self,
        origin: str,
        endpoint: Path,
        open_log: Callable[[float], Log],
        author: Callable[[], Signer | None] = lambda: None,
    ) -> None:
        """``open_log``, told how long to wait, is asked only where the log must be opened here: a client of the service
        needs no key of the log. ``author``: whose key signs what is appended, if somebody's does."""
        self._origin, self._endpoint, self._open_log, self._author = origin, endpoint, open_log, author
        self._client: LogClient | None = None

    def append(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Append one atomic batch, and return when it is durable.

        Raises:
            Locked: another writer, which is no service, has held the log for a minute.
        """
        (outcome,) = self.append_each([drafts])
        if isinstance(outcome, LedgerError):
            raise outcome
        return outcome

    def append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]:
        """Several atomic batches in one commit, each with its own outcome; raises as :meth:`append` does."""
        author = self._author()
        if author is None:
            return self._append_each(requests)
        signed = [sign_drafts(self._origin, author, drafts) for drafts in requests]
        return [
            outcome
            if isinstance(outcome, LedgerError)
            else [receipt for draft, receipt in zip(drafts, outcome, strict=True) if draft.type != AUTHORED]
            for drafts, outcome in zip(signed, self._append_each(signed), strict=True)
        ]

    def _append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]:
        deadline = time.monotonic() + LOCK_SECONDS
        while True:
            client = self._connect()
            if client is not None:
                try:
                    return client.append_each(requests)
                except Unavailable:
                    self.close()  # it ended: what it had committed is found by the ids
            try:
                with self._open_log(_TURN_SECONDS) as log:
                    outcomes = log.append_each(requests)
                    if all(
                        _is_underway(draft.type) for drafts in requests for draft in drafts if draft.type != AUTHORED
                    ):
                        log.leave()
                    return outcomes
            except Locked:
                if time.monotonic() > deadline:
                    raise

    def close(self) -> None:
        """Leave the service."""
        if self._client is not None:
            self._client.close()
            self._client = None

    def _connect(self) -> LogClient | None:
        if self._client is None:
            self._client = connect(self._endpoint, self._origin)
        return self._client


def _is_underway(type: str) -> bool:
    """Whether events of this type wait in the journal for the end of the work that they are of; readers see them at once."""
    kind = kind_of(type)
    return kind is not None and kind.underway


def connect(endpoint: Path, origin: str) -> LogClient | None:
    """A connection to the service of this endpoint, which must be of this log; None where none is running.

    Raises:
        Refused: the append service serves another log.
        NotInstalled: a service runs, and its client is not installed.
    """
    if not endpoint.exists():
        return None
    from marin.provenance.plugins import named

    client: LogClient | None = named(WRITERS, "service", str(endpoint))(endpoint, origin)
    return client
