"""How events reach the one writer of a root's log: through the append service while one runs, else by the log itself.

Several processes append at once through `marin ledger serve`. Anyone who has events looks for its endpoint first, and
opens the log only where there is none; a service that starts or ends meanwhile is noticed, for drafts carry their
ids and handing them in twice makes one event.
"""

from __future__ import annotations

import logging
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from ledger import AUTHORED, Draft, LedgerError, Locked, Log, Receipt, Signer, Unavailable, sign_drafts
from marin.kinds.known import kind_of

if TYPE_CHECKING:
    from ledger import LogClient, RemoteClient

log = logging.getLogger(__name__)

FAR = "ledger://"
"""How the addresses of roots begin that lie on another machine and are served there."""
AWAY_SECONDS = 600.0
"""How long a service on another machine is waited for: as long as for its files (:mod:`ledger.service.remote_client`)."""
_PAUSE_SECONDS, _LONGEST_PAUSE_SECONDS = 0.1, 10.0
LOCK_SECONDS = 60.0
"""How long a record waits for another writer: batches take milliseconds, so this is a writer being stuck."""
WRITERS = "marin.writers"
"""The entry points of those who append to a log that another process has open."""
_TURN_SECONDS = 1.0
"""How long the lock is waited for before the service is looked for again."""


class Writer(ABC):
    """Appends to one log, in the name of its ``author`` where there is one. ``close`` it when done."""

    def __init__(self, origin: str, author: Callable[[], Signer | None]) -> None:
        self._origin, self._author = origin, author
        self._client: LogClient | RemoteClient | None = None

    def append(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """Append one atomic batch, and return when it is durable.

        Raises:
            Locked: another writer, which is not a service, has held the log for a minute.
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

    def close(self) -> None:
        """Leave the service."""
        if self._client is not None:
            self._client.close()
            self._client = None

    @abstractmethod
    def _append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]:
        """As :meth:`append_each`, of what is signed already."""


class RootWriter(Writer):
    """Appends to a log on this machine, however that can be done right now."""

    def __init__(
        self,
        origin: str,
        endpoint: Path,
        open_log: Callable[[float], Log],
        author: Callable[[], Signer | None] = lambda: None,
    ) -> None:
        """``open_log``, told how long to wait, is asked only where the log must be opened here: a client of the service
        needs no key of the log."""
        super().__init__(origin, author)
        self._endpoint, self._open_log = endpoint, open_log
        self._client = None

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

    def _connect(self) -> LogClient | RemoteClient | None:
        if self._client is None:
            self._client = connect(self._endpoint, self._origin)
        return self._client


class FarWriter(Writer):
    """Appends to a log on another machine, through the service there. One that is away is waited for: a batch that was handed
    in twice makes one event, so nothing is lost and nothing is there twice."""

    def __init__(
        self, location: str, origin: str, author: Callable[[], Signer | None], *, away_seconds: float = AWAY_SECONDS
    ) -> None:
        super().__init__(origin, author)
        self._location, self._away_seconds = location, away_seconds
        self._client = None

    def _append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]:
        deadline, pause = time.monotonic() + self._away_seconds, _PAUSE_SECONDS
        while True:
            try:
                if self._client is None:
                    self._client = connect_far(self._location)
                return self._client.append_each(requests)
            except Unavailable as error:
                self.close()
                if time.monotonic() + pause > deadline:
                    raise
                log.warning("%s; the next try in %.1f s", error, pause)
                time.sleep(pause)
                pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)


def connect_far(location: str) -> RemoteClient:
    """A connection to the service of the root at ``ledger://HOST:PORT``.

    Raises:
        Unavailable: it cannot be reached.
        Unverified: it does not know this user's key, or has another one.
    """
    from marin.provenance.plugins import load_plugin

    client: RemoteClient = load_plugin(WRITERS, "remote", location)(location)
    return client


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
    from marin.provenance.plugins import load_plugin

    client: LogClient | None = load_plugin(WRITERS, "service", str(endpoint))(endpoint, origin)
    return client
