"""A remote that answers 5xx, hangs, breaks off, shortens, or serves wrong bytes: the table, over S3 and GCS.

Each fault strikes each kind of thing (small blob, large blob, its part hashes, manifest) in each direction, for as long
as it lasts or once. What passes by is retried; what stays is one error of one line; nothing is visible under a digest
that it has not; and once the fault is gone the same call succeeds, with no byte sent again that had arrived whole.
"""

from __future__ import annotations

import hashlib
from datetime import timedelta
from pathlib import Path

import pytest
from buckets import Bucket, Mirror
from http_faults import Fault
from obstore.store import from_url

from ledger import PART_SIZE, LedgerError, PosixStorage, Store, Tampered, copy_artifacts
from ledger.storage.https import HttpsStorage
from ledger.storage.objects import ObjectStorage
from ledger.store import transfer
from ledger.store.blobs.hashing import hash_bytes
from ledger.store.layout import BLOBS, INCOMING, PACKFILE_LIST, PACKFILES
from ledger.store.parts import HEADER

BIG = hashlib.shake_128(b"remote").digest(PART_SIZE + 11)
FILES = {"a": b"alpha", "b/c": b"beta", "big": BIG}
THINGS = {"small blob": hashlib.sha256(b"alpha").hexdigest(), "large blob": hash_bytes(BIG).digest[7:]}
ALL = ("small blob", "large blob", "part hashes", "manifest")


QUICK = timedelta(milliseconds=1)


def store_in(bucket: Bucket, seconds: float = 20) -> Store:
    """The store in a bucket, by a client that waits for less and repeats fewer times than the product's."""
    client = from_url(
        bucket.url,
        client_options={"timeout": timedelta(seconds=seconds), "allow_http": True},
        retry_config={
            "max_retries": 1,
            "retry_timeout": timedelta(seconds=30),
            "backoff": {"init_backoff": QUICK, "max_backoff": QUICK, "base": 2},
        },
    )
    return Store(ObjectStorage(client, bucket.url))


@pytest.fixture
def local(tmp_path: Path) -> Store:
    return Store(PosixStorage(tmp_path / "root"))


@pytest.fixture
def tree(local: Store, tmp_path: Path) -> str:
    for name, data in FILES.items():
        (tmp_path / "t" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "t" / name).write_bytes(data)
    return local.put_tree(tmp_path / "t").digest


def copy(source: Store, target: Store, digest: str) -> None:
    copy_artifacts(source, target, [digest], workers=2, pause=lambda seconds: None)


def fails(source: Store, target: Store, digest: str) -> LedgerError:
    with pytest.raises(LedgerError) as caught:
        copy(source, target, digest)
    assert "\n" not in str(caught.value)
    assert caught.value.where
    assert caught.value.cure
    return caught.value


def whole(store: Store) -> None:
    """What is visible has its digest, and a tree that is there has its files."""
    assert [str(finding) for finding in store.verify_all()] == []
    for digest, kind in store.digests():
        assert kind == "blob" or store.verify(digest) == []


def name_of(thing: str, tree: str) -> str:
    area = {"manifest": "trees", "part hashes": "parts"}.get(thing, "blobs")
    digest = tree.removeprefix("sha256:") if thing == "manifest" else THINGS.get(thing, THINGS["large blob"])
    return f"store/{area}/sha256/{digest[:2]}/{digest[2:]}"


# All of the table over GCS; over S3, whose client is the same but for the signature, one of each kind.
PUSHES = [("gcs", fault, thing) for fault in (Fault.STATUS, Fault.STATUS_AFTER) for thing in ALL]
PUSHES += [
    ("gcs", Fault.HANG, "small blob"),
    ("s3", Fault.STATUS, "large blob"),
    ("s3", Fault.STATUS_AFTER, "manifest"),
]


