"""The conformance suite of the storage port: what every driver must do, as functions that a test runner calls.

    @pytest.mark.parametrize("check", STORAGE_CHECKS, ids=lambda check: check.__name__)
    def test_conformance(check, storage):
        check(storage)

Each check gets an empty, writable storage, and fails by ``AssertionError``. Needs no test framework.
"""

from __future__ import annotations

import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from ledger.errors import AlreadyExists, Conflict, LedgerError, Locked, NotFound, Refused
from ledger.storage.port import Storage

_UNSAFE_NAMES = ("", "/a", "a/", "a//b", "../a", "a/../b", "./a", "a\\b", "a\x00b", "a\nb", ".tmp-a", "a/.tmp-b")


def what_is_created_is_read(storage: Storage) -> None:
    for name, data in (("a", b""), ("b/c", b"one"), ("b/d/e", bytes(range(256)) * 300)):
        storage.create(name, data)
        assert storage.read(name) == data
        assert storage.size(name) == len(data)
        assert storage.exists(name)
        with storage.open(name) as stream:
            assert stream.read() == data


def what_is_missing_is_not_found(storage: Storage) -> None:
    storage.create("folder/file", b"x")
    for name in ("missing", "folder", "folder/other", "folder/file/below"):
        assert not storage.exists(name), name
        for read in (storage.read, storage.size, storage.open, lambda n: storage.read_range(n, 0, 1)):
            with _raises(NotFound):
                read(name)


def ranges_end_with_the_bytes(storage: Storage) -> None:
    storage.create("a", b"0123456789")
    for start, length, expected in ((0, 3, b"012"), (7, 10, b"789"), (10, 1, b""), (99, 5, b""), (4, 0, b"")):
        assert storage.read_range("a", start, length) == expected, (start, length)


def create_is_exclusive(storage: Storage) -> None:
    storage.create("a", b"one")
    for data in (b"one", b"two"):
        with _raises(AlreadyExists):
            storage.create("a", data)
    assert storage.read("a") == b"one"


def ensure_is_idempotent(storage: Storage) -> None:
    storage.ensure("a/b", b"one")
    storage.ensure("a/b", b"one")
    for data in (b"two", b"on", b"one1", b""):
        with _raises(Conflict):
            storage.ensure("a/b", data)
    assert storage.read("a/b") == b"one"


def ensure_many_is_ensure(storage: Storage) -> None:
    storage.ensure_many([])
    items = [(f"many/{number // 30}/{number}", b"%d" % number) for number in range(100)]
    storage.ensure_many(items[:1])
    storage.ensure_many(items)
    storage.ensure_many(reversed(items))
    assert [storage.read(name) for name, _ in items] == [data for _, data in items]
    with _raises(Conflict):
        storage.ensure_many([*items[:5], (items[5][0], b"other")])
    assert storage.read(items[5][0]) == b"5"


def replace_overwrites(storage: Storage) -> None:
    for data in (b"first", b"", b"a longer one", b"x"):
        storage.replace("a/b", data)
        assert storage.read("a/b") == data


def write_at_keeps_what_lies_before(storage: Storage) -> None:
    storage.write_at("j/journal", 0, b"abcdef")
    storage.write_at("j/journal", 6, b"ghi")
    storage.write_at("j/journal", 3, b"XYZ")
    assert storage.read_range("j/journal", 0, 6) == b"abcXYZ"
    with _raises(Conflict):
        storage.write_at("j/journal", 1000, b"beyond")
    with _raises(Conflict):
        storage.write_at("j/new", 1, b"beyond")
    assert storage.read_range("j/journal", 0, 6) == b"abcXYZ"


def adopt_is_idempotent(storage: Storage) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        for link in (False, True):
            data = bytes(range(256)) * 5000 + bytes([link])
            path.unlink(missing_ok=True)
            path.write_bytes(data)
            name = f"adopted/{link}"
            storage.adopt(name, path, link=link)
            storage.adopt(name, path, link=link)
            path.unlink()
            path.write_bytes(b"other")
            with _raises(Conflict):
                storage.adopt(name, path, link=link)
            assert storage.read(name) == data
        with _raises(LedgerError):
            storage.adopt("adopted/none", Path(folder) / "missing")
        assert not storage.exists("adopted/none")


def a_large_file_is_adopted_whole(storage: Storage) -> None:
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder) / "file"
        data = bytes(range(256)) * (9 * 4096) + b"end"
        path.write_bytes(data)
        for _ in range(2):
            storage.adopt("large", path)
        assert storage.size("large") == len(data)
        assert storage.read_range("large", len(data) - 5, 10) == data[-5:]
        with storage.open("large") as stream:
            assert stream.read(3) + stream.read() == data
        for other in (data[:-1], data[:-1] + b"!"):
            path.write_bytes(other)
            with _raises(Conflict):
                storage.adopt("large", path)


