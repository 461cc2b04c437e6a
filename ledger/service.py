"""One writer, many clients: a service on the loopback interface that appends for other processes.

Every connection has a thread that reads requests; one thread commits. It takes whatever has been handed in
while the commit before was being synced, and so the batches grow with the load by themselves: group commit,
by count and by time. A client is answered when its events are durable under a signed checkpoint, and not
before.

Who may connect is decided by a token, which lies with the port in a file that only this user can read.
"""

from __future__ import annotations

import hmac
import json
import logging
import os
import queue
import socket
import threading
from collections.abc import Sequence
from concurrent.futures import Future
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Protocol

from ledger.checkpoint import LogCheckpoint
from ledger.errors import LedgerError, Malformed, StorageFailed, Unverified
from ledger.event import Draft
from ledger.log import Receipt
from ledger.wire import FrameSocket, decode_drafts, decode_text, encode_error, encode_member, encode_receipts

_LOG = logging.getLogger(__name__)
_AHEAD = 64
"""How many requests of one connection may wait for their commit before no more are read from it."""

_Request = tuple[Sequence[Draft], "Future[list[Receipt]]"]


class Appender(Protocol):
    """What the service needs of a `Log`."""

    @property
    def checkpoint(self) -> LogCheckpoint: ...

    def append_each(self, requests: Sequence[Sequence[Draft]]) -> list[list[Receipt] | LedgerError]: ...


class GroupCommit:
    """Collects requests and appends them to an open log in one thread. Closing finishes what was handed in."""

    def __init__(self, log: Appender, *, max_events: int = 4000, max_seconds: float = 0.0) -> None:
        """A commit takes what is waiting, up to about `max_events`, after waiting `max_seconds` for more."""
        self._log = log
        self._max_events = max_events
        self._max_seconds = max_seconds
        self._queue: queue.SimpleQueue[_Request | None] = queue.SimpleQueue()
        self._thread = threading.Thread(target=self._run, name="group-commit", daemon=True)
        self._thread.start()

    def submit(self, drafts: Sequence[Draft]) -> Future[list[Receipt]]:
        """One atomic batch; its receipts when they are durable, or the error that `Log.append` would raise."""
        future: Future[list[Receipt]] = Future()
        self._queue.put((drafts, future))
        return future

    def close(self) -> None:
        self._queue.put(None)
        self._thread.join()

    def _run(self) -> None:
        closing = False
        while not closing:
            requests: list[_Request] = []
            first = self._queue.get()
            if first is None:
                return
            requests.append(first)
            events = len(first[0])
            with suppress(queue.Empty):
                while events < self._max_events:
                    following = (
                        self._queue.get(timeout=self._max_seconds)
                        if self._max_seconds
                        else self._queue.get_nowait()
                    )
                    if following is None:
                        closing = True
                        break
                    requests.append(following)
                    events += len(following[0])
            self._commit(requests)

    def _commit(self, requests: Sequence[_Request]) -> None:
        try:
            outcomes: list[list[Receipt] | LedgerError] = self._log.append_each(
                [drafts for drafts, _ in requests]
            )
        except LedgerError as error:
            outcomes = [error] * len(requests)
        except Exception as error:
            _LOG.exception("a commit failed in an unforeseen way")
            outcomes = [
                StorageFailed("the commit failed", found=repr(error), cure="hand the events in again")
            ] * len(requests)
        for (_, future), outcome in zip(requests, outcomes, strict=True):
            if isinstance(outcome, LedgerError):
                future.set_exception(outcome)
            else:
                future.set_result(outcome)


class LogService:
    """Serves an open log on the loopback interface until closed. Use it as a context manager."""

    def __init__(
        self,
        log: Appender,
        endpoint: Path,
        *,
        port: int = 0,
        max_events: int = 4000,
        max_seconds: float = 0.0,
    ) -> None:
        """Listen, and write port and token to `endpoint` with mode 0600."""
        self._origin = log.checkpoint.origin
        self._token = os.urandom(32).hex()
        self._endpoint = endpoint
        self._listener = socket.create_server(("127.0.0.1", port), backlog=128)
        self.port: int = self._listener.getsockname()[1]
        self._committer = GroupCommit(log, max_events=max_events, max_seconds=max_seconds)
        self._mutex = threading.Lock()
        self._connections: dict[socket.socket, threading.Thread] = {}
        self._closing = threading.Event()
        _write_private(endpoint, {"port": self.port, "token": self._token, "pid": os.getpid(), "host": socket.gethostname()})
        self._acceptor = threading.Thread(target=self._accept, name="accept", daemon=True)
        self._acceptor.start()

    def __enter__(self) -> LogService:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Take no more requests, finish those at hand, answer them, and go."""
        self._closing.set()
        with suppress(FileNotFoundError):
            self._endpoint.unlink()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._acceptor.join()
        with self._mutex:
            connections = list(self._connections.items())
        for connection, _ in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        for _, thread in connections:
            thread.join()
        self._committer.close()

    def _accept(self) -> None:
        while not self._closing.is_set():
            try:
                connection, _ = self._listener.accept()
            except OSError:  # closed, or for the moment out of something
                self._closing.wait(0.1)
                continue
            thread = threading.Thread(target=self._serve, args=(connection,), name="client", daemon=True)
            with self._mutex:
                self._connections[connection] = thread
            thread.start()

    def _serve(self, connection: socket.socket) -> None:
        frames = FrameSocket(connection)
        try:
            self._greet(frames)
            self._answer(frames)
        except (LedgerError, OSError) as error:
            _LOG.info("a client was left: %s", error)
        finally:
            frames.close()
            with self._mutex:
                self._connections.pop(connection, None)

    def _greet(self, frames: FrameSocket) -> None:
        frame = frames.receive()
        try:
            given = decode_text(frame or b"", "token")
        except Malformed:
            given = ""
        if not hmac.compare_digest(given.encode(), self._token.encode()):
            error = Unverified("the token is not this service's", cure=f"read it from {self._endpoint}")
            frames.send(encode_error(error))
            raise error
        frames.send(encode_member("origin", self._origin))

    def _answer(self, frames: FrameSocket) -> None:
        """Requests are read ahead by this thread; answers go out in order from another."""
        waiting: queue.Queue[Future[list[Receipt]] | None] = queue.Queue(_AHEAD)
        sender = threading.Thread(target=_send_answers, args=(frames, waiting), name="answers", daemon=True)
        sender.start()
        try:
            while (frame := frames.receive()) is not None:
                try:
                    waiting.put(self._committer.submit(decode_drafts(frame)))
                except LedgerError as error:
                    refused: Future[list[Receipt]] = Future()
                    refused.set_exception(error)
                    waiting.put(refused)
        finally:
            waiting.put(None)
            sender.join()


def _send_answers(frames: FrameSocket, waiting: queue.Queue[Future[list[Receipt]] | None]) -> None:
    broken = False
    while (future := waiting.get()) is not None:
        try:
            answer = encode_receipts(future.result())
        except LedgerError as error:
            answer = encode_error(error)
        if not broken:
            try:
                frames.send(answer)
            except OSError:
                broken = True  # the client is gone, but what it handed in is committed all the same


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
        raise StorageFailed(
            "could not write the endpoint of the service", where=str(path), found=str(error)
        ) from error
