"""A socket that listens, the address that reaches it, and what ends a server: SIGINT and SIGTERM."""

from __future__ import annotations

import contextlib
import errno
import logging
import signal
import socket
from collections.abc import Iterator
from types import FrameType

from marin.errors import UsageError

PORTS_TRIED = 50

_log = logging.getLogger(__name__)


def bind(host: str, port: int) -> socket.socket:
    """A listening socket on ``port``, or on the next one that is free (0: any). The socket is handed to the server, so
    that nobody can take the port in between.

    Raises:
        UsageError: not an address of this machine, or no port of it is free.
    """
    try:
        family = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM)[0][0]
    except socket.gaierror as error:
        raise UsageError(
            "not an address of this machine", where="--host", expected="such as 127.0.0.1", found=host, cure=str(error)
        ) from None
    for candidate in range(port, min(port + PORTS_TRIED, 65536)) if port else (0,):
        listener = socket.socket(family)
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind((host, candidate))
            listener.listen(128)
        except OSError as error:
            listener.close()
            if error.errno == errno.EADDRINUSE:
                continue
            raise UsageError(
                "cannot listen there",
                where=f"{host}:{candidate}",
                expected="an address and port of this machine",
                found=error.strerror or str(error),
                cure="name others with --host and --port",
            ) from None
        if port and candidate != port:
            _log.warning("port %d is taken, using %d", port, candidate)
        return listener
    raise UsageError(
        "no free port",
        where=host,
        expected=f"one of {port} to {port + PORTS_TRIED - 1}",
        found="all are taken",
        cure="name another with --port",
    )


def address_of(listener: socket.socket) -> str:
    """``http://host:port`` as this machine reaches it."""
    host, port = listener.getsockname()[:2]
    # Where the server listens everywhere, its own machine reaches it by loopback.
    shown = {"0.0.0.0": "127.0.0.1", "::": "[::1]"}.get(host, f"[{host}]" if ":" in host else host)  # noqa: S104
    return f"http://{shown}:{port}"


@contextlib.contextmanager
def stopping(server: object) -> Iterator[None]:
    """While this lasts, a signal lets open requests of a uvicorn server end; a second one ends it at once."""

    def stop(number: int, frame: FrameType | None) -> None:
        setattr(server, "force_exit", getattr(server, "should_exit", False))  # noqa: B010 - the second time: at once
        setattr(server, "should_exit", True)  # noqa: B010 - uvicorn's own switch

    before = {number: signal.signal(number, stop) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)
