"""Whose word an event is, in a log in which several write: nobody's PASS becomes somebody else's."""

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Draft, Log, LogReader, Signer, enrol_author, make_certificate, revoke_author, sign_drafts
from ledger.authors.authority import Authority
from marin.record.trust.authorship import Authorship
from tests.ledger.memory import MemoryStorage

LOG, ADA, BOB = (
    Signer(name, Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))
    for seed, name in enumerate(("log.example/written", "ada@desk", "bob@gpu"), 1)
)


def test_each_authors_word_is_that_authors_own() -> None:
    storage = MemoryStorage()
    Log.create(storage, LOG)
    with Log.open(storage, LOG) as log:
        log.append([enrol_author(LOG.name, LOG, who.verifier, make_certificate(who)) for who in (ADA, BOB)])
        places = {
            "log": log.append([Draft("t/v1", "s", {})])[0].index,
            "ada": log.append(sign_drafts(LOG.name, ADA, [Draft("t/v1", "s", {})]))[0].index,
            "bob": log.append(sign_drafts(LOG.name, BOB, [Draft("t/v1", "s", {})]))[0].index,
            "carol": log.append([Draft("t/v1", "s", {}, actor="carol")])[0].index,
            "two": log.append([Draft("t/v1", "s", {}, actor="ada@desk, bob@gpu")])[0].index,
        }
        with (
            pytest.MonkeyPatch.context() as patch
        ):  # what an older writer took: Bob's own revocation before his statement
            patch.setattr(Authority, "check", lambda self, drafts: {})
            event, statement = sign_drafts(LOG.name, BOB, [Draft("t/v1", "s", {})])
            revoked = revoke_author(LOG.name, BOB, BOB.verifier)
            places["nobody"] = log.append([event, revoked, statement])[0].index
    reader = LogReader(storage, [LOG.verifier])
    events = list(reader.events())

    def written(own: bool, mine: list[Signer]) -> Authorship:
        keys = [signer.verifier for signer in mine]
        return Authorship(reader, lambda kind: [i for i, e in events if e.type == kind], own=own, mine=keys)

    def authors(look: Authorship) -> set[str]:
        return {name for name, index in places.items() if look.is_mine(index)}

    assert authors(written(True, [ADA])) == {"log", "ada", "carol", "two"}  # Ada holds the key of the log
    assert authors(written(True, [])) == {"log", "carol", "two"}
    assert authors(written(False, [BOB])) == {"bob"}
    assert authors(written(False, [])) == set()
    assert [name for name, index in places.items() if written(False, []).is_keepers(index)] == ["log", "carol", "two"]
    shown = [written(False, []).shown(index, events[index][1]).actor for index in places.values()]
    assert shown[:4] == [LOG.name, "ada@desk", "bob@gpu", "carol (claimed)"]
    assert shown[4:] == ['"ada@desk, bob@gpu" (claimed)', "bob@gpu (claimed)"], "one name, and nobody's"
