"""A published folder, read over http by somebody who was told the key: what its publisher, who has no key, changes in it."""

from __future__ import annotations

import shutil
import threading
from base64 import b64decode, b64encode
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

from ledger import Draft, Log, create_key, open_storage
from marin.history.runs import load
from marin.record.creation import vkey_lines
from marin.record.root import open_root
from marin.record.trust.homes import VKEY
from tests.adversary.forgeries.doors.events import judged, signed, stranger
from tests.adversary.forgeries.doors.register import Answer, Stall, door, kind
from tests.adversary.forgeries.workshop import variable


@contextmanager
def served(folder: Path, asked: set[str] | None = None) -> Iterator[str]:
    """The address of a root in a folder, on the loopback interface. ``asked``: gets the names of its files that were asked
    for."""
    names = set[str]() if asked is None else asked

    class Handler(SimpleHTTPRequestHandler):
        def log_message(self, format: str, *values: object) -> None:
            names.add(self.path.removeprefix("/.marin/"))

    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Handler, directory=str(folder))) as server:
        thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02}, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/.marin"
        finally:
            server.shutdown()
            thread.join()


@door("http")
def over_http(stall: Stall) -> Answer:
    """A publisher signs nothing: what the folder had before is what was signed."""
    shop = stall.shop
    with stranger(stall), served(shop.path.parent) as address:
        return judged(open_root(address), shop.run, [shop.base.root.verifier])


def replaced(stall: Stall, path: Path, change: Callable[[bytes], bytes]) -> None:
    """Another content for a file of the copy, which is a link to the honest one."""
    data = path.read_bytes()
    path.unlink()
    path.write_bytes(change(data))


def flipped(data: bytes, place: int | None = None) -> bytes:
    """One bit of a byte changed."""
    at = len(data) // 2 if place is None else place
    return data[:at] + bytes([data[at] ^ 1]) + data[at + 1 :]


def _files(stall: Stall, pattern: str) -> list[Path]:
    return sorted(path for path in stall.shop.path.glob(pattern) if path.is_file())


def _tile(pattern: str, change: Callable[[bytes], bytes] = flipped) -> Callable[[Stall], None]:
    return lambda stall: replaced(stall, _files(stall, pattern)[-1], change)


def _blob(stall: Stall, digest: str) -> Path:
    value = digest.removeprefix("sha256:")
    return next(path for path in (stall.shop.path / "store").rglob(value[2:]))


def _named(stall: Stall, what: str) -> str:
    """The digest of the model's list of files, or of its largest file."""
    root = open_root(str(stall.shop.path))
    tree = load(root.history(), stall.shop.run).output("export").artifact
    files = sorted(root.store_to_read().manifest(tree), key=lambda entry: entry.size)
    return tree if what == "list" else files[-1].digest


def _stored(what: str, change: Callable[[bytes], bytes] | None) -> Callable[[Stall], None]:
    def forge(stall: Stall) -> None:
        path = _blob(stall, _named(stall, what))
        if change is None:
            path.unlink()
        else:
            replaced(stall, path, change)

    return forge


def _line(data: bytes, number: int, text: bytes) -> bytes:
    lines = data.split(b"\n")
    lines[number] = text
    return b"\n".join(lines)


def _checkpoint(line: int, text: bytes) -> Callable[[Stall], None]:
    return _tile("log/checkpoint", lambda data: _line(data, line, text))


def _signature(data: bytes) -> bytes:
    """A bit of the last signature; of its bytes, for a bit of its base64 may be no base64."""
    head, _, line = data.rstrip(b"\n").rpartition(b" ")
    return head + b" " + b64encode(flipped(b64decode(line), 40)) + b"\n"


kind("http", "the honest run", "", honest=True)(lambda stall: stall.shop)
for _name, _says, _forge in (
    ("a bit of an entry", "entries", _tile("log/tile/entries/**/*")),
    ("a bit of a hash of the log", "log/tile", _tile("log/tile/0/**/*")),
    ("an entry less", "entries", _tile("log/tile/entries/**/*", lambda data: data[:-200])),
    ("the checkpoint's size", "a signature does not hold", _checkpoint(1, b"9")),
    (
        "the checkpoint's root",
        "a signature does not hold",
        _tile("log/checkpoint", lambda data: _line(data, 2, b"A" * 43 + b"=")),
    ),
    (
        "the checkpoint's origin",
        "a signature does not hold",
        _tile("log/checkpoint", lambda data: _line(data, 0, b"else.where")),
    ),
    ("a bit of the checkpoint's signature", "a signature does not hold", _tile("log/checkpoint", _signature)),
    ("not a checkpoint", "not a signed note", _tile("log/checkpoint", lambda data: b"signed\n")),
    ("a bit of the model", "output of export", _stored("file", flipped)),
    ("a file of the model less", "output of export", _stored("file", None)),
    ("a file of the model that is cut", "output of export", _stored("file", lambda data: data[:-4])),
    ("a bit of the model's list of files", "output of export", _stored("list", flipped)),
    ("the model's list of files less", "output of export", _stored("list", None)),
    ("another list of the model's files", "output of export", _stored("list", lambda data: b"{}\n")),
):
    kind("http", _name, _says)(_forge)


@kind("http", "the model and its list of files in each other's place", "")
def _swapped(stall: Stall) -> None:
    one, other = (_blob(stall, _named(stall, what)) for what in ("file", "list"))
    first, second = one.read_bytes(), other.read_bytes()
    replaced(stall, one, lambda data: second)
    replaced(stall, other, lambda data: first)


def _another_log(stall: Stall, *, keys: bool) -> None:
    """The same events under the publisher's own key, of the same name."""
    shop = stall.shop
    mine = create_key(stall.folder / "publisher.key", shop.base.root.verifier.name)
    shutil.rmtree(shop.path / "log")
    storage = open_storage(shop.path)
    Log.create(storage, mine)
    with Log.open(storage, mine) as log:
        log.append([Draft(e.type, e.stream, e.body, id=e.id, actor=e.actor, time=e.time) for e in shop.events])
    if keys:
        shop.replace_file(VKEY, vkey_lines(mine))


@kind("http", "the same events by another key", "")
def _by_another(stall: Stall) -> None:
    _another_log(stall, keys=False)


@kind("http", "the same events by another key, and its vkey", "")
def _by_another_named(stall: Stall) -> None:
    _another_log(stall, keys=True)


@door("key")
def _nobodys(stall: Stall) -> Answer:
    shop = signed(stall)
    with stranger(stall), variable("MARIN_TRUST", str(stall.folder / "nobody")):
        return judged(open_root(str(shop.path)), shop.run, [])


kind("key", "a root that names its key itself", "no key of yours signed this log")(lambda stall: None)
