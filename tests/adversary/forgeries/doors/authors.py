"""Words in somebody else's name, in a log that several write: Ada may enrol, Bob may append, Carol's key was revoked, and Eve is
nobody. What is forged is a verdict on the run: five times PASS.

``service``: what Bob hands in to the append service that serves other machines. The log's keeper must not find a PASS of the
keeper's own, or of Ada's. ``names``: the same, written by an operator whose software asks nobody; anyone who reads the log must
not find a PASS of Ada's.
"""

from __future__ import annotations

import io
from collections.abc import Callable, Sequence
from contextlib import redirect_stdout
from dataclasses import replace

from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from ledger import Author, Draft, Log, Signer, enrol_author, make_certificate, revoke_author, sign_drafts
from ledger.authors.authority import Authority
from ledger.service.remote_server import check_all_signed
from marin.cli.looking.experiments import print_experiments
from marin.history.catalog import open_catalog
from marin.history.run import record_digest
from marin.history.runs import followed, load, replay_stream, stream_of
from marin.kinds.families.experiment import EXPERIMENT_REPORTED
from marin.plugins.mlflow.folding.fold import Fold
from marin.plugins.mlflow.folding.intents import Tags
from marin.record import events as kinds
from marin.record.root import Root, open_root
from marin.record.trust.trusted import CLAIMED
from marin.record.verdicts import NEVER, verdict_line
from marin.verify.earlier import Proofs, conditions
from tests.adversary.forgeries.doors.events import signed, stranger
from tests.adversary.forgeries.doors.register import Answer, Stall, door, kind
from tests.adversary.forgeries.doors.views import verdict
from tests.adversary.forgeries.kinds.measuring import cited
from tests.adversary.forgeries.workshop import OTHER, as_operator, changes

ADA, BOB, CAROL, EVE = (
    Signer(name, Ed25519PrivateKey.from_private_bytes(bytes([seed]) * 32))
    for seed, name in enumerate(("ada@desk", "bob@gpu", "carol@left", "eve@cafe"), 1)
)
Drafts = Sequence[Draft]
CONCLUDED = f"{CLAIMED} confirmatory"


class Hand:
    """What a forger in a log has at hand: the log's name, and a PASS to be signed or not."""

    def __init__(self, root: Root, run: str) -> None:
        self.origin, self._root, self._run = root.verifier.name, root, run

    def word(self, actor: str | None = None, name: str = "word") -> Draft:
        """Five times PASS, in this name."""
        body = verdict(self._root, self._run)
        return Draft(kinds.REPLAY_COMPLETED, stream_of(self._run), body, id=name, actor=actor)

    def executed(self, actor: str | None = None) -> list[Draft]:
        """That every segment was executed again, in this name."""
        run = load(self._root.history(), self._run)
        under = conditions(run)
        return [
            Draft(
                kinds.REPLAY_SEGMENT,
                replay_stream(run.run),
                {
                    "run": run.run,
                    "start": one.body.start,
                    "end": one.body.end,
                    "segment": record_digest(one.body),
                    "conditions": under,
                },
                id=f"executed-{one.body.start}",
                actor=actor,
            )
            for one in run.segments
        ]

    def of(self, author: Signer, *drafts: Draft, origin: str = "") -> list[Draft]:
        """These, or a PASS, signed by an author: the events, and the statement behind them."""
        return sign_drafts(origin or self.origin, author, drafts or [self.word()])

    def enrolled(self, author: Signer, by: Signer, *, may_enrol: bool = False) -> Draft:
        return enrol_author(self.origin, by, author.verifier, make_certificate(author), may_enrol=may_enrol)


Forge = Callable[[Hand], Drafts]


def _log(stall: Stall) -> tuple[Root, Signer, Hand]:
    """The forger's root with its authors, the key of its log, and what a forger has."""
    root = open_root(str(signed(stall).path))
    with as_operator(stall.base):
        signer = root.signer()
        hand = Hand(root, stall.shop.run)
        with Log.open(root.storage, signer) as log:
            log.append([hand.enrolled(ADA, signer, may_enrol=True)])
            log.append([hand.enrolled(who, ADA) for who in (BOB, CAROL)])
            log.append([revoke_author(hand.origin, signer, CAROL.verifier)])
    return root, signer, hand