def rename_moves(storage: Storage) -> None:
    storage.create("a/1", b"one")
    storage.create("b", b"two")
    storage.rename("a/1", "c/d/1")
    storage.rename("c/d/1", "b")
    assert list(storage.list()) == ["b"]
    assert storage.read("b") == b"one"
    with _raises(NotFound):
        storage.rename("a/1", "e")


def details_are_the_list_with_size_and_time(storage: Storage) -> None:
    before = time.time()
    for name, data in (("a/1", b"one"), ("a/2", b""), ("b", b"two")):
        storage.create(name, data)
    found = list(storage.details("a/"))
    assert [(detail.name, detail.size) for detail in found] == [("a/1", 3), ("a/2", 0)]
    assert all(before - 5 <= detail.modified <= time.time() + 5 for detail in found)
    assert [detail.name for detail in storage.details()] == list(storage.list())


def remove_forgets(storage: Storage) -> None:
    for name in ("a/1", "a/2", "b"):
        storage.create(name, b"x")
    storage.remove("a/1", "b", "missing", "a/missing/deeper")
    assert list(storage.list()) == ["a/2"]
    storage.remove()
    storage.create("a/1", b"again")
    assert storage.read("a/1") == b"again"


def list_is_sorted_by_name(storage: Storage) -> None:
    names = [
        "a",
        "a-b",
        "a.b",
        "a/b",
        "a/b.p/1",
        "a/b/c",
        "a0",
        "tile/0/000",
        "tile/0/000.p/7",
        "tile/0/x001/000",
        "é/ü",
    ]
    names = [name for name in names if name not in ("a", "a/b")]  # a name cannot be a folder too, on a disk
    for name in reversed(names):
        storage.create(name, b"x")
    assert list(storage.list()) == sorted(names)
    for prefix in ("a", "a/", "a/b", "a/b.", "tile/0/000", "tile/", "z", "é/"):
        expected = sorted(name for name in names if name.startswith(prefix))
        assert list(storage.list(prefix)) == expected, prefix


def unsafe_names_are_refused(storage: Storage) -> None:
    for name in _UNSAFE_NAMES:
        for act in (
            storage.read,
            storage.exists,
            storage.local_path,
            lambda n: storage.create(n, b""),
            lambda n: storage.replace(n, b""),
            lambda n: storage.write_at(n, 0, b""),
            lambda n: storage.ensure_many([("good", b""), (n, b"")]),
        ):
            with _raises(Refused):
                act(name)


def a_lock_is_exclusive_and_names_its_holder(storage: Storage) -> None:
    with storage.lock("log/.lock", "the first command"):
        try:
            with storage.lock("log/.lock", "the second"):
                raise AssertionError("two held the lock")
        except Locked as error:
            assert "the first command" in str(error)
        with storage.lock("other/.lock", "somebody else"):
            pass
    with storage.lock("log/.lock", "the third"):
        pass


def one_of_many_creators_wins(storage: Storage) -> None:
    winners: list[int] = []

    def race(number: int) -> None:
        try:
            storage.create("race/target", b"%d" % number)
        except AlreadyExists:
            return
        winners.append(number)

    threads = [threading.Thread(target=race, args=(number,)) for number in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(winners) == 1
    assert storage.read("race/target") == b"%d" % winners[0]


def it_says_what_it_is(storage: Storage) -> None:
    assert storage.writable
    assert storage.describe()


STORAGE_CHECKS: tuple[Callable[[Storage], None], ...] = (
    what_is_created_is_read,
    what_is_missing_is_not_found,
    ranges_end_with_the_bytes,
    create_is_exclusive,
    ensure_is_idempotent,
    ensure_many_is_ensure,
    replace_overwrites,
    write_at_keeps_what_lies_before,
    adopt_is_idempotent,
    a_large_file_is_adopted_whole,
    rename_moves,
    details_are_the_list_with_size_and_time,
    remove_forgets,
    list_is_sorted_by_name,
    unsafe_names_are_refused,
    a_lock_is_exclusive_and_names_its_holder,
    one_of_many_creators_wins,
    it_says_what_it_is,
)


@contextmanager
def _raises(kind: type[LedgerError]) -> Iterator[None]:
    try:
        yield
    except kind:
        return
    raise AssertionError(f"expected {kind.__name__}, and nothing was raised")
