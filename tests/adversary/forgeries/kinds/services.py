"""Class 12: who reaches a port of ours and has no token. Each kind attacks a service over the forged root, and its proof
looks whether the attack had its effect: nothing was written, memory stayed, and others were served meanwhile.
"""

from __future__ import annotations

import asyncio
import json
import socket
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Draft, LedgerError, Log, LogReader, ask_witness
from ledger.format.cosigner import Cosigner
from ledger.service.client import LogClient
from ledger.service.server import LogService
from ledger.service.wire import MAX_FRAME, FrameSocket, encode_drafts, encode_member
from ledger.witness.server import WitnessServer
from ledger.witness.witness import Witness
from marin.plugins.mlflow.server.gate import Gate
from marin.record import events as kinds
from tests.adversary.forgeries.registry import kind
from tests.adversary.forgeries.workshop import Shop, as_operator
from tests.ledger.memory import MemoryStorage

STRANGERS, CLAIMED, MOST = 15, MAX_FRAME, 64 << 20
"""As many connections as once took 943 MiB, the frame that each claims, and how far memory may grow."""


def _record_effect(shop: Shop, had_effect: object) -> None:
    if had_effect:
        (shop.folder / "effect").write_text(str(had_effect))


def _no_effect(shop: Shop) -> bool:
    return not (shop.folder / "effect").exists()


def _resident() -> int:
    return int(Path("/proc/self/statm").read_text().split()[1]) * 4096


# The append service


@contextmanager
def _serving(shop: Shop, **limits: Any) -> Iterator[LogService]:
    shop.sign()
    with as_operator(shop.base):
        signer = shop.root.signer()
    with Log.open(shop.root.storage, signer) as log, LogService(log, shop.folder / "service.json", **limits) as served:
        yield served


def _connected(port: int, count: int, stack: ExitStack) -> list[socket.socket]:
    return [stack.enter_context(socket.create_connection(("127.0.0.1", port), timeout=600)) for _ in range(count)]


def _forged(shop: Shop) -> list[Draft]:
    return [Draft(kinds.METRICS_RECORDED, f"run/{shop.run}", {"run": shop.run, "step": "", "series": []})]


def _unchanged(shop: Shop) -> bool:
    return LogReader(shop.root.storage, [shop.root.verifier]).checkpoint().size == len(shop.events)


@kind(12, "frames for the append service without its token", harmless=True, proof=_no_effect)
def frames(shop: Shop) -> None:
    with _serving(shop) as service, ExitStack() as stack:
        for first in (b"", encode_member("token", ""), encode_member("token", "0" * 64), b"{", b"[" * 9999):
            (one,) = _connected(service.port, 1, stack)
            with suppress(OSError, LedgerError):
                framed = FrameSocket(one)
                if first:
                    framed.send(first)
                framed.send(encode_drafts(_forged(shop)))
                framed.receive()
        with LogClient(shop.folder / "service.json") as client:
            _record_effect(shop, client.origin != shop.root.verifier.name)
    _record_effect(shop, not _unchanged(shop))


