"""What a writer takes in the name of an author, and by whose word: asked before anything is placed in the log."""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass

from ledger.authors import enrolment as enrolments
from ledger.authors.statement import Statement, read_signed
from ledger.errors import LedgerError, Refused
from ledger.format.event import AUTHOR_ENROLLED, AUTHOR_REVOKED, AUTHOR_TYPES, AUTHORED, RESERVED_IDS, Draft, Event
from ledger.format.note import VerifierKey


@dataclass(frozen=True)
class Authority:
    """Of one log. ``keys``: those that sign it now; ``event``: the event with an id, among those that are placed already
    too."""

    origin: str
    keys: Callable[[], Sequence[VerifierKey]]
    event: Callable[[str], Event | None]

    def check(self, drafts: Sequence[Draft]) -> Mapping[str, Statement]:
        """The statements of a request by the ids of what they sign.

        Raises:
            Refused: an authorship, an enrolment or a revocation does not hold, or an event is in an author's name who has not
                signed it.
        """
        named = {draft.actor for draft in drafts if draft.actor is not None and draft.type != AUTHORED}
        speaking = [draft for draft in drafts if draft.type in AUTHOR_TYPES]
        if not named and not speaking:
            return {}
        signed = read_signed(self.origin, drafts) if speaking else {}
        signing = {str(statement.author): statement.author for statement in signed.values()}
        for author in signing.values():
            self.enrolment(author)
        for draft in drafts:
            stream = enrolments.STATEMENTS if draft.type == AUTHORED else enrolments.AUTHORS_STREAM
            if draft.type in AUTHOR_TYPES and draft.stream != stream:
                raise Refused(
                    "an event of authors in another stream",
                    where=f"{draft.type} {draft.id}",
                    expected=stream,
                    found=draft.stream[:80],
                    cure="use `ledger key`",
                )
            if draft.type == AUTHOR_ENROLLED:
                self._check_enrolment(draft)
            elif draft.type == AUTHOR_REVOKED:
                self._check_revocation(draft, signing)
            elif draft.type != AUTHORED and draft.id not in signed:
                self._check_unsigned(draft)
        return signed

    def enrolment(self, author: VerifierKey) -> enrolments.Enrolment:
        """How the log enrolled this key, which it has not revoked.

        Raises:
            Refused: it did not, or it did.
        """
        found = self._enrolled(author.name)
        if found is None or found.vkey != author:
            raise _refused(
                "the log has not enrolled this key",
                author,
                "a key that `ledger key people` lists",
                "the key of somebody else by that name" if found else "no author of that name",
                "have it enrolled: `ledger key enrol`",
            )
        if self._revoked(author):
            raise _refused(
                "the log revoked this key",
                author,
                "a key that it did not revoke",
                "one whose later events are refused",
                "make another under another name: `ledger key new`",
            )
        return found

    def _check_enrolment(self, draft: Draft) -> None:
        found = enrolments.read_enrolment(self.origin, str(draft.id), draft.body)
        if found.vkey.name == self.origin:
            raise _refused(
                "an author cannot have the log's name", found.vkey, "another name", self.origin, "choose one"
            )
        self._check_may_enrol(found.by)

    def _check_revocation(self, draft: Draft, signing: Collection[str]) -> None:
        found = enrolments.read_revocation(self.origin, str(draft.id), draft.body)
        if str(found.vkey) in signing:
            raise _refused(
                "a key signs in the request that revokes it",
                found.vkey,
                "a revocation in a request of its own",
                "one beside events that the key signs",
                "append the events first",
            )
        there = self._enrolled(found.vkey.name)
        if there is None or there.vkey != found.vkey:
            raise _refused(
                "the log has not enrolled this key",
                found.vkey,
                "a key that it enrolled",
                "none",
                "see `ledger key people`",
            )
        if found.by != found.vkey:  # anyone may end what the own key may do
            self._check_may_enrol(found.by)

    def _check_may_enrol(self, by: VerifierKey) -> None:
        if by not in self.keys() and not self.enrolment(by).may_enrol:
            raise _refused(
                "this key enrols and revokes nobody",
                by,
                "a key that signs this log, or an author's who may enrol",
                "an author's who may only append",
                "ask who holds the log's key",
            )

    def _check_unsigned(self, draft: Draft) -> None:
        if draft.actor is not None and self._enrolled(draft.actor) is not None:
            raise Refused(
                "an event in the name of an author who has not signed it",
                where=f"{draft.type} {draft.id}",
                expected=f"a signature of {draft.actor} in the same batch",
                found="none",
                cure="leave the actor out, or append with that author's key",
            )

    def _enrolled(self, name: str) -> enrolments.Enrolment | None:
        event = self._event(enrolments.enrolled_id(name), AUTHOR_ENROLLED)
        return None if event is None else enrolments.read_enrolment(self.origin, event.id, event.body)

    def _revoked(self, author: VerifierKey) -> bool:
        event = self._event(enrolments.revoked_id(author.name), AUTHOR_REVOKED)
        try:
            return event is not None and enrolments.read_revocation(self.origin, event.id, event.body).vkey == author
        except Refused:
            return False  # no writer takes such an event, and no reader believes it

    def _event(self, id: str, type: str) -> Event | None:
        event = self.event(id)
        return event if event is not None and event.type == type else None


def check_id(draft: Draft) -> None:
    """Raises where the id belongs to another type of event.

    Raises:
        Refused: it does.
    """
    if str(draft.id).startswith(RESERVED_IDS) and draft.type.partition("/")[0] != str(draft.id).partition(":")[0]:
        raise Refused(
            "an id that is kept for events of keys",
            where=f"{draft.type} {draft.id}",
            expected=f"an id that does not begin with {' or '.join(RESERVED_IDS)}",
            found=str(draft.id)[:80],
            cure="choose another id; nothing was appended",
        )


def _refused(what: str, key: VerifierKey, expected: str, found: str, cure: str) -> LedgerError:
    return Refused(what, where=f"{key.name}+{key.key_id:08x}", expected=expected, found=found, cure=cure)
