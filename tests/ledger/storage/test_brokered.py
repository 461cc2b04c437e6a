"""The storage that another process reads: the same answers as the storage itself, the same errors, and no writes."""

from __future__ import annotations

import socket
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from ledger import Malformed, NotFound, Refused, StorageFailed, open_storage, serving
from ledger.storage.brokered import BROKER_VARIABLE, BrokeredStorage
from ledger.storage.posix import PosixStorage
from tests.ledger.memory import MemoryStorage


@pytest.fixture
def folder() -> Iterator[Path]:
    with TemporaryDirectory(prefix="b-") as folder:  # the name of a socket has at most 107 bytes
        yield Path(folder)


@pytest.fixture
def served(folder: Path) -> Iterator[tuple[MemoryStorage, BrokeredStorage]]:
    real = MemoryStorage()
    real.create("log/checkpoint", b"note")
    real.create("store/a\u00e9", bytes(range(256)) * 1000)
    with serving(real, folder / "s"):
        yield real, BrokeredStorage(str(folder / "s"), "gs://bucket/root")


def test_it_answers_as_the_storage_does(served: tuple[MemoryStorage, BrokeredStorage]) -> None:
    real, far = served
    for name in real.list():
        assert far.read(name) == real.read(name) == far.open(name).read()
        assert far.size(name) == real.size(name)
        assert far.exists(name)
        assert far.read_range(name, 2, 5) == real.read_range(name, 2, 5)
    assert list(far.list("log/")) == ["log/checkpoint"]
    assert [(d.name, d.size) for d in far.details()] == [(d.name, d.size) for d in real.details()]
    assert not far.exists("log/nothing")
    assert far.describe() == "gs://bucket/root" and far.local_path("log/checkpoint") is None


def test_its_errors_are_the_storages(served: tuple[MemoryStorage, BrokeredStorage]) -> None:
    _, far = served
    with pytest.raises(NotFound, match="log/nothing"):
        far.read("log/nothing")
    for name in ("../secret", "/etc/passwd", "a/../../b"):
        with pytest.raises(Refused):
            far.read(name)
    assert far.read("log/checkpoint") == b"note"  # and it goes on


def test_it_writes_nothing(served: tuple[MemoryStorage, BrokeredStorage]) -> None:
    real, far = served
    before = {name: real.read(name) for name in real.list()}
    for write in (
        lambda: far.create("x", b""),
        lambda: far.replace("log/checkpoint", b"other"),
        lambda: far.remove("log/checkpoint"),
        lambda: far.rename("log/checkpoint", "x"),
        lambda: far.lock("lock", "me"),
    ):
        with pytest.raises(Refused):
            write()
    assert {name: real.read(name) for name in real.list()} == before


def test_nonsense_ends_the_connection_and_nothing_else(
    served: tuple[MemoryStorage, BrokeredStorage], folder: Path
) -> None:
    for line in (
        b"\n",
        b"{}\n",
        b'["replace","log/checkpoint","x"]\n',
        b'["read",1]\n',
        b"x" * 70_000 + b"\n",
        b"[" * 9000 + b"\n",
    ):
        with socket.socket(socket.AF_UNIX) as stranger:
            stranger.connect(str(folder / "s"))
            try:
                stranger.sendall(line)
                assert stranger.recv(10) == b""
            except ConnectionError:
                pass
    assert served[1].read("log/checkpoint") == b"note"


def test_links_stay_refused_across_the_process(folder: Path, tmp_path: Path) -> None:
    (tmp_path / "log").mkdir()
    (tmp_path / "log" / "checkpoint").symlink_to("/etc/passwd")
    with serving(PosixStorage(tmp_path), folder / "s"), pytest.raises(Malformed, match="not a plain file"):
        BrokeredStorage(str(folder / "s"), "https://x.example").read("log/checkpoint")


def test_every_address_goes_to_the_broker(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv(BROKER_VARIABLE, str(folder / "gone"))
    for address in ("gs://b/r", "s3://b/r", "https://x.example/r"):
        with pytest.raises(StorageFailed, match="nobody reads the root"):
            open_storage(address).read("vkey")
    assert isinstance(open_storage(str(folder)), PosixStorage)
