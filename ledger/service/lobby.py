"""Where a server keeps those it does not know yet: few seats, a deadline, and little to say.

Anyone who can reach a port can open connections, say half a sentence and stay, or claim a length and send until memory
ends. So anyone who comes sits in a ``Lobby`` until the request is clear. Seats are
bounded; when they are taken, the one who has waited longest leaves, of the address that holds most of them. A silent
crowd so costs itself its seats, and a clear request is served at once. ``PromptReader`` bounds what is
read of a guest, in bytes and in time as a whole: sending a byte now and then buys no more of either.
"""

from __future__ import annotations

import io
import logging
import socket
import threading
import time
from collections import Counter
from collections.abc import Buffer, Callable
from contextlib import suppress
from dataclasses import dataclass

from ledger.errors import LedgerError

_LOG = logging.getLogger(__name__)


@dataclass
class _Guest:
    address: str
    inside: bool = False
    sent_away: bool = False


class Lobby:
    """The connections of one server: those that wait to be known, and those inside. For many threads."""

    def __init__(self, *, seats: int, inside: int) -> None:
        """At most ``seats`` connections wait at a time, and at most ``inside`` have been let in."""
        self._seats = seats
        self._inside = inside
        self._guests: dict[socket.socket, _Guest] = {}  # in the order in which they came
        self._changed = threading.Condition()
        self._closed = False

    def enter(self, connection: socket.socket, address: str) -> bool:
        """Take a seat, the longest waiting guest's if none is free. False once the lobby is closed.

        Returns when the seat is really free: when the thread of the guest that had it has called ``leave``.
        """
        with self._changed:
            while len(waiting := self._waiting()) >= self._seats and not self._closed:
                if not any(guest.sent_away for _, guest in waiting):
                    _send_away(_longest(waiting))
                self._changed.wait()
            if not self._closed:
                self._guests[connection] = _Guest(address)
            return not self._closed

    def admit(self, connection: socket.socket) -> bool:
        """Let a guest in: nobody takes that place from here on. False if it is full inside, or the guest was sent away."""
        with self._changed:
            guest = self._guests.get(connection)
            if guest is None or guest.sent_away or self._closed:
                return False
            if sum(other.inside for other in self._guests.values()) >= self._inside:
                return False
            guest.inside = True
            self._changed.notify_all()
            return True

    def leave(self, connection: socket.socket) -> None:
        """Give the seat back; said last, when nothing is kept for the connection any more."""
        with self._changed:
            self._guests.pop(connection, None)
            self._changed.notify_all()

    def close(self, *, inside: bool = True) -> None:
        """Let nobody in any more and send everybody away, or only those who wait."""
        with self._changed:
            self._closed = True
            for connection, guest in self._guests.items():
                if inside or not guest.inside:
                    _send_away((connection, guest))
            self._changed.notify_all()

    def __len__(self) -> int:
        with self._changed:
            return len(self._guests)

    def _waiting(self) -> list[tuple[socket.socket, _Guest]]:
        return [(connection, guest) for connection, guest in self._guests.items() if not guest.inside]


def _longest(waiting: list[tuple[socket.socket, _Guest]]) -> tuple[socket.socket, _Guest]:
    held = Counter(guest.address for _, guest in waiting)
    most = max(held.values())
    return next((connection, guest) for connection, guest in waiting if held[guest.address] == most)


def _send_away(found: tuple[socket.socket, _Guest]) -> None:
    connection, guest = found
    guest.sent_away = True
    with suppress(OSError):  # gone already
        connection.shutdown(socket.SHUT_RDWR)