def _shown(root: Root) -> tuple[str, str]:
    """Whose word the PASS is, and what the list says."""
    with open_catalog(root) as catalog:
        (found,) = catalog.runs()
        by = [event.actor for _, event in root.history().events(type=kinds.REPLAY_COMPLETED)]
        return ", ".join(by), verdict_line(found.verdicts, found.claimed, found.answerable)


@door("service")
def _service(stall: Stall) -> Answer:
    root, signer, hand = _log(stall)
    forge: Forge = stall.held["forge"]
    with as_operator(stall.base), Log.open(root.storage, signer) as log:
        drafts = forge(hand)
        check_all_signed(hand.origin, Author(BOB.verifier, False, 0, signer.verifier), drafts)
        log.append(drafts)
    with as_operator(stall.base):
        by, word = _shown(open_root(root.location))
    if stall.held.get("honest"):
        return Answer(by == BOB.name and not word.startswith("PASS"), f"{word}, by {by}")
    return Answer(word.startswith("PASS") or ADA.name in by.split(", "), f"{word}, by {by}")


@door("executed")
def _executed(stall: Stall) -> Answer:
    """Segments that an author says to have executed: the keeper takes none of them over, and nothing says that they hold."""
    root, signer, hand = _log(stall)
    forge: Forge = stall.held["forge"]
    with as_operator(stall.base):
        keeper = open_root(root.location)
        with Log.open(root.storage, signer) as log, changes() as made:
            made.setattr(Authority, "check", lambda self, drafts: {})
            log.append(forge(hand))
        history, reader = keeper.history(), keeper.reader()
        run, mine = load(history, stall.shop.run), history.written.is_mine
        taken = Proofs.read(run, keeper, {}, fresh=False).known
        fold = Fold(root.verifier.name, own=reader)
        told = [one for at, event in reader.events() for one in fold.apply(at, event, mine=mine(at))]
        tags = [
            one.values["marin.followed"] for one in told if isinstance(one, Tags) and "marin.followed" in one.values
        ]
        said = [word for word in (followed(history, run, mine), *tags) if word]
    if stall.held.get("honest"):
        return Answer(len(taken) == len(run.segments) and len(said) > 1, "; ".join(said))
    return Answer(bool(said) or bool(taken), f"{len(taken)} taken over; {'; '.join(said) or 'nobody follows it'}")


@door("conclusion")
def _conclusion(stall: Stall) -> Answer:
    """What a report concluded, as the list of experiments and MLflow show it: to the keeper, or to a ``stranger``."""
    root, signer, hand = _log(stall)
    forge: Forge = stall.held["forge"]
    with as_operator(stall.base), Log.open(root.storage, signer) as log, changes() as made:
        made.setattr(Authority, "check", lambda self, drafts: {})
        log.append(forge(hand))
    with stranger(stall) if stall.held.get("stranger") else as_operator(stall.base):
        read = open_root(root.location)
        history, reader, listed = read.history(), read.reader(), io.StringIO()
        with redirect_stdout(listed):
            print_experiments(read, as_json=False)
        fold = Fold(root.verifier.name, own=reader if read.is_own() else None)
        told = [one for at, event in reader.events() for one in fold.apply(at, event, mine=history.written.is_mine(at))]
    words = [
        one.values["marin.conclusion"] for one in told if isinstance(one, Tags) and "marin.conclusion" in one.values
    ]
    said = [CONCLUDED in text for text in (*words, listed.getvalue())]
    return Answer(not all(said), f"{', '.join(words)}; {listed.getvalue()}")


