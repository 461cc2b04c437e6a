"""Who wrote what, as the events of a log show it to anyone who trusts the log's keys.

An event is an author's where its ``actor`` is the author's name, and the next statement of authorship behind it has the
event's id and digest, under a key that the log had enrolled by then and not revoked. The statement is the last event of the
batch, so that nobody can sign what others appended before. Everything else in ``actor`` is a claim.
"""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, replace

from ledger.authors.enrolment import STATEMENTS, read_enrolment, read_revocation
from ledger.authors.statement import Statement, read_statement
from ledger.errors import LedgerError, Malformed
from ledger.format.event import AUTHOR_ENROLLED, AUTHOR_REVOKED, AUTHORED, KEY_RETIRED, KEY_ROTATED, Event
from ledger.format.finding import Finding
from ledger.format.note import VerifierKey

_NEVER = 1 << 62


@dataclass(frozen=True)
class Author:
    """A user whose key the log enrolled by the event at ``index``; ``until``: the event that revoked it."""

    vkey: VerifierKey
    may_enrol: bool
    index: int
    by: VerifierKey
    until: int | None = None
    certificate: bytes = b""

    @property
    def name(self) -> str:
        return self.vkey.name

    def stands(self, index: int) -> bool:
        """Whether an event at ``index`` may be of this author's."""
        return self.index < index < (_NEVER if self.until is None else self.until)


class Authors:
    """The authors of one log. ``findings``: events of authors' keys that do not hold, and are left out."""

    def __init__(
        self,
        origin: str,
        keys: Sequence[VerifierKey],
        events: Callable[[str], Sequence[int]],
        event: Callable[[int], Event],
    ) -> None:
        """``keys``: those under which the log is read; ``events``: the indices of a type, in order; ``event``: one of them,
        verified."""
        self._origin, self._event = origin, event
        self._signing = _signing_keys(
            origin, keys, [(i, event(i)) for t in (KEY_ROTATED, KEY_RETIRED) for i in events(t)]
        )
        self._known: dict[str, Author] = {}
        self.findings: list[Finding] = []
        for index in sorted([*events(AUTHOR_ENROLLED), *events(AUTHOR_REVOKED)]):
            try:
                self._take(index, event(index))
            except LedgerError as error:
                self.findings.append(Finding(error.what, f"entry {index}", error.expected, error.found))
        self._places = list(events(AUTHORED))
        self._statements: dict[int, Statement | None] = {}

    def __iter__(self) -> Iterator[Author]:
        return iter(self._known.values())

    def __len__(self) -> int:
        return len(self._known)

    def named(self, name: str) -> Author | None:
        """The author of this name."""
        return self._known.get(name)

    def of(self, index: int, event: Event) -> Author | None:
        """Who wrote the event at this index; None where nobody's signature shows it."""
        author = self._known.get(event.actor)
        if author is None or not author.stands(index):
            return None
        at = bisect_right(self._places, index)
        statement = self._statement(self._places[at]) if at < len(self._places) else None
        fits = statement is not None and statement.author == author.vkey and statement.covers(event)
        return author if fits else None

    def names(self, index: int, event: Event) -> Author | None:
        """In whose name the event at this index is, whether or not a signature shows it; None where nobody was enrolled by that
        name before it."""
        author = self._known.get(event.actor)
        return author if author is not None and author.index < index else None

    def check(self, events: Iterable[tuple[int, Event]]) -> Iterator[Finding]:
        """What is wrong with authorship in the whole log, whose ``events`` these are, in order."""
        unsigned: dict[str, tuple[int, Event]] = {}
        for index, event in events:
            if event.type != AUTHORED:
                if self.names(index, event) is not None:
                    unsigned[event.id] = index, event
                continue
            try:
                statement = read_statement(self._origin, event.body)
            except LedgerError as error:
                yield Finding(error.what, f"entry {index}, {error.where}", error.expected, error.found)
                continue
            author = self._known.get(statement.author.name)
            if author is None or author.vkey != statement.author or not author.stands(index):
                yield _uncounted(index, statement, author)
                continue
            for id in statement.digests:
                at, named = unsigned.get(id, (index, None))
                if named is not None and statement.covers(named):
                    del unsigned[id]
                elif named is not None:
                    yield Finding(
                        "an author signed another event than this one", f"entry {at}", id, f"by entry {index}"
                    )
            yield from map(_unsigned, unsigned.values())
            unsigned.clear()
        yield from map(_unsigned, unsigned.values())

    def _statement(self, index: int) -> Statement | None:
        if index not in self._statements:
            event = self._event(index)
            try:
                found = read_statement(self._origin, event.body) if event.stream == STATEMENTS else None
            except LedgerError:
                found = None
            author = None if found is None else self._known.get(found.author.name)
            counts = author is not None and author.stands(index)
            self._statements[index] = found if counts else None
        return self._statements[index]

    def _take(self, index: int, event: Event) -> None:
        if event.type == AUTHOR_ENROLLED:
            found = read_enrolment(self._origin, event.id, event.body)
            if not self._may_enrol(found.by, index) or found.vkey.name in {self._origin, *self._known}:
                raise _does_not_count(event)
            self._known[found.vkey.name] = Author(
                found.vkey, found.may_enrol, index, found.by, certificate=found.certificate
            )
        else:
            revoked = read_revocation(self._origin, event.id, event.body)
            author = self._known.get(revoked.vkey.name)
            by_self = revoked.by == revoked.vkey
            if author is None or author.vkey != revoked.vkey or not (by_self or self._may_enrol(revoked.by, index)):
                raise _does_not_count(event)
            if author.until is None:
                self._known[author.name] = replace(author, until=index)

    def _may_enrol(self, by: VerifierKey, index: int) -> bool:
        if by in self._signing:
            return index < self._signing[by]
        author = self._known.get(by.name)
        return author is not None and author.vkey == by and author.may_enrol and author.stands(index)


def _signing_keys(
    origin: str, keys: Sequence[VerifierKey], changes: Sequence[tuple[int, Event]]
) -> dict[VerifierKey, int]:
    """The log's own keys over its life, each with the index from which on it counts no more."""
    found = {key: _NEVER if key.until is None else key.until for key in keys if key.name == origin}
    for index, event in sorted(changes, key=lambda item: item[0]):
        for member in ("vkeys", "by"):
            for text in event.body.get(member, []):
                try:
                    key = VerifierKey.parse(text)
                except (Malformed, AttributeError):
                    continue
                if key.name == origin:
                    found.setdefault(key, _NEVER)
                    if event.type == KEY_RETIRED and member == "vkeys":
                        found[key] = min(found[key], index)
    return found


def _unsigned(item: tuple[int, Event]) -> Finding:
    index, event = item
    what = "an event in the name of an author who has not signed it"
    return Finding(what, f"entry {index}", f"a signature of {event.actor} in the same batch", "none")


def _uncounted(index: int, statement: Statement, author: Author | None) -> Finding:
    revoked = author is not None and author.vkey == statement.author and author.until is not None
    return Finding(
        "an authorship under a key that does not count",
        f"entry {index}",
        "a key that the log had enrolled and not revoked",
        f"{statement.author.name}+{statement.author.key_id:08x}{', revoked before' if revoked else ''}",
    )


def _does_not_count(event: Event) -> LedgerError:
    return Malformed(
        "an event of an author's key that does not count",
        where=event.id,
        expected="a key that may enrol, and a name that nobody has",
        found=str(event.body.get("by"))[:120],
    )