@pytest.mark.table
@pytest.mark.parametrize(("service", "fault", "thing"), PUSHES)
def test_push(request: pytest.FixtureRequest, local: Store, tree: str, service: str, fault: Fault, thing: str) -> None:
    bucket: Bucket = request.getfixturevalue(service)
    remote = store_in(bucket)
    bucket.service.faults.add(fault, method="PUT", path=name_of(thing, tree))
    error = fails(local, store_in(bucket, 0.3) if fault is Fault.HANG else remote, tree)
    assert bucket.url in error.where
    bucket.service.faults.clear()
    whole(remote)
    assert fault is Fault.STATUS_AFTER or not remote.has(tree)
    bucket.service.requests.clear()
    copy(local, remote, tree)
    whole(remote)
    assert remote.verify(tree) == []
    bucket.service.requests.clear()
    copy(local, remote, tree)
    assert bucket.service.asked("PUT", BLOBS) == [], "what is there is not sent again"


@pytest.mark.parametrize("fault", [Fault.STATUS, Fault.STATUS_AFTER])
def test_a_push_rides_out_a_fault_that_passes(bucket: Bucket, local: Store, tree: str, fault: Fault) -> None:
    remote = store_in(bucket)
    bucket.service.faults.add(fault, method="PUT", times=2)
    copy(local, remote, tree)
    assert remote.verify(tree) == []


PULLS = [("gcs", fault, thing) for fault in (Fault.STATUS, Fault.CUT, Fault.WRONG, Fault.SHORT) for thing in ALL]
PULLS += [("gcs", Fault.HANG, "large blob"), ("s3", Fault.CUT, "large blob"), ("s3", Fault.WRONG, "small blob")]


@pytest.mark.table
@pytest.mark.parametrize(("service", "fault", "thing"), PULLS)
def test_pull(
    request: pytest.FixtureRequest, local: Store, tree: str, tmp_path: Path, service: str, fault: Fault, thing: str
) -> None:
    bucket: Bucket = request.getfixturevalue(service)
    remote = store_in(bucket)
    copy(local, remote, tree)
    mine = Store(PosixStorage(tmp_path / "mine"))
    bucket.service.faults.add(fault, method="GET", path=name_of(thing, tree), skip=1 if thing == "large blob" else 0)
    if thing == "part hashes" and fault in (Fault.WRONG, Fault.SHORT):
        copy(remote, mine, tree)  # what the remote says of parts is not needed: the whole is hashed
        assert mine.verify(tree) == []
        return
    error = fails(store_in(bucket, 0.3) if fault is Fault.HANG else remote, mine, tree)
    assert bucket.url in error.where or "sha256:" in error.where
    if fault is Fault.WRONG and thing in ("small blob", "large blob"):
        assert isinstance(error, Tampered)
        assert thing == "small blob" or "part" in error.where, "the part is named"
    bucket.service.faults.clear()
    whole(mine)
    assert not mine.has(tree)
    bucket.service.requests.clear()
    copy(remote, mine, tree)
    assert mine.verify(tree) == []
    assert list(mine.storage.list(INCOMING)) == []
    if thing == "large blob":
        ranges = bucket.service.asked("GET", name_of(thing, tree))
        assert len(ranges) == 1, "the part that had arrived is not fetched again"


@pytest.mark.table
@pytest.mark.parametrize("fault", [Fault.STATUS, Fault.CUT, Fault.WRONG, Fault.SHORT])
def test_a_pull_rides_out_a_fault_that_passes(
    bucket: Bucket, local: Store, tree: str, tmp_path: Path, fault: Fault
) -> None:
    remote, mine = store_in(bucket), Store(PosixStorage(tmp_path / "mine"))
    copy(local, remote, tree)
    bucket.service.faults.add(fault, method="GET", path=BLOBS, times=2)
    copy(remote, mine, tree)
    assert mine.verify(tree) == []


@pytest.mark.parametrize("fault", [Fault.STATUS, Fault.CUT, Fault.WRONG])
def test_pull_over_https(mirror: Mirror, local: Store, tree: str, tmp_path: Path, fault: Fault) -> None:
    published, mine = Store(PosixStorage(mirror.folder)), Store(PosixStorage(tmp_path / "mine"))
    copy(local, published, tree)
    remote = Store(HttpsStorage(mirror.url, pause=0.001))
    mirror.service.faults.add(fault, method="GET", path=BLOBS)
    fails(remote, mine, tree)
    mirror.service.faults.clear()
    whole(mine)
    assert not mine.has(tree)
    copy(remote, mine, tree)
    assert mine.verify(tree) == []