@door("names")
def _names(stall: Stall) -> Answer:
    root, signer, hand = _log(stall)
    forge: Forge = stall.held["forge"]
    with changes() as made, as_operator(stall.base), Log.open(root.storage, signer) as log:
        made.setattr(Authority, "check", lambda self, drafts: {})
        log.append(forge(hand))
    with stranger(stall):
        by, word = _shown(open_root(root.location))
    if stall.held.get("honest"):
        return Answer(by == BOB.name, f"{word}, by {by}")
    named = {ADA.name, BOB.name, CAROL.name} & set(by.split(", "))
    return Answer(bool(named) or not word.startswith(f"{NEVER} "), f"{word}, by {by}")


def _note(hand: Hand) -> list[Draft]:
    """Something of Bob's, signed."""
    return hand.of(BOB, Draft("note.added/v1", "notes", {"text": "a note"}, id="note"))


def _crossed(hand: Hand) -> Drafts:
    (word, of_word), (note, of_note) = hand.of(BOB), _note(hand)
    return [word, note, of_note, of_word]


def _put_in(hand: Hand) -> Drafts:
    note, of_note = _note(hand)
    return [note, hand.word(ADA.name), of_note]


def _revoked_within(by: Signer) -> Forge:
    def forge(hand: Hand) -> Drafts:
        word, of_word = hand.of(BOB)
        return [word, revoke_author(hand.origin, by, BOB.verifier), of_word]

    return forge


def _revoked_before(hand: Hand, drafts: Drafts) -> Drafts:
    *events, statement = hand.of(BOB, *drafts)
    return [*events, revoke_author(hand.origin, BOB, BOB.verifier), statement]


def _widened(hand: Hand) -> Drafts:
    """The enrolment of Bob, with a right more, and then whom he enrols."""
    made = hand.enrolled(EVE, BOB)
    return [replace(made, body={**made.body, "may": ["append", "enrol"]})]


NOT_SIGNED = "an event that its sender has not signed"
FORGED: dict[str, tuple[Forge, str]] = {
    "PASS of nobody": (lambda hand: [hand.word()], NOT_SIGNED),
    "PASS in another's name": (lambda hand: [hand.word(ADA.name)], NOT_SIGNED),
    "PASS in the log's name": (lambda hand: [hand.word(hand.origin)], NOT_SIGNED),
    "PASS in one's own name, unsigned": (lambda hand: [hand.word(BOB.name)], NOT_SIGNED),
    "PASS in the name of nobody that is known": (lambda hand: [hand.word("dan@lab")], NOT_SIGNED),
    "PASS in another's name, over one's own signature": (
        lambda hand: [hand.word(ADA.name), hand.of(BOB)[1]],
        "an authorship does not hold",
    ),
    "a signature moved to another event": (
        lambda hand: [
            replace(hand.word(BOB.name), body={**hand.word().body, "details": {"ledger": []}}),
            hand.of(BOB)[1],
        ],
        "an authorship does not hold",
    ),
    "a signature for an event in another stream": (
        lambda hand: [hand.word(BOB.name), hand.of(BOB, replace(hand.word(), stream="notes"))[1]],
        "an authorship does not hold",
    ),
    "a batch of another log": (lambda hand: hand.of(BOB, origin="log.example/other"), "an authorship does not hold"),
    "a batch of another author": (lambda hand: hand.of(ADA, replace(hand.word(), stream="notes")), NOT_SIGNED),
    "an event put into a signed batch": (_put_in, NOT_SIGNED),
    "a statement behind somebody else's": (_crossed, "an event between this statement and the one before"),
    "a statement before its event": (
        lambda hand: hand.of(BOB)[::-1],
        "an event between this statement and the one before",
    ),
    "the own key revoked between event and statement": (_revoked_within(BOB), "signs in the request that revokes it"),
    "a key revoked by another between event and statement": (
        _revoked_within(ADA),
        "signs in the request that revokes it",
    ),
    "a statement in another stream": (
        lambda hand: [hand.of(BOB)[0], replace(hand.of(BOB)[1], stream=stream_of("other"))],
        "an event of authors in another stream",
    ),
    "a revoked key": (lambda hand: hand.of(CAROL), NOT_SIGNED),
    "a key that nobody enrolled": (lambda hand: hand.of(EVE), NOT_SIGNED),
    "another key by Ada's name": (lambda hand: hand.of(Signer(ADA.name, EVE.key)), NOT_SIGNED),
    "another key by the own name": (lambda hand: hand.of(Signer(BOB.name, EVE.key)), NOT_SIGNED),
}
"""What is handed in, and by which words the service refuses it."""
WHO: dict[str, tuple[Forge, str]] = {
    "somebody enrolled by who may not": (lambda hand: [hand.enrolled(EVE, BOB)], "this key enrols and revokes nobody"),
    "somebody enrolled by oneself": (lambda hand: [hand.enrolled(EVE, EVE)], "the log has not enrolled this key"),
    "somebody enrolled by who was revoked": (lambda hand: [hand.enrolled(EVE, CAROL)], "the log revoked this key"),
    "somebody enrolled by a key with the log's name": (
        lambda hand: [hand.enrolled(EVE, Signer(hand.origin, EVE.key))],
        "the log has not enrolled this key",
    ),
    "a right more": (_widened, "not an event of an author's key"),
    "a name that somebody has": (
        lambda hand: [hand.enrolled(Signer(ADA.name, EVE.key), BOB)],
        "this key enrols and revokes nobody",
    ),
    "a name that somebody had": (
        lambda hand: [hand.enrolled(Signer(CAROL.name, EVE.key), BOB)],
        "this key enrols and revokes nobody",
    ),
    "another one's key revoked by who may not": (
        lambda hand: [revoke_author(hand.origin, BOB, ADA.verifier)],
        "this key enrols and revokes nobody",
    ),
    "a revocation of another log": (
        lambda hand: [revoke_author("log.example/other", ADA, ADA.verifier)],
        "not an event of an author's key",
    ),
}
"""Keys of authors: what is handed in, and by which words it is refused."""


