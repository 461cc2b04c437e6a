"""The client side of the append service: ask, or spool to disk first and send until acknowledged.

``LogClient`` appends over one connection and tells what the service said. ``Spool`` is for workers that must not
lose anything and cannot wait: ``put`` makes a batch durable in a folder of its own, ``drain`` sends what lies
there in order, and again after failures and restarts, until the service has acknowledged it. Drafts carry
their ids, so that sending one twice makes one event.
"""

from __future__ import annotations

import json
import os
import socket
import time
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager, suppress
from functools import partial
from pathlib import Path
from typing import Any, Protocol

from ledger.errors import LedgerError, Malformed, Refused, StorageFailed, Unavailable
from ledger.format.event import Draft
from ledger.log.batch import Receipt
from ledger.service import wire
from ledger.storage.posix import PosixStorage

_TIMEOUT_SECONDS = 60.0
_PAUSE_SECONDS = 0.05
_LONGEST_PAUSE_SECONDS = 2.0


class LogClient(AbstractContextManager["LogClient"]):
    """A connection to the service of which ``endpoint`` tells port and token."""

    def __init__(self, endpoint: Path) -> None:
        port, token = _read_endpoint(endpoint)
        try:
            self._frames = wire.FrameSocket(socket.create_connection(("127.0.0.1", port), timeout=_TIMEOUT_SECONDS))
        except OSError as error:
            raise _gone(endpoint, error) from error
        try:
            self._frames.send(wire.encode_member("token", token))
            self.origin = wire.decode_text(self._receive(), "origin")
        except OSError as error:
            self.close()
            raise _gone(endpoint, error) from error
        except LedgerError:
            self.close()
            raise

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the connection; what was acknowledged stays."""
        with suppress(OSError):
            self._frames.close()

    def append(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """As ``Log.append``. ``Unavailable`` when the connection broke: the outcome is unknown, hand the drafts in
        again."""
        (outcome,) = self.append_each([drafts])
        if isinstance(outcome, LedgerError):
            raise outcome
        return outcome

    def append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]:
        """Several atomic batches at once, each with its own outcome."""
        with wire.whole_exchange(self.close, partial(_gone, None)):
            self._frames.send(*(wire.encode_drafts(drafts) for drafts in requests))
            return [wire.decode_outcome(self._receive()) for _ in requests]

    def do(self, act: str) -> Any:
        """Have the service do what it has this name for, and say what came of it, as JSON. ``Refused`` if it has none."""
        with wire.whole_exchange(self.close, partial(_gone, None)):
            self._frames.send(wire.encode_member("do", act))
            return wire.decode_done(self._receive())

    def _receive(self) -> bytes:
        try:
            frame = self._frames.receive()
        except Malformed as error:
            raise _gone(None, error) from error
        if frame is None:
            raise _gone(None, None)
        return frame


def connect(endpoint: Path, origin: str) -> LogClient | None:
    """A connection to the service of this endpoint, which must be of this log; None where it no longer runs.

    Raises:
        Refused: the append service serves another log.
    """
    try:
        client = LogClient(endpoint)
    except Unavailable:
        return None  # left behind by a service that was killed
    if client.origin != origin:
        client.close()
        raise Refused(
            "the append service serves another log",
            where=str(endpoint),
            expected=origin,
            found=client.origin,
            cure="stop that service, or name the right root",
        )
    return client


class Connection(Protocol):
    """A way to anyone who appends: ``LogClient`` is one, an actor of a cluster another."""

    def append(self, drafts: Sequence[Draft]) -> list[Receipt]:
        """As ``LogClient.append``: ``Unavailable`` when the outcome is unknown."""

    def close(self) -> None:
        """Give up what is held."""


class Spool:
    """A folder of batches that are not yet acknowledged. For one process at a time, which its lock sees to."""

    def __init__(self, folder: Path, connect: Callable[[], Connection]) -> None:
        self._storage = PosixStorage(folder)
        self._connect = connect
        self._client: Connection | None = None
        names = list(self._storage.list("spool/"))
        self._next = int(names[-1].rpartition("/")[2]) + 1 if names else 0

    def put(self, drafts: Sequence[Draft]) -> None:
        """Make the batch durable here. It will be sent by ``drain``."""
        self._storage.create(f"spool/{self._next:020d}", wire.encode_drafts(drafts))
        self._next += 1

    def __len__(self) -> int:
        return sum(1 for _ in self._storage.list("spool/"))

    def drain(self, *, seconds: float = 60.0) -> list[Receipt]:
        """Send everything in order until it is acknowledged, and return the receipts.

        Connections that break are made again until ``seconds`` have passed; then ``Unavailable`` is raised, and
        what is left stays. A batch that the log refuses goes to ``refused/``, and its error is raised once the
        others are through.
        """
        deadline, pause = time.monotonic() + seconds, _PAUSE_SECONDS
        receipts: list[Receipt] = []
        refused: LedgerError | None = None
        with self._storage.lock("spool.lock", "draining the spool"):
            for name in list(self._storage.list("spool/")):
                data = self._storage.read(name)
                while True:
                    try:
                        receipts += self._send(wire.decode_drafts(data))
                        break
                    except (Unavailable, StorageFailed):
                        self._disconnect()
                        if time.monotonic() + pause > deadline:
                            raise
                        time.sleep(pause)
                        pause = min(2 * pause, _LONGEST_PAUSE_SECONDS)
                    except LedgerError as error:
                        self._storage.ensure(f"refused/{name.rpartition('/')[2]}", data)
                        refused = refused or error
                        break
                self._storage.remove(name)
        if refused is not None:
            raise refused
        return receipts

    def close(self) -> None:
        """End the connection; what was not acknowledged stays in the folder."""
        self._disconnect()

    def _send(self, drafts: Sequence[Draft]) -> list[Receipt]:
        if self._client is None:
            self._client = self._connect()
        return self._client.append(drafts)

    def _disconnect(self) -> None:
        if self._client is not None:
            self._client.close()
            self._client = None


def _read_endpoint(path: Path) -> tuple[int, str]:
    try:
        with open(path, encoding="utf-8") as stream:
            mode = os.fstat(stream.fileno()).st_mode & 0o777
            content = json.load(stream)
            port, token = int(content["port"]), str(content["token"])
            host = str(content.get("host", socket.gethostname()))
    except FileNotFoundError:
        raise Unavailable(
            "no append service is running", where=str(path), cure="start one with `ledger serve`, or append directly"
        ) from None
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise Malformed("not the endpoint of a service", where=str(path), found=str(error)) from error
    if mode & 0o077:
        raise Refused(
            "others can read the service's token",
            where=str(path),
            expected="mode 0600",
            found=f"{mode:04o}",
            cure="stop the service, remove the file and start it again",
        )
    if host != socket.gethostname():
        raise Unavailable(
            "the append service runs on another machine",
            where=str(path),
            expected=socket.gethostname(),
            found=host,
            cure="append there, or stop that service",
        )
    return port, token


def _gone(endpoint: Path | None, error: Exception | None) -> Unavailable:
    return Unavailable(
        "the append service is gone",
        where=str(endpoint or ""),
        found=str(error or "the connection ended"),
        cure="hand the same drafts in again when it is back: what was committed is not appended twice",
    )
