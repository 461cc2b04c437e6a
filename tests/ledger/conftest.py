"""What the tests of the ledger share: one fixed key, and a log in memory or on disk."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Log, PosixStorage, Signer
from tests.ledger.memory import MemoryStorage


@pytest.fixture(scope="session")
def signer():
    """Deterministic, so that the bytes of a log are."""
    return Signer("log.example/test", Ed25519PrivateKey.from_private_bytes(bytes(range(32))))


@pytest.fixture(params=["posix", "memory"])
def storage(request, tmp_path, signer):
    """An empty log, by each driver that writes."""
    made = PosixStorage(tmp_path / "root") if request.param == "posix" else MemoryStorage()
    Log.create(made, signer)
    return made
