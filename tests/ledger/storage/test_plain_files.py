"""Links, FIFOs, sockets and devices in a root: nothing of it opens one, waits for one or changes what one leads to."""

from __future__ import annotations

import os
import socket
import stat
import threading
from collections.abc import Callable
from pathlib import Path

import pytest

from ledger import LedgerError, Malformed, NotFound
from ledger.storage.plain import DEEPEST, open_plain
from ledger.storage.posix import PosixStorage
from ledger.store.store import Store

SECRET = b"nobody's business"


def plant_link(path: Path, elsewhere: Path) -> None:
    path.symlink_to(elsewhere)


def plant_fifo(path: Path, _: Path) -> None:
    os.mkfifo(path)


def plant_socket(path: Path, _: Path) -> None:
    here = os.getcwd()
    os.chdir(path.parent)  # the name of a socket has at most 107 bytes
    try:
        with socket.socket(socket.AF_UNIX) as listening:
            listening.bind(path.name)
    finally:
        os.chdir(here)


def plant_device(path: Path, _: Path) -> None:
    try:
        os.mknod(path, stat.S_IFCHR | 0o666, os.makedev(1, 5))  # /dev/zero
        os.close(os.open(path, os.O_RDONLY))
    except OSError:
        pytest.skip("this user cannot make devices")


PLANTS = [plant_link, plant_fifo, plant_socket, plant_device]
READS: list[Callable[[PosixStorage, str], object]] = [
    lambda storage, name: storage.read(name),
    lambda storage, name: storage.read_range(name, 0, 1),
    lambda storage, name: storage.open(name).read(1),
    lambda storage, name: storage.size(name),
    lambda storage, name: storage.exists(name),
    lambda storage, name: storage.ensure(name, b"x"),
]


@pytest.fixture
def secret(tmp_path: Path) -> Path:
    path = tmp_path / "secret"
    path.write_bytes(SECRET)
    path.chmod(0o644)
    return path


def within_seconds(call: Callable[[], object]) -> object:
    """What ``call`` gives or raises; a call that waits for somebody fails the test instead of hanging it."""
    found: list[object] = []

    def run() -> None:
        try:
            found.append(call())
        except Exception as error:
            found.append(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    thread.join(600)
    assert found, "it waits"
    return found[0]


@pytest.mark.parametrize("plant", PLANTS)
@pytest.mark.parametrize("read", READS)
def test_what_is_no_regular_file_is_refused(
    tmp_path: Path, secret: Path, plant: Callable[[Path, Path], None], read: Callable[[PosixStorage, str], object]
) -> None:
    (tmp_path / "root" / "log").mkdir(parents=True)
    plant(tmp_path / "root" / "log" / "checkpoint", secret)
    found = within_seconds(lambda: read(PosixStorage(tmp_path / "root"), "log/checkpoint"))
    assert isinstance(found, Malformed), found
    assert "not a plain file: log/checkpoint" in str(found)
    assert secret.read_bytes() == SECRET


def test_no_folder_below_the_topmost_may_be_a_link(tmp_path: Path, secret: Path) -> None:
    (tmp_path / "root" / "log" / "tile").mkdir(parents=True)
    (tmp_path / "root" / "log" / "tile" / "0").symlink_to(tmp_path)
    storage = PosixStorage(tmp_path / "root")
    with pytest.raises(Malformed, match="log/tile/0: expected a folder, not reached through a link"):
        storage.read("log/tile/0/secret")
    assert list(storage.list()) == ["log/tile/0"]  # named, never entered
    (tmp_path / "root" / "store").symlink_to(tmp_path / "disk")
    (tmp_path / "disk").mkdir()
    storage.create("store/a", b"x")
    assert storage.read("store/a") == b"x"
    assert list(storage.list("store/")) == ["store/a"]


def test_folders_without_end_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "/".join(["d"] * (DEEPEST + 5))).mkdir(parents=True)
    with pytest.raises(Malformed, match="folders too deep"):
        list(PosixStorage(tmp_path).list())


def test_a_missing_file_is_missing(tmp_path: Path) -> None:
    storage = PosixStorage(tmp_path)
    (tmp_path / "file").write_bytes(b"")
    assert not storage.exists("a/b") and not storage.exists("file/b")
    for name in ("a", "a/b", "file/b"):
        with pytest.raises(NotFound):
            storage.read(name)
    with pytest.raises(FileNotFoundError):
        open_plain(str(tmp_path / "nothing"))


@pytest.mark.parametrize("plant", PLANTS)
def test_a_blob_is_a_regular_file(tmp_path: Path, secret: Path, plant: Callable[[Path, Path], None]) -> None:
    store = Store(PosixStorage(tmp_path / "root"))
    digest = store.put_bytes(SECRET).digest
    tree = tmp_path / "tree"
    tree.mkdir()
    (tree / "file").write_bytes(SECRET)
    made = store.put_tree(tree).digest
    blob = store.blobs.local(digest)
    assert blob is not None
    os.unlink(blob)
    plant(Path(blob), secret)
    for call in (
        lambda: store.read(digest),
        lambda: store.open(digest).read(),
        lambda: store.blobs.touch(os.path.relpath(blob, tmp_path / "root")),
        lambda: store.checkout(made, tmp_path / "out"),
        lambda: store.checkout(made, tmp_path / "copy", how="copy"),
        lambda: next(iter(Store(PosixStorage(tmp_path / "root")).verify_all())).what,
    ):
        found = within_seconds(call)
        assert isinstance(found, LedgerError | str), found
    assert secret.read_bytes() == SECRET
    assert stat.S_IMODE(secret.stat().st_mode) == 0o644
    assert not (tmp_path / "out" / "file").exists()
