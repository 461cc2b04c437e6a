"""HTTP services on the loopback interface for tests, with faults that are injected into their answers.

    with serving(GcsStub()) as service:
        service.faults.add(Fault.STATUS, method="GET", path="/store/blobs/", times=2, status=503)
        ... service.address ...
    service.requests                      what was asked, as "GET /path?query", decoded

Any WSGI application can stand behind it, so moto's S3, the GCS stub and a plain folder fail in the same ways.
"""

from __future__ import annotations

import re
import threading
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from enum import Enum
from socketserver import ThreadingMixIn
from typing import Any, Protocol, runtime_checkable
from urllib.parse import unquote
from wsgiref.simple_server import WSGIRequestHandler, WSGIServer, make_server

Application = Callable[[dict[str, Any], Callable[..., Any]], Iterable[bytes]]


@runtime_checkable
class _Closing(Protocol):
    """What PEP 3333 asks the caller to close: an iterable of pieces with a method for it."""

    def close(self) -> None: ...


class Fault(Enum):
    """What goes wrong with a request."""

    STATUS = "an error status; the request is not executed"
    STATUS_AFTER = "the request is executed, and an error status is answered all the same"
    HANG = "no answer until the client gives up (or `release` is called)"
    CUT = "the connection ends in the middle of the answer's body"
    WRONG = "one bit of the answer's body is flipped"
    SHORT = "the answer's body lacks its last byte, and its length says so"


@dataclass
class Rule:
    """Which requests a fault strikes: the first `times` whose method and address match."""

    fault: Fault
    method: str
    path: re.Pattern[str]
    times: int
    status: int
    skip: int


@dataclass
class Faults:
    """The faults that are armed. Threads may share it."""

    rules: list[Rule] = field(default_factory=list)
    released: threading.Event = field(default_factory=threading.Event)
    _mutex: threading.Lock = field(default_factory=threading.Lock)

    def add(
        self, fault: Fault, *, method: str = "", path: str = "", times: int = 10**9, status: int = 503, skip: int = 0
    ) -> None:
        """Arm one. `path` is searched as a regular expression in the decoded address; `skip` lets so many pass."""
        self.rules.append(Rule(fault, method, re.compile(path), times, status, skip))

    def clear(self) -> None:
        """Disarm all, and let requests that hang end."""
        self.rules.clear()
        self.released.set()
        self.released = threading.Event()

    def strike(self, method: str, address: str) -> Rule | None:
        """The rule that a request falls under, counted."""
        with self._mutex:
            for rule in self.rules:
                if rule.times and rule.method in ("", method) and rule.path.search(address):
                    if rule.skip:
                        rule.skip -= 1
                        continue
                    rule.times -= 1
                    return rule
        return None


@dataclass
class Service:
    """A service that runs."""

    address: str
    faults: Faults
    requests: list[str]

    def asked(self, method: str, path: str = "") -> list[str]:
        """Requests of a method whose address a regular expression is found in."""
        return [line for line in self.requests if line.startswith(f"{method} ") and re.search(path, line)]


class _Faulty:
    """A WSGI application whose answers a set of faults spoils."""

    def __init__(self, application: Application, faults: Faults, requests: list[str]) -> None:
        self._application, self._faults, self._requests = application, faults, requests

    def __call__(self, environ: dict[str, Any], start_response: Callable[..., Any]) -> Iterable[bytes]:
        method, address = environ["REQUEST_METHOD"], unquote(environ["REQUEST_URI"])
        self._requests.append(f"{method} {address}")
        rule = self._faults.strike(method, address)
        if rule is None:
            return self._application(environ, start_response)
        if rule.fault is Fault.HANG:
            self._faults.released.wait(60)
        if rule.fault in (Fault.HANG, Fault.STATUS):
            environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
            return _fail(start_response, rule.status)
        started: list[Any] = []
        pieces = self._application(environ, lambda *answer: started.append(answer))
        body = b"".join(pieces)
        if isinstance(pieces, _Closing):
            pieces.close()
        if rule.fault is Fault.STATUS_AFTER:
            return _fail(start_response, rule.status)
        if method == "HEAD":
            start_response(*started[0][:2])
            return [body]
        status, headers = started[0][0], [(k, v) for k, v in started[0][1] if k.lower() != "content-length"]
        length = len(body)
        if rule.fault is Fault.WRONG and body:
            body = body[: length // 2] + bytes([body[length // 2] ^ 1]) + body[length // 2 + 1 :]
        elif rule.fault is Fault.SHORT:
            body = body[:-1]
            length = len(body)
        elif rule.fault is Fault.CUT:
            body = body[: length // 2]
        start_response(status, [*headers, ("Content-Length", str(length))])
        return [body]


def _fail(start_response: Callable[..., Any], status: int) -> list[bytes]:
    text = b"injected fault"
    start_response(f"{status} Injected", [("Content-Length", str(len(text))), ("Content-Type", "text/plain")])
    return [text]


class _Server(ThreadingMixIn, WSGIServer):
    """One thread for each connection, one request for each connection: nothing of a client's reuse is left to
    chance."""

    daemon_threads = True
    request_queue_size = 128


class _Handler(WSGIRequestHandler):
    """Hands on the address as it was sent, and writes no log: `Service.requests` is there."""

    disable_nagle_algorithm = True  # else a small answer waits for the client's delayed acknowledgement

    def get_environ(self) -> dict[str, Any]:
        return super().get_environ() | {"REQUEST_URI": self.path, "RAW_URI": self.path}

    def log_message(self, format: str, *args: Any) -> None: ...


@contextmanager
def serving(application: Application) -> Iterator[Service]:
    """Serve an application on a free port of 127.0.0.1 until the block ends."""
    faults, requests = Faults(), list[str]()
    server = make_server("127.0.0.1", 0, _Faulty(application, faults, requests), _Server, _Handler)
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
    thread.start()
    try:
        yield Service(f"http://127.0.0.1:{server.server_port}", faults, requests)
    finally:
        faults.clear()
        server.shutdown()
        server.server_close()
        thread.join()