def _reported(author: Signer | None, *, to_a_stranger: bool = False) -> Callable[[Stall], None]:
    """A report on the experiment that the run cites says that it is confirmed: the log's own word, or an author's."""

    def put(stall: Stall) -> None:
        registered, _ = cited(stall.shop)
        about = {name: registered.body[name] for name in ("experiment", "registration")}
        said = {"verdict": "confirmatory", "supported": True, "deviations": [], "artifact": OTHER, "runs": []}
        draft = Draft(EXPERIMENT_REPORTED, "experiments", about | said, id="report")
        stall.held |= {
            "forge": lambda hand: [draft] if author is None else hand.of(author, draft),
            "stranger": to_a_stranger,
        }

    return put


def _held(forge: Forge, *, honest: bool = False) -> Callable[[Stall], None]:
    def put(stall: Stall) -> None:
        stall.held |= {"forge": forge, "honest": honest}

    return put


for _name, (_forge, _says) in (FORGED | WHO).items():
    kind("service", _name, _says)(_held(_forge))
for _name, (_forge, _) in FORGED.items():
    if _name not in ("PASS of nobody", "PASS in the log's name", "a batch of another author"):
        kind("names", _name, "(claimed)")(_held(_forge))
kind("conclusion", "by the keeper", "", honest=True)(_reported(None))
kind("conclusion", "by an author", CLAIMED)(_reported(BOB))
kind("conclusion", "in a log of somebody else", CLAIMED)(_reported(None, to_a_stranger=True))
kind("executed", "by the keeper", "", honest=True)(_held(lambda hand: hand.executed(), honest=True))
for _name, _forge in {
    "by an author": lambda hand: hand.of(BOB, *hand.executed()),
    "by an author whose key was revoked": lambda hand: hand.of(CAROL, *hand.executed()),
    "in an author's name, by nobody": lambda hand: hand.executed(BOB.name),
    "by an author whose statement stands before them": lambda hand: hand.of(BOB, *hand.executed())[::-1],
    "by an author who revokes the own key before signing": lambda hand: _revoked_before(hand, hand.executed()),
}.items():
    kind("executed", _name, "nobody follows it")(_held(_forge))
for _door in ("service", "names"):
    kind(_door, "an author's own word", "", honest=True)(_held(lambda hand: hand.of(BOB), honest=True))