@kind(12, "large frames for the append service before any token", harmless=True, proof=_no_effect)
def large_frames(shop: Shop) -> None:
    piece = bytes(1 << 20)
    with _serving(shop) as service, ExitStack() as stack:
        strangers = _connected(service.port, STRANGERS, stack)
        before = _resident()
        for stranger in strangers:
            with suppress(OSError):
                stranger.sendall(CLAIMED.to_bytes(4))
                for _ in range(CLAIMED // len(piece)):
                    stranger.sendall(piece)
        _record_effect(shop, (grown := _resident() - before) > MOST and f"{grown} bytes")


@kind(12, "a silent crowd at the append service", harmless=True, proof=_no_effect)
def crowd(shop: Shop) -> None:
    with _serving(shop, strangers=4) as service, ExitStack() as stack:
        _connected(service.port, 40, stack)
        try:
            LogClient(shop.folder / "service.json").close()
        except LedgerError as error:
            _record_effect(shop, error)


# The pages


def _status_of(shop: Shop, method: str, path: str, headers: list[tuple[bytes, bytes]], *, in_room: bool = False) -> int:
    """The status with which `marin ui` answers, in the room of a reader with the cookie or outside of it; whether the
    request reached MLflow is an effect."""
    said: list[dict[str, Any]] = []

    async def mlflow(scope: Any, receive: Any, send: Any) -> None:
        _record_effect(shop, f"{method} {path}")
        await send({"type": "http.response.start", "status": 200, "headers": []})
        await send({"type": "http.response.body", "body": b""})

    async def send(message: Any) -> None:
        said.append(message)

    async def receive() -> Any:
        return {"type": "http.request", "body": b""}

    def ask(method: str, path: str, headers: list[tuple[bytes, bytes]], query: bytes = b"") -> None:
        scope = {"type": "http", "method": method, "path": path, "query_string": query, "headers": headers}
        asyncio.run(gate(scope, receive, send))

    gate = Gate(mlflow, token="ab" * 32, host="127.0.0.1", port=5000)
    if in_room:
        ask("GET", "/", [HOST], b"token=" + b"ab" * 32)
        given = dict(said.pop(0)["headers"])
        said.clear()
        path = given[b"location"].decode().rstrip("/") + path
        headers = [*headers, (b"cookie", given[b"set-cookie"].partition(b";")[0])]
    ask(method, path, headers)
    return int(said[0]["status"])


HOST = (b"host", b"127.0.0.1:5000")
WRITES = (
    "runs/set-tag",
    "runs/update",
    "runs/log-metric",
    "runs/delete",
    "registered-models/alias",
    "model-versions/create",
)


def _writes(*headers: tuple[bytes, bytes], in_room: bool = False) -> Any:
    def forge(shop: Shop) -> None:
        for name in WRITES:
            for prefix in ("/api/2.0/mlflow", "/ajax-api/2.0/mlflow"):
                _status_of(shop, "POST", f"{prefix}/{name}", list(headers), in_room=in_room)

    return forge


kind(12, "writes to the pages without their token", harmless=True, proof=_no_effect)(_writes(HOST))
kind(12, "writes to the pages with a token that was guessed", harmless=True, proof=_no_effect)(
    _writes(HOST, (b"authorization", b"Bearer " + b"ba" * 32))
)
kind(12, "writes to the pages from another site, by the reader's cookie", harmless=True, proof=_no_effect)(
    _writes(HOST, (b"origin", b"https://evil.example"), in_room=True)
)
kind(12, "writes to the pages by a form, by the reader's cookie alone", harmless=True, proof=_no_effect)(
    _writes(HOST, in_room=True)
)
kind(12, "writes to the pages under a name that was rebound", harmless=True, proof=_no_effect)(
    _writes((b"host", b"evil.example:5000"), (b"authorization", b"Bearer " + b"ab" * 32))
)


@kind(12, "a read of the pages without their token", harmless=True, proof=_no_effect)
def read_pages(shop: Shop) -> None:
    for path in ("/", "/get-artifact", "/api/2.0/mlflow/runs/search", "//evil.example/", "/../../etc/passwd"):
        _status_of(shop, "GET", path, [HOST])


# A witness


@kind(12, "half-open requests at a witness", harmless=True, proof=_no_effect)
def half_open(shop: Shop) -> None:
    """Forty begin a request and stop; anyone who asks whole is answered all the same."""
    shop.sign()
    reader = LogReader(shop.root.storage, [shop.root.verifier])
    cosigner = Cosigner("witness.example", Ed25519PrivateKey.generate())
    deciding = Witness(MemoryStorage(), [cosigner], {shop.root.verifier.name: [shop.root.verifier]})
    with WitnessServer(deciding, seats=4) as server, ExitStack() as stack:
        for guest in _connected(urlsplit(server.address).port or 0, 40, stack):
            with suppress(OSError):
                guest.sendall(b"POST /add-checkpoint HTTP/1.1\r\nContent-Length: 200000\r\n\r\nold 0\n")
        try:
            lines = ask_witness(server.address, reader.note(), reader.consistency_proof, [cosigner.verifier])
        except LedgerError as error:
            _record_effect(shop, error)
        else:
            _record_effect(shop, not lines and "no cosignature")


@kind(12, "an endpoint of a service in the root, for anyone who appends", harmless=True, proof=_no_effect)
def endpoint(shop: Shop) -> None:
    """The reader's own commands must not hand what they append to a server that the root names."""
    listening = socket.create_server(("127.0.0.1", 0))
    shop.replace_file("service.json", json.dumps({"port": listening.getsockname()[1], "token": "x"}).encode())
    listening.settimeout(0.01)
    from marin.verify.sealed import read_only_root

    with suppress(LedgerError):
        read_only_root(shop.root).append(_forged(shop))
    try:
        listening.accept()
        _record_effect(shop, "spoken to")
    except TimeoutError:
        pass
    finally:
        listening.close()