class Door:
    """A listening socket: each connection that gets a seat in the ``lobby`` is served by a thread, while the door is open."""

    def __init__(
        self,
        listener: socket.socket,
        lobby: Lobby,
        serve: Callable[[socket.socket], None],
        taken: Callable[[socket.socket], socket.socket] = lambda connection: connection,
    ) -> None:
        """``serve`` is called for each connection, which is closed when it returns; ``taken`` gives what is served in the place
        of a plain connection."""
        self._listener, self._lobby, self._serve, self._taken = listener, lobby, serve, taken
        self.port: int = listener.getsockname()[1]
        self._mutex = threading.Lock()
        self._threads: dict[socket.socket, threading.Thread] = {}
        self.closing = threading.Event()
        self._acceptor = threading.Thread(target=self._accept, name="accept", daemon=True)

    def open(self) -> None:
        """Begin to take connections."""
        self._acceptor.start()

    def close(self) -> None:
        """Take nobody more, and wait for the end of every connection: from here on nothing new is read from one."""
        self.closing.set()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        self._lobby.close(inside=False)
        self._acceptor.join()
        with self._mutex:
            connections = list(self._threads.items())
        for connection, _ in connections:
            with suppress(OSError):
                connection.shutdown(socket.SHUT_RD)
        for _, thread in connections:
            thread.join()

    def _accept(self) -> None:
        while not self.closing.is_set():
            try:
                plain, address = self._listener.accept()
            except OSError:  # closed, or for the moment out of something
                self.closing.wait(0.1)
                continue
            try:
                connection = self._taken(plain)
            except (LedgerError, OSError) as error:
                _LOG.warning("a connection was not taken: %s", error)
                plain.close()
                continue
            if not self._lobby.enter(connection, address[0]):
                connection.close()
                continue
            thread = threading.Thread(target=self._served, args=(connection,), name="client", daemon=True)
            with self._mutex:
                self._threads[connection] = thread
            thread.start()

    def _served(self, connection: socket.socket) -> None:
        try:
            self._serve(connection)
        except (LedgerError, OSError) as error:
            _LOG.info("a client was left: %s", error)
        finally:
            connection.close()
            with self._mutex:
                self._threads.pop(connection, None)
            self._lobby.leave(connection)


class PromptReader(io.RawIOBase):
    """The first bytes of a connection: at most ``limit`` of them, within ``seconds`` from now, all together.

    After ``limit`` bytes the stream is at its end; after the deadline reading raises ``TimeoutError``. The connection keeps
    a timeout; who goes on with it sets its own.
    """

    def __init__(
        self, connection: socket.socket, *, seconds: float, limit: int, clock: Callable[[], float] = time.monotonic
    ) -> None:
        super().__init__()
        self._connection = connection
        self._left = limit
        self._clock = clock
        self._until = clock() + seconds

    def readable(self) -> bool:
        return True

    def readinto(self, buffer: Buffer, /) -> int:
        view = memoryview(buffer).cast("B")[: self._left]
        if not view:
            return 0
        seconds = self._until - self._clock()
        if seconds <= 0:
            raise TimeoutError("it took too long to say what is wanted")
        self._connection.settimeout(seconds)
        count = self._connection.recv_into(view)
        self._left -= count
        return count

    def allow(self, *, seconds: float, limit: int) -> None:
        """From now on so many seconds and bytes more, for a guest who is known now, or has said something of worth."""
        self._until = self._clock() + seconds
        self._left = limit

    def exactly(self, size: int) -> bytes:
        """So many bytes, or fewer at the end of the stream."""
        found = bytearray()
        while len(found) < size and (more := self.read(size - len(found))):
            found += more
        return bytes(found)


class Room:
    """How many bytes may be held at a time, for all clients together."""

    def __init__(self, size: int) -> None:
        self._size = size
        self._used = 0
        self._changed = threading.Condition()

    def take(self, size: int) -> None:
        """Wait until ``size`` bytes are free. One that is larger than the room has it for itself."""
        with self._changed:
            self._changed.wait_for(lambda: not self._used or self._used + size <= self._size)
            self._used += size

    def free(self, size: int) -> None:
        with self._changed:
            self._used -= size
            self._changed.notify_all()
