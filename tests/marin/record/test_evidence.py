"""Whose word counts on a log's age: a time stamp by an authority that the verifier named, and nobody that the root brings."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey
from time_authority import Authority, serving_authority

from ledger import ANCHORED, Draft, Log, LogReader, Signer, stamp_checkpoint
from marin.record.trust.evidence import AUTHORITIES, Evidence, Sources
from tests.ledger.memory import MemoryStorage

pytestmark = pytest.mark.skipif(shutil.which("openssl") is None, reason="needs openssl")


@pytest.fixture(scope="module")
def authorities(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[Authority, Authority]]:
    """The one that stamped the log, and one of somebody else."""
    with (
        serving_authority(tmp_path_factory.mktemp("one")) as one,
        serving_authority(tmp_path_factory.mktemp("other")) as other,
    ):
        yield one, other


def found(stamping: Authority, trusted: Path | None, *, brought: bool) -> Evidence:
    """What a verifier who trusts the certificates in ``trusted`` is told of a log that ``stamping`` stamped."""
    signer, storage = Signer("log.example/test", Ed25519PrivateKey.generate()), MemoryStorage()
    Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        log.append([Draft("t/v1", "s", {"n": n}) for n in range(3)])
        reader = LogReader(storage, [signer.verifier])
        draft, _ = stamp_checkpoint(reader.checkpoint(), stamping.url, stamping.certificates)
        log.append([draft])
    if brought:
        storage.replace(AUTHORITIES, (stamping.folder / "ca.pem").read_bytes())
    reader.refresh()
    stamps = [(index, event) for index, event in reader.events() if event.type == ANCHORED]
    assert len(stamps) == 1
    return Sources(authorities=trusted).gather(storage, reader, [signer.verifier], stamps)


@pytest.mark.parametrize("brought", [True, False])
def test_an_authority_that_the_verifier_named_vouches(authorities: tuple[Authority, Authority], brought: bool) -> None:
    one, _ = authorities
    evidence = found(one, one.folder / "ca.pem", brought=brought)
    (vouched,) = evidence.vouched
    assert (vouched.kind, vouched.size, vouched.by) == ("time stamp", 3, "CN=Test Authority")
    assert (evidence.findings, evidence.claimed) == ((), ())


def test_an_authority_that_lies_in_the_root_is_a_claim_of_the_log(authorities: tuple[Authority, Authority]) -> None:
    evidence = found(authorities[0], None, brought=True)
    assert (evidence.vouched, evidence.findings) == ((), ())
    (claimed,) = evidence.claimed
    assert "events 0 to 2 existed before" in claimed and claimed.endswith("an authority of the root's")


def test_without_certificates_nothing_is_said(authorities: tuple[Authority, Authority]) -> None:
    evidence = found(authorities[0], None, brought=False)
    assert (evidence.vouched, evidence.findings, evidence.claimed) == ((), (), ())
    assert evidence.undecided


def test_a_stamp_of_another_authority_than_the_verifiers_is_found(authorities: tuple[Authority, Authority]) -> None:
    one, other = authorities
    evidence = found(one, other.folder / "ca.pem", brought=True)
    assert (evidence.vouched, evidence.claimed) == ((), ())
    assert evidence.findings
