"""Every driver of the storage port passes the one suite that the port ships."""

import obstore.store
import pytest

from ledger import MemoryStorage, PosixStorage
from ledger.storage.objects import ObjectStorage
from ledger.testing import STORAGE_CHECKS


@pytest.fixture(params=["posix", "memory", "objects", "objects, guarded"])
def storage(request, tmp_path):
    if request.param.startswith("objects"):
        storage = ObjectStorage(obstore.store.MemoryStore(), "memory://bucket")
        return storage.guard(["log/checkpoint"]) if "guarded" in request.param else storage
    if request.param == "posix":
        return PosixStorage(tmp_path / "root")
    return MemoryStorage()


@pytest.mark.parametrize("check", STORAGE_CHECKS, ids=lambda check: check.__name__)
def test_driver_conforms(check, storage):
    check(storage)
    assert not [name for name in storage.list() if ".tmp-" in name]
