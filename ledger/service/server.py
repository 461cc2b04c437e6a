"""One writer, many clients: a service on the loopback interface that appends for other processes.

Every connection has a thread that reads requests; one thread places them in the log, and one commits. What is handed
in while a commit is being synced is placed meanwhile and goes into the next, and so the batches grow with the load by
themselves: group commit, by count and by time. A client is answered when its events are durable under a signed
checkpoint, and not before.

Who may connect is decided by a token, which lies with the port in a file that only this user can read. Before it is
given, a connection has a seat in the lobby, a deadline and 1 KiB; afterwards all clients share the room for requests
that are not committed yet.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import queue
import socket
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future
from contextlib import AbstractContextManager, closing, suppress
from pathlib import Path
from typing import Protocol, runtime_checkable

from ledger.errors import LedgerError, Refused, StorageFailed, Unavailable, Unverified
from ledger.format.checkpoint import LogCheckpoint
from ledger.format.event import Draft
from ledger.log.batch import Receipt
from ledger.service import wire
from ledger.service.lobby import Door, Lobby, Room

_LOG = logging.getLogger(__name__)
_AHEAD = 64
"""How many requests of one connection may wait for their commit before no more are read from it."""
_STRANGERS = 64
"""How many connections without the token are kept."""
_CLIENTS = 512
_GREETING_SECONDS = 5.0
_PATIENCE_SECONDS = 60.0
"""How long a client may stop within a frame, or leave an answer untaken."""
_ROOM = 256 << 20
"""Bytes of requests, of all clients together, that are read and not answered."""

_Request = tuple[Sequence[Draft], "Future[list[Receipt]]"]
_Waiting = tuple["Future[list[Receipt]] | bytes", int]
"""What a client will be answered, and the bytes of its request."""


class Appender(Protocol):
    """What group commit needs of a ``Log``, or of what leads to one."""

    @property
    def checkpoint(self) -> LogCheckpoint: ...

    def append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]: ...


class Pending(Protocol):
    """Requests that have their place in the batch which is committed next."""

    @property
    def waiting(self) -> int: ...

    def outcomes(self) -> list[list[Receipt] | LedgerError]: ...


@runtime_checkable
class Placer(Protocol):
    """An appender that places requests while those before them are being synced, as ``Log`` does."""

    def enter(self, requests: Sequence[Sequence[Draft]]) -> Pending: ...


class _Done:
    """The outcomes of an appender that cannot place ahead."""

    waiting = 0

    def __init__(self, outcomes: list[list[Receipt] | LedgerError]) -> None:
        self._outcomes = outcomes

    def outcomes(self) -> list[list[Receipt] | LedgerError]:
        return self._outcomes


class GroupCommit:
    """Collects requests and appends them to a log: one thread gives them their places, in the order in which they came,
    while another waits for the disk and answers. Closing finishes what was handed in."""

    def __init__(self, log: Appender, *, max_events: int = 4000, max_seconds: float = 0.0) -> None:
        """A commit takes what is waiting, up to about ``max_events``, after waiting ``max_seconds`` for more."""
        self._log = log
        self._max_events = max_events
        self._max_seconds = max_seconds
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._entered: queue.SimpleQueue[tuple[Sequence[_Request], Pending] | None] = queue.SimpleQueue()
        self._threads = [
            threading.Thread(target=run, name=name, daemon=True)
            for name, run in (("place", self._place_all), ("commit", self._finish_all))
        ]
        for thread in self._threads:
            thread.start()

    def submit(self, drafts: Sequence[Draft]) -> Future[list[Receipt]]:
        """One atomic batch; its receipts when they are durable, or the error that ``Log.append`` would raise."""
        future: Future[list[Receipt]] = Future()
        self._queue.put((drafts, future))
        return future

    def close(self) -> None:
        """Finish what was handed in, then end the threads."""
        self._queue.put(None)
        for thread in self._threads:
            thread.join()

    def _place_all(self) -> None:
        closing = False
        try:
            while not closing:
                requests, closing = self._take()
                if requests:
                    self._place(requests)
        finally:
            self._entered.put(None)

    def _place(self, requests: Sequence[_Request]) -> None:
        try:
            pending = self._enter([drafts for drafts, _ in requests])
        except Exception as error:
            _settle_all(requests, [_as_ledger_error(error)] * len(requests))
            return
        self._entered.put((requests, pending))
        if pending.waiting >= self._max_events:
            with suppress(LedgerError):  # the other thread tells it to those who asked
                pending.outcomes()

    def _take(self) -> tuple[list[_Request], bool]:
        """What is waiting, at least one request unless this is the end, and whether it is."""
        first = self._queue.get()
        if first is None:
            return [], True
        requests, events = [first], len(first[0])
        with suppress(queue.Empty):
            while events < self._max_events:
                following = (
                    self._queue.get(timeout=self._max_seconds) if self._max_seconds else self._queue.get_nowait()
                )
                if following is None:
                    return requests, True
                requests.append(following)
                events += len(following[0])
        return requests, False

    def _enter(self, requests: Sequence[Sequence[Draft]]) -> Pending:
        if isinstance(self._log, Placer):
            return self._log.enter(requests)
        return _Done(self._log.append_each(requests))

    def _finish_all(self) -> None:
        while (item := self._entered.get()) is not None:
            requests, pending = item
            try:
                outcomes = pending.outcomes()
            except Exception as error:
                outcomes = [_as_ledger_error(error)] * len(requests)
            _settle_all(requests, outcomes)


def _as_ledger_error(error: Exception) -> LedgerError:
    if isinstance(error, LedgerError):
        return error
    _LOG.error("a commit failed in an unforeseen way", exc_info=error)
    return StorageFailed("the commit failed", found=repr(error), cure="hand the events in again")


def _settle_all(requests: Sequence[_Request], outcomes: Sequence[list[Receipt] | LedgerError]) -> None:
    for (_, future), outcome in zip(requests, outcomes, strict=True):
        if isinstance(outcome, LedgerError):
            future.set_exception(outcome)
        else:
            future.set_result(outcome)


class LogService(AbstractContextManager["LogService"]):
    """Serves an open log on the loopback interface until closed. Use it as a context manager."""

    def __init__(
        self,
        log: Appender,
        endpoint: Path,
        *,
        port: int = 0,
        max_events: int = 4000,
        max_seconds: float = 0.0,
        acts: Mapping[str, Callable[[], object]] | None = None,
        strangers: int = _STRANGERS,
        clients: int = _CLIENTS,
        greeting_seconds: float = _GREETING_SECONDS,
        patience_seconds: float = _PATIENCE_SECONDS,
    ) -> None:
        """Listen, and write port and token to ``endpoint`` with mode 0600.

        At most ``strangers`` connections wait for their token, each for ``greeting_seconds``, and at most ``clients`` are
        served. A client may stop for ``patience_seconds`` within a frame. ``acts`` are what clients may have done beside
        appending (``LogClient.do``), by name; each gives JSON.
        """
        self._acts = dict(acts or {})
        self._origin = log.checkpoint.origin
        self._token = os.urandom(32).hex()
        self._endpoint = endpoint
        listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port: int = listener.getsockname()[1]
        self.committer = self._committer = GroupCommit(log, max_events=max_events, max_seconds=max_seconds)
        self._lobby = Lobby(seats=strangers, inside=clients)
        self._room = Room(_ROOM)
        self._greeting_seconds = greeting_seconds
        self._patience_seconds = patience_seconds
        _write_private(
            endpoint, {"port": self.port, "token": self._token, "pid": os.getpid(), "host": socket.gethostname()}
        )
        self._door = Door(listener, self._lobby, self._serve)
        self._door.open()

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Take no more requests, finish those that have come, answer them, and go."""
        with suppress(FileNotFoundError):
            self._endpoint.unlink()
        self._door.close()
        self._committer.close()

    def _serve(self, connection: socket.socket) -> None:
        with closing(wire.FrameSocket(connection)) as frames:
            self._greet(frames, connection)
            self._answer(frames)

    def _greet(self, frames: wire.FrameSocket, connection: socket.socket) -> None:
        frame = frames.greeting(self._greeting_seconds)
        try:
            given = wire.decode_text(frame or b"", "token")
        except LedgerError:
            given = ""
        if not hmac.compare_digest(given.encode(errors="replace"), self._token.encode()):
            error: LedgerError = Unverified("the token is not this service's", cure=f"read it from {self._endpoint}")
        elif not self._lobby.admit(connection):
            error = Unavailable("the service has as many clients as it takes", cure="close some, or try again later")
        else:
            frames.be_patient(self._patience_seconds)
            frames.send(wire.encode_member("origin", self._origin))
            return
        frames.send(wire.encode_error(error))
        raise error

    def _answer(self, frames: wire.FrameSocket) -> None:
        """Requests are read ahead by this thread; answers go out in order from another."""
        waiting: queue.Queue[_Waiting | None] = queue.Queue(_AHEAD)
        sender = threading.Thread(target=_send_answers, args=(frames, waiting, self._room), name="answers", daemon=True)
        sender.start()
        try:
            while (size := frames.next_size()) is not None:
                self._room.take(size)
                try:
                    answer = self._frame_answer(frames.body(size))
                except BaseException:
                    self._room.free(size)
                    raise
                waiting.put((answer, size))
        finally:
            waiting.put(None)
            sender.join()

    def _frame_answer(self, frame: bytes) -> Future[list[Receipt]] | bytes:
        try:
            act = wire.decode_act(frame)
            return self._committer.submit(wire.decode_drafts(frame)) if act is None else self._do(act)
        except LedgerError as error:
            return wire.encode_error(error)

    def _do(self, act: str) -> bytes:
        if act not in self._acts:
            raise Refused(
                "the service does not know what is asked of it",
                where=act,
                expected=", ".join(sorted(self._acts)) or "appends alone",
            )
        return wire.encode_done(self._acts[act]())


def _send_answers(frames: wire.FrameSocket, waiting: queue.Queue[_Waiting | None], room: Room) -> None:
    broken = False
    while (found := waiting.get()) is not None:
        outcome, size = found
        try:
            answer = outcome if isinstance(outcome, bytes) else wire.encode_receipts(outcome.result())
        except LedgerError as error:
            answer = wire.encode_error(error)
        room.free(size)
        if not broken:
            try:
                frames.send(answer)
            except OSError:
                # The client is gone or takes nothing, but what it handed in is committed all the same.
                broken = True
                frames.hang_up()


def _write_private(path: Path, content: dict[str, object]) -> None:
    temporary = path.with_name(f"{path.name}.{os.getpid()}")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        descriptor = os.open(temporary, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
        with os.fdopen(descriptor, "w") as stream:
            os.fchmod(stream.fileno(), 0o600)
            json.dump(content, stream)
        temporary.replace(path)
    except OSError as error:
        raise StorageFailed("could not write the endpoint of the service", where=str(path), found=str(error)) from error