@pytest.fixture
def many(local: Store, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """A tree of so many small files that they travel in packfiles, one that begins as a large blob's text, and a large
    one."""
    monkeypatch.setattr(transfer, "WORTH", 10)
    files = {f"{number}.txt": f"small {number}".encode() for number in range(20)}
    for name, data in (files | {"text": HEADER + b"of no large blob", "big": BIG}).items():
        (tmp_path / "many").mkdir(exist_ok=True)
        (tmp_path / "many" / name).write_bytes(data)
    return local.put_tree(tmp_path / "many").digest


@pytest.mark.table
@pytest.mark.parametrize("area", [PACKFILES, PACKFILE_LIST])
@pytest.mark.parametrize("fault", [Fault.STATUS, Fault.STATUS_AFTER])
def test_push_in_packfiles(bucket: Bucket, local: Store, many: str, fault: Fault, area: str) -> None:
    remote = store_in(bucket)
    bucket.service.faults.add(fault, method="PUT", path=area)
    if (fault, area) == (Fault.STATUS_AFTER, PACKFILE_LIST):
        copy(local, remote, many)  # the list is there, as the next try sees
        return
    assert bucket.url in fails(local, remote, many).where
    bucket.service.faults.clear()
    whole(store_in(bucket))
    assert not store_in(bucket).has(many)
    remote = store_in(bucket)
    bucket.service.requests.clear()
    copy(local, remote, many)
    whole(store_in(bucket))
    assert store_in(bucket).verify(many) == []
    sent = {request.partition("?")[0] for request in bucket.service.asked("PUT", BLOBS)}
    assert len(sent) == 2, "the text and the large one"
    assert len(bucket.service.asked("PUT", PACKFILES)) <= 1
    bucket.service.requests.clear()
    copy(local, store_in(bucket), many)
    assert bucket.service.asked("PUT", BLOBS) == [] == bucket.service.asked("PUT", PACKFILES), (
        "what is there is not sent again"
    )


STRIKES = [("gcs", fault, at) for fault in (Fault.STATUS, Fault.CUT, Fault.WRONG, Fault.SHORT) for at in (0, 1, 2)]
STRIKES += [("s3", Fault.CUT, 0), ("s3", Fault.WRONG, 2)]


@pytest.mark.table
@pytest.mark.parametrize(("service", "fault", "skip"), STRIKES)
def test_pull_from_packfiles(
    request: pytest.FixtureRequest, local: Store, many: str, tmp_path: Path, service: str, fault: Fault, skip: int
) -> None:
    """The fault strikes the tail of the packfile, its index, or the blobs, each of them one request."""
    bucket: Bucket = request.getfixturevalue(service)
    copy(local, store_in(bucket), many)
    (name,) = store_in(bucket).storage.list(PACKFILES)
    mine = Store(PosixStorage(tmp_path / "mine"))
    bucket.service.faults.add(fault, method="GET", path=name, skip=skip)
    fails(store_in(bucket), mine, many)
    bucket.service.faults.clear()
    whole(mine)
    assert not mine.has(many)
    bucket.service.requests.clear()
    copy(store_in(bucket), mine, many)
    assert mine.verify(many) == []
    assert len(bucket.service.asked("GET", name)) <= 3, "tail, index, and all blobs at once"
    assert len(list(mine.storage.list(PACKFILES))) == 1, "they are kept as they came"


@pytest.mark.table
@pytest.mark.parametrize("fault", [Fault.STATUS, Fault.CUT, Fault.WRONG, Fault.SHORT])
def test_a_pull_from_packfiles_rides_out_a_fault_that_passes(
    bucket: Bucket, local: Store, many: str, tmp_path: Path, fault: Fault
) -> None:
    mine = Store(PosixStorage(tmp_path / "mine"))
    copy(local, store_in(bucket), many)
    (name,) = store_in(bucket).storage.list(PACKFILES)
    bucket.service.faults.add(fault, method="GET", path=name, times=2)
    copy(store_in(bucket), mine, many)
    assert mine.verify(many) == []
