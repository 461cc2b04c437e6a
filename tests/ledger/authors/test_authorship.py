"""Authors of events: what a log takes in somebody's name, what it refuses, and what a reader believes of a log whose operator
writes what no writer takes. Each forgery is one kind: a function that tries, and the words by which it is refused or named."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace

import pytest
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import (
    AUTHORED,
    Authors,
    Conflict,
    Draft,
    Event,
    LedgerError,
    Log,
    LogReader,
    Refused,
    Signer,
    check,
    enrol_author,
    make_certificate,
    read_certificate,
    retire_key,
    revoke_author,
    rotate_key,
    sign_drafts,
)
from ledger.authors.authority import Authority
from ledger.authors.enrolment import STATEMENTS
from tests.ledger.memory import MemoryStorage

ORIGIN = "log.example/authors"


def key(name: str, seed: int) -> Signer:
    return Signer(name, Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))


LOG, ADA, BOB, EVE = key(ORIGIN, 1), key("ada@desk", 2), key("bob@gpu", 3), key("eve@cafe", 4)


def enrolment(author: Signer, by: Signer = LOG, *, origin: str = ORIGIN, may_enrol: bool = False) -> Draft:
    return enrol_author(origin, by, author.verifier, make_certificate(author), may_enrol=may_enrol)


def note(text: str, **more: str) -> Draft:
    return Draft("note.added/v1", "notes", {"text": text}, **more)


def written(author: Signer, *texts: str, origin: str = ORIGIN) -> list[Draft]:
    return sign_drafts(origin, author, [note(text, id=f"{author.name}-{text}") for text in texts])


@pytest.fixture
def storage() -> MemoryStorage:
    """A log in which Ada may enrol, Bob may append, and Eve is nobody."""
    made = MemoryStorage()
    Log.create(made, LOG)
    with Log.open(made, LOG) as log:
        log.append([enrolment(ADA, may_enrol=True)])
        log.append([enrolment(BOB, by=ADA)])
    return made


def append(storage: MemoryStorage, *drafts: Draft) -> list[int]:
    with Log.open(storage, LOG) as log:
        return [receipt.index for receipt in log.append(drafts)]


def authors(storage: MemoryStorage) -> tuple[Authors, list[tuple[int, Event]]]:
    reader = LogReader(storage, [LOG.verifier])
    events = list(reader.events())
    return Authors(ORIGIN, reader.keys, lambda kind: [i for i, e in events if e.type == kind], reader.event), events


def who(storage: MemoryStorage) -> list[str]:
    """The author of each note, "" where no signature shows one."""
    known, events = authors(storage)
    found = [known.of(index, event) for index, event in events if event.type == "note.added/v1"]
    return ["" if one is None else one.name for one in found]


def findings(storage: MemoryStorage) -> list[str]:
    return [finding.what for finding in check(storage, [LOG.verifier])]


def test_what_an_author_signed_is_the_authors_and_the_rest_is_not(storage) -> None:
    append(storage, *written(BOB, "one", "two"))
    append(storage, note("three"))
    append(storage, note("four", actor="carol"))
    append(storage, *written(ADA, "five"))
    assert who(storage) == ["bob@gpu", "bob@gpu", "", "", "ada@desk"]
    assert findings(storage) == []


def test_handing_a_batch_in_again_makes_no_second_one(storage) -> None:
    first = append(storage, *written(BOB, "one"))
    assert append(storage, *written(BOB, "one")) == first
    append(storage, *written(BOB, "one", "two"))
    assert who(storage) == ["bob@gpu", "bob@gpu"]


def test_what_another_wrote_before_is_taken_as_it_is_and_stays_the_others(storage) -> None:
    """Two who draw the same seed: one event, with an id that follows from what it says."""
    shared = note("a seed", id="seed-7")
    first = append(storage, *sign_drafts(ORIGIN, ADA, [shared]))
    again = append(storage, *sign_drafts(ORIGIN, BOB, [shared, note("more", id="bob-1")]))
    assert again[0] == first[0]
    assert who(storage) == ["ada@desk", "bob@gpu"]
    assert findings(storage) == []


def test_a_long_batch_has_several_signatures_and_is_one(storage) -> None:
    drafts = written(BOB, *map(str, range(450)))
    assert [draft.type for draft in drafts].count(AUTHORED) == 3
    append(storage, *drafts)
    assert who(storage) == ["bob@gpu"] * 450


def test_a_log_of_one_key_is_as_it_was() -> None:
    plain = MemoryStorage()
    Log.create(plain, LOG)
    append(plain, note("one", actor="ada@desk"), note("two"))
    assert [event.type for _, event in authors(plain)[1]] == ["note.added/v1"] * 2
    assert who(plain) == ["", ""]
    assert findings(plain) == []


def test_revoked_is_from_then_on(storage) -> None:
    append(storage, *written(BOB, "before"))
    append(storage, revoke_author(ORIGIN, ADA, BOB.verifier))
    with pytest.raises(Refused, match="the log revoked this key"):
        append(storage, *written(BOB, "after"))
    assert who(storage) == ["bob@gpu"]
    assert append(storage, revoke_author(ORIGIN, ADA, BOB.verifier)) == [4]
    assert findings(storage) == []


def test_everybody_may_end_the_own_key(storage) -> None:
    append(storage, revoke_author(ORIGIN, BOB, BOB.verifier))
    assert [author.until for author in authors(storage)[0]] == [None, 2]


def test_who_was_revoked_enrols_nobody(storage) -> None:
    append(storage, revoke_author(ORIGIN, LOG, ADA.verifier))
    with pytest.raises(Refused, match="the log revoked this key"):
        append(storage, enrolment(EVE, by=ADA))
    assert {author.name: author.until for author in authors(storage)[0]} == {"ada@desk": 2, "bob@gpu": None}


def test_enrolments_outlive_the_logs_key(storage) -> None:
    following = key(ORIGIN, 9)
    rotate_key(storage, LOG, following)
    retire_key(storage, following, [LOG.verifier])
    with Log.open(storage, following) as log:
        with pytest.raises(Refused):
            log.append([enrolment(EVE, by=LOG)])
        log.append(written(BOB, "one"))
        log.append([enrolment(EVE, by=following)])
    reader = LogReader(storage, [following.verifier])
    events = list(reader.events())
    known = Authors(ORIGIN, reader.keys, lambda kind: [i for i, e in events if e.type == kind], reader.event)
    assert [author.name for author in known] == ["ada@desk", "bob@gpu", "eve@cafe"]
    assert known.findings == []


# What is tried, and the words by which a writer refuses it

FORGERIES: Mapping[str, tuple[Callable[[], Sequence[Draft]], str]] = {}


def forgery(says: str) -> Callable[[Callable[[], Sequence[Draft]]], Callable[[], Sequence[Draft]]]:
    def enter(forge: Callable[[], Sequence[Draft]]) -> Callable[[], Sequence[Draft]]:
        assert isinstance(FORGERIES, dict)
        FORGERIES[forge.__name__] = forge, says
        return forge

    return enter


@forgery("an event in the name of an author who has not signed it")
def another_persons_name() -> Sequence[Draft]:
    return [note("I gave it a PASS", actor="ada@desk")]


@forgery("an authorship does not hold: actor")
def another_persons_name_over_ones_own_signature() -> Sequence[Draft]:
    *_, statement = written(BOB, "one")
    return [note("one", id="x", actor="ada@desk"), replace(statement, actor="ada@desk")]


@forgery("an authorship does not hold: events: bob@gpu-one")
def a_signature_moved_to_another_event() -> Sequence[Draft]:
    _, statement = written(BOB, "one")
    return [note("two", id="bob@gpu-one", actor="bob@gpu"), statement]


@forgery("an authorship does not hold: events: bob@gpu-one")
def a_signature_for_an_event_that_is_elsewhere() -> Sequence[Draft]:
    _, statement = written(BOB, "one")
    return [note("two"), statement]


@forgery("an authorship does not hold: events: bob@gpu-one")
def an_event_taken_out_of_a_signed_batch() -> Sequence[Draft]:
    return written(BOB, "one", "two")[1:]


@forgery("an event in the name of an author who has not signed it")
def an_event_put_into_a_signed_batch() -> Sequence[Draft]:
    first, statement = written(BOB, "one")
    return [first, note("two", actor="bob@gpu"), statement]


@forgery("an authorship does not hold: signature")
def a_batch_replayed_from_another_log() -> Sequence[Draft]:
    return written(BOB, "one", origin="log.example/another")


@forgery("the log has not enrolled this key: eve@cafe")
def a_key_that_nobody_enrolled() -> Sequence[Draft]:
    return written(EVE, "one")


@forgery("the log has not enrolled this key: bob@gpu")
def another_key_by_an_enrolled_name() -> Sequence[Draft]:
    return written(key("bob@gpu", 4), "one")


@forgery("the log has not enrolled this key: eve@cafe")
def enrolled_by_oneself() -> Sequence[Draft]:
    return [enrolment(EVE, by=EVE, may_enrol=True)]


@forgery("the log has not enrolled this key: eve@cafe")
def enrolled_by_oneself_within_the_batch() -> Sequence[Draft]:
    return [*written(EVE, "one"), enrolment(EVE, by=EVE, may_enrol=True)]


@forgery("this key enrols and revokes nobody: bob@gpu")
def enrolled_by_somebody_who_may_not() -> Sequence[Draft]:
    return [enrolment(EVE, by=BOB)]


@forgery("the log has not enrolled this key")
def enrolled_by_a_key_that_has_the_logs_name() -> Sequence[Draft]:
    return [enrolment(EVE, by=key(ORIGIN, 8))]


@forgery("not an event of an author's key: signature")
def enrolled_in_another_log() -> Sequence[Draft]:
    return [enrolment(EVE, origin="log.example/another")]


@forgery("not an event of an author's key: signature")
def rights_widened() -> Sequence[Draft]:
    draft = enrolment(EVE)
    return [replace(draft, body={**draft.body, "may": ["append", "enrol"]})]


@forgery("not an event of an author's key: id")
def an_enrolment_under_another_name() -> Sequence[Draft]:
    return [replace(enrolment(EVE), id="log.author-enrolled:mallory")]


@forgery("not an event of an author's key: signature")
def an_enrolment_with_another_certificate() -> Sequence[Draft]:
    draft = enrolment(EVE)
    return [replace(draft, body={**draft.body, "certificate": enrolment(BOB).body["certificate"]})]


@forgery("an author cannot have the log's name")
def an_author_called_as_the_log() -> Sequence[Draft]:
    return [enrol_author("eve", key("eve", 1), key("eve", 4).verifier, b"")]


@forgery("this key enrols and revokes nobody: bob@gpu")
def revoked_by_somebody_who_may_not() -> Sequence[Draft]:
    return [revoke_author(ORIGIN, BOB, ADA.verifier)]


@forgery("not an event of an author's key: signature")
def a_revocation_from_another_log() -> Sequence[Draft]:
    return [revoke_author("log.example/another", LOG, BOB.verifier)]


@forgery("an id that is kept for events of keys")
def the_id_of_a_revocation_taken_first() -> Sequence[Draft]:
    return sign_drafts(ORIGIN, BOB, [note("mine", id="log.author-revoked:bob@gpu")])


@forgery("an id that is kept for events of keys")
def the_id_of_a_retirement_taken_first() -> Sequence[Draft]:
    return sign_drafts(ORIGIN, BOB, [note("mine", id=f"log.key-retired:{LOG.verifier.key_id:08x}")])


@forgery("an event of authors in another stream")
def a_statement_in_another_stream() -> Sequence[Draft]:
    first, statement = written(BOB, "one")
    return [first, replace(statement, stream="run/1")]


@forgery("events: bob@gpu-one: expected an event between this statement and the one before")
def statements_the_wrong_way_round() -> Sequence[Draft]:
    """Behind each event stands the statement of the other one first."""
    (one, of_one), (two, of_two) = written(BOB, "one"), written(BOB, "two")
    return [one, two, of_two, of_one]


@forgery("events: bob@gpu-one: expected an event between this statement and the one before")
def a_statement_before_its_event() -> Sequence[Draft]:
    return written(BOB, "one")[::-1]


@forgery("a key signs in the request that revokes it")
def revoked_between_event_and_statement() -> Sequence[Draft]:
    event, statement = written(BOB, "one")
    return [event, revoke_author(ORIGIN, BOB, BOB.verifier), statement]


@forgery("a key signs in the request that revokes it")
def revoked_by_another_between_event_and_statement() -> Sequence[Draft]:
    event, statement = written(BOB, "one")
    return [event, revoke_author(ORIGIN, ADA, BOB.verifier), statement]


@pytest.mark.parametrize("name", FORGERIES)
def test_a_forged_authorship_is_refused_and_nothing_is_appended(name, storage) -> None:
    forge, says = FORGERIES[name]
    before = LogReader(storage, [LOG.verifier]).checkpoint()
    signer = key("eve", 1) if name == "an_author_called_as_the_log" else LOG
    if signer is not LOG:
        storage = MemoryStorage()
        before = Log.create(storage, signer)
    with Log.open(storage, signer) as log:
        with pytest.raises(Refused) as refused:
            log.append(forge())
        assert says in str(refused.value)
    assert LogReader(storage, [signer.verifier]).checkpoint() == before


def test_a_name_stands_for_one_key(storage) -> None:
    with pytest.raises(Conflict):
        append(storage, enrolment(key("bob@gpu", 4)))


def write(storage: MemoryStorage, *drafts: Draft) -> None:
    """As the software of an operator who asks nobody."""
    with pytest.MonkeyPatch.context() as patch, Log.open(storage, LOG) as log:
        patch.setattr(Authority, "check", lambda self, drafts: {})
        log.append(drafts)


@pytest.mark.parametrize(
    ("forged", "named"),
    [
        (another_persons_name, "an event in the name of an author who has not signed it"),
        (another_persons_name_over_ones_own_signature, "an event in the name of an author who has not signed it"),
        (a_signature_moved_to_another_event, "an author signed another event than this one"),
        (a_batch_replayed_from_another_log, "an authorship does not hold"),
        (a_key_that_nobody_enrolled, "an authorship under a key that does not count"),
        (another_key_by_an_enrolled_name, "an authorship under a key that does not count"),
        (an_event_put_into_a_signed_batch, "an event in the name of an author who has not signed it"),
        (enrolled_by_oneself, "an event of an author's key that does not count"),
        (enrolled_by_somebody_who_may_not, "an event of an author's key that does not count"),
        (enrolled_by_a_key_that_has_the_logs_name, "an event of an author's key that does not count"),
        (enrolled_in_another_log, "not an event of an author's key"),
        (rights_widened, "not an event of an author's key"),
        (revoked_by_somebody_who_may_not, "an event of an author's key that does not count"),
        (a_revocation_from_another_log, "not an event of an author's key"),
    ],
)
def test_what_an_operator_wrote_all_the_same_is_nobodys_and_is_named(forged, named, storage) -> None:
    write(storage, *forged())
    append(storage, *written(BOB, "honest"))
    assert who(storage)[-1] == "bob@gpu"
    assert set(who(storage)[:-1]) <= {"", "bob@gpu"}  # Bob signed one of a batch
    assert named in findings(storage)
    assert [author.name for author in authors(storage)[0] if author.until is None] == ["ada@desk", "bob@gpu"]


def test_what_others_appended_before_is_not_signed_afterwards(storage) -> None:
    """Bob hands in an event that stands there, in his name, and signs it again for himself."""
    append(storage, note("the result", id="r"))
    append(storage, *sign_drafts(ORIGIN, BOB, [note("the result", id="r")]))
    assert who(storage) == [""]


def test_a_revoked_key_in_a_log_whose_operator_takes_it(storage) -> None:
    append(storage, revoke_author(ORIGIN, LOG, BOB.verifier))
    write(storage, *written(BOB, "after"))
    assert who(storage) == [""]
    assert "an authorship under a key that does not count" in findings(storage)


def test_a_certificate_is_its_keys_and_every_byte_counts() -> None:
    made = make_certificate(BOB)
    assert read_certificate(made) == BOB.verifier
    for at in range(len(made)):
        with pytest.raises(Refused):
            read_certificate(made[:at] + bytes([made[at] ^ 1]) + made[at + 1 :])


@pytest.mark.parametrize("name", ["", "ada desk", "ada/desk", "a" * 61, "ada\n", "+", "log:x"])
def test_names_that_no_author_has(name) -> None:
    with pytest.raises(LedgerError):
        enrol_author(ORIGIN, LOG, replace(BOB, name=name or " ").verifier, b"")


def test_statements_stand_in_their_stream(storage) -> None:
    append(storage, *written(BOB, "one"))
    assert [event.stream for _, event in authors(storage)[1] if event.type == AUTHORED] == [STATEMENTS]
