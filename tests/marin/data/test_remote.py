"""A pinned file: mirror, store and network, and nothing left behind when the bytes are not the declared ones."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import msgspec
import pytest

from ledger import Store, open_storage
from marin.data.network.fetching import ATTEMPTS
from marin.data.remote import obtain
from marin.errors import DataError
from marin.recipe.schema import UrlDataset
from tests.ledger.memory import MemoryStorage

DATA = b"To be, or not to be.\n" * 100
DATASET = UrlDataset(
    name="play",
    url="https://data.example/play.txt",
    sha256=hashlib.sha256(DATA).hexdigest(),
    mirror="plays/play.txt",
    size=len(DATA),
)
Handler = Callable[[httpx.Request], httpx.Response]
Serve = Callable[[Handler], list[httpx.Request]]


@pytest.fixture
def store() -> Store:
    return Store(MemoryStorage())


@pytest.fixture
def scratch(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.delenv("MARIN_DATA", raising=False)
    return tmp_path / "scratch"


@pytest.fixture
def serve(monkeypatch: pytest.MonkeyPatch) -> Serve:
    """Let a function answer every request; returns the list of requests."""
    client = httpx.Client

    def install(handler: Handler) -> list[httpx.Request]:
        requests: list[httpx.Request] = []

        def answer(request: httpx.Request) -> httpx.Response:
            requests.append(request)
            return handler(request)

        monkeypatch.setattr(httpx, "Client", lambda **options: client(transport=httpx.MockTransport(answer), **options))
        return requests

    return install


def no_network(request: httpx.Request) -> httpx.Response:
    raise AssertionError(f"the network was asked for {request.url}")


def fetch(store: Store, scratch: Path, dataset: UrlDataset = DATASET) -> Path:
    return obtain(dataset, store, scratch, pause=lambda seconds: None)


def failure(store: Store, scratch: Path) -> DataError:
    with pytest.raises(DataError) as caught:
        fetch(store, scratch)
    assert caught.value.cure
    assert not scratch.exists() or list(scratch.iterdir()) == []
    assert not store.has(f"sha256:{DATASET.sha256}")
    return caught.value


def mirror(folder: Path, monkeypatch: pytest.MonkeyPatch, data: bytes) -> Path:
    path = folder / "mirror" / DATASET.mirror
    path.parent.mkdir(parents=True)
    path.write_bytes(data)
    monkeypatch.setenv("MARIN_DATA", str(folder / "mirror"))
    return path


def test_the_mirror_is_tried_first(
    tmp_path: Path, scratch: Path, store: Store, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    serve(no_network)
    path = mirror(tmp_path, monkeypatch, DATA)
    assert fetch(store, scratch) == path
    assert store.read(f"sha256:{DATASET.sha256}") == DATA


def test_a_wrong_mirror_stops_it(
    tmp_path: Path, scratch: Path, store: Store, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    requests = serve(lambda request: httpx.Response(200, content=DATA))
    path = mirror(tmp_path, monkeypatch, DATA[:-1] + b"?")
    error = failure(store, scratch)
    assert error.what == "checksum mismatch"
    assert DATASET.sha256 in error.expected
    assert hashlib.sha256(path.read_bytes()).hexdigest() in error.found
    assert requests == []
    assert path.exists()


def test_a_mirror_without_the_file_is_passed_over(
    tmp_path: Path, scratch: Path, store: Store, monkeypatch: pytest.MonkeyPatch, serve: Serve
) -> None:
    monkeypatch.setenv("MARIN_DATA", str(tmp_path))
    serve(lambda request: httpx.Response(200, content=DATA))
    assert fetch(store, scratch).read_bytes() == DATA


def test_a_mirror_name_cannot_leave_the_folder(
    tmp_path: Path, scratch: Path, store: Store, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("MARIN_DATA", str(tmp_path))
    with pytest.raises(DataError, match="leads out"):
        fetch(store, scratch, msgspec.structs.replace(DATASET, mirror="../secret.txt"))


def test_fetched_once_then_from_the_store(scratch: Path, store: Store, serve: Serve) -> None:
    requests = serve(lambda request: httpx.Response(200, content=DATA))
    path = fetch(store, scratch)
    assert path.read_bytes() == DATA
    assert [entry.name for entry in scratch.iterdir()] == [path.name]
    path.unlink()
    assert fetch(store, scratch).read_bytes() == DATA
    assert len(requests) == 1


def test_a_kept_copy_that_was_changed_is_not_used(scratch: Path, store: Store, serve: Serve) -> None:
    serve(lambda request: httpx.Response(200, content=DATA))
    fetch(store, scratch).write_bytes(b"other")
    assert fetch(store, scratch).read_bytes() == DATA


def test_other_bytes_from_the_server_leave_nothing(scratch: Path, store: Store, serve: Serve) -> None:
    wrong = DATA[:-1] + b"?"
    requests = serve(lambda request: httpx.Response(200, content=wrong))
    error = failure(store, scratch)
    assert error.what == "checksum mismatch"
    assert DATASET.sha256 in error.expected
    assert hashlib.sha256(wrong).hexdigest() in error.found
    assert len(requests) == 1


def test_reading_stops_when_the_server_sends_too_much(scratch: Path, store: Store, serve: Serve) -> None:
    sent = 0

    def endless() -> Iterator[bytes]:
        nonlocal sent
        while True:
            sent += 1
            yield b"x" * 1000

    serve(lambda request: httpx.Response(200, content=endless()))
    assert failure(store, scratch).found == f"more than {len(DATA)} bytes"
    assert sent < 200


def test_passing_faults_are_tried_again(scratch: Path, store: Store, serve: Serve) -> None:
    def broken() -> Iterator[bytes]:
        yield DATA[:100]
        raise httpx.ReadError("connection reset")

    answers = iter([httpx.Response(503), httpx.Response(200, content=broken()), httpx.Response(200, content=DATA)])
    requests = serve(lambda request: next(answers))
    assert fetch(store, scratch).read_bytes() == DATA
    assert len(requests) == 3


def test_it_gives_up_after_some_attempts_with_growing_pauses(scratch: Path, store: Store, serve: Serve) -> None:
    def refuse(request: httpx.Request) -> httpx.Response:
        raise httpx.ConnectError("no route to host")

    requests = serve(refuse)
    error = failure(store, scratch)
    assert "no route to host" in error.found
    assert DATASET.mirror in error.cure
    assert len(requests) == ATTEMPTS
    pauses: list[float] = []
    with pytest.raises(DataError):
        obtain(DATASET, store, scratch, pause=pauses.append)
    assert pauses == sorted(pauses)
    assert len(pauses) == ATTEMPTS - 1


def test_a_missing_page_is_not_tried_again(scratch: Path, store: Store, serve: Serve) -> None:
    requests = serve(lambda request: httpx.Response(404))
    assert failure(store, scratch).found == "HTTP status 404"
    assert len(requests) == 1


def test_a_read_only_store_is_left_alone(scratch: Path, tmp_path: Path, serve: Serve) -> None:
    serve(lambda request: httpx.Response(200, content=DATA))
    Store(open_storage(str(tmp_path / "root"))).put_bytes(b"something")
    readonly = Store(open_storage(str(tmp_path / "root"), readonly=True))
    assert fetch(readonly, scratch).read_bytes() == DATA
    assert not readonly.has(f"sha256:{DATASET.sha256}")
