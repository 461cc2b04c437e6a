"""Every driver of the storage port passes the one suite that the port ships."""

import pytest
from buckets import Bucket

from ledger import PosixStorage, Storage, open_storage
from ledger.testing import STORAGE_CHECKS
from tests.ledger.memory import MemoryStorage


@pytest.fixture(params=["posix", "memory", "s3", "s3, guarded", "gcs", "gcs, guarded"])
def storage(request: pytest.FixtureRequest) -> Storage:
    kind, _, guarded = request.param.partition(", ")
    if kind in ("s3", "gcs"):
        bucket: Bucket = request.getfixturevalue(kind)
        storage = open_storage(f"{bucket.url}/some/prefix")
        return storage.guard(["log/checkpoint"]) if guarded else storage
    if kind == "posix":
        return PosixStorage(request.getfixturevalue("tmp_path") / "root")
    return MemoryStorage()


@pytest.mark.parametrize("check", STORAGE_CHECKS, ids=lambda check: check.__name__)
def test_driver_conforms(check, storage):
    check(storage)
    assert not [name for name in storage.list() if ".tmp-" in name]
