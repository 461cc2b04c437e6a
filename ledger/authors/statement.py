"""What an author says to have written: one signature for the events of a batch, in the last event of it.

    log.authored/v1   {"author": …, "events": [[id, digest], …], "signature": …}

The digest of an event is the SHA-256 of its canonical JSON without ``seq`` and ``time``, which the log gives it. The author
signs origin, key, ids and digests. So a statement fits no other event, no other log and no other author, and an event is an
author's only where its ``actor`` is the author's name.
"""

from __future__ import annotations

import base64
import hashlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from ledger.authors.enrolment import STATEMENTS
from ledger.errors import Malformed, Refused
from ledger.format.canonical import canonical_bytes
from ledger.format.event import AUTHOR_TYPES, AUTHORED, Draft, Event
from ledger.format.note import ED25519, Signer, VerifierKey, decode_base64

_MOST = 200
"""Events under one signature: an entry has at most 65,535 bytes, an id 200."""
_ID, _DIGEST = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.:/@=+-]{0,199}\Z"), re.compile(r"[0-9a-f]{64}\Z")


@dataclass(frozen=True)
class Statement:
    """An author and the events that this author signed: digests by id."""

    author: VerifierKey
    digests: Mapping[str, str]

    def covers(self, event: Event) -> bool:
        """Whether this author signed that event, as it is."""
        return event.actor == self.author.name and self.digests.get(event.id) == _digest(
            event.actor, event.body, event.id, event.stream, event.type
        )


def sign_drafts(origin: str, author: Signer, drafts: Sequence[Draft]) -> list[Draft]:
    """These drafts in the author's name, each run of them followed by the statement that signs it. Events of authors' keys,
    which are signed in themselves, stay as they are."""
    made: list[Draft] = []
    for start in range(0, len(drafts), _MOST):
        part = drafts[start : start + _MOST]
        mine = [draft if draft.type in AUTHOR_TYPES else _in_the_name(author.name, draft) for draft in part]
        digests = {str(draft.id): digest_of(draft) for draft in mine if draft.type not in AUTHOR_TYPES}
        made += [*mine, *([_stated(origin, author, digests)] if digests else [])]
    return made


def _stated(origin: str, author: Signer, digests: Mapping[str, str]) -> Draft:
    text = _signed_text(origin, Statement(author.verifier, digests))
    body = {
        "author": str(author.verifier),
        "events": [list(item) for item in digests.items()],
        "signature": base64.b64encode(author.sign(text)).decode(),
    }
    name = hashlib.sha256(text.encode()).hexdigest()[:32]
    return Draft(AUTHORED, STATEMENTS, body, id=f"log.authored:{name}", actor=author.name)


def _in_the_name(author: str, draft: Draft) -> Draft:
    named = Draft(draft.type, draft.stream, draft.body, draft.id, draft.expect_seq, author, draft.time)
    named.__dict__["body_bytes"] = draft.body_bytes  # made once
    return named


def digest_of(draft: Draft) -> str:
    """The digest of a draft that names its actor."""
    return _digest(draft.actor, draft.body, draft.id, draft.stream, draft.type)


def _digest(actor: str | None, body: Mapping[str, Any], id: str | None, stream: str, type: str) -> str:
    fields = {"actor": actor, "body": dict(body), "id": id, "stream": stream, "type": type}
    return hashlib.sha256(canonical_bytes(fields)).hexdigest()


def read_statement(origin: str, body: Mapping[str, Any]) -> Statement:
    """The statement of an event with this body, signed by the key that it names. Whether the log enrolled that key is for the
    caller to see.

    Raises:
        Refused: it is malformed, or not signed.
    """
    author, events, signature = (body.get(name) for name in ("author", "events", "signature"))
    if set(body) != {"author", "events", "signature"} or not isinstance(author, str) or not isinstance(signature, str):
        raise _bad("body", "author, events, signature", ", ".join(sorted(body))[:200])
    if not isinstance(events, list) or not 0 < len(events) <= _MOST or not all(map(_is_item, events)):
        raise _bad("events", f"1 to {_MOST} pairs of id and digest", repr(events)[:80])
    digests = dict(events)
    if len(digests) != len(events):
        raise _bad("events", "each id once", repr(events)[:80])
    try:
        key, raw = VerifierKey.parse(author), decode_base64(signature, "signature")
    except Malformed as error:
        raise _bad("author", error.expected or "a verifier key", error.found or author[:80]) from None
    found = Statement(key, digests)
    if key.algorithm != ED25519 or not key.verify(_signed_text(origin, found), raw):
        raise _bad("signature", f"one of {key.name}+{key.key_id:08x} over this log and these events", "another")
    return found


def _is_item(item: object) -> bool:
    return (
        isinstance(item, list)
        and len(item) == 2
        and all(isinstance(part, str) for part in item)
        and _ID.match(item[0]) is not None
        and _DIGEST.match(item[1]) is not None
    )


def _signed_text(origin: str, statement: Statement) -> str:
    lines = "".join(f"{id} {digest}\n" for id, digest in statement.digests.items())
    return f"{AUTHORED}\n{origin}\n{statement.author}\n{lines}"


def read_signed(origin: str, drafts: Sequence[Draft]) -> Mapping[str, Statement]:
    """The statements of a request, by the ids of what they sign: each signs events that stand before it in the request, and
    behind the statement before it. A reader looks nowhere else.

    Raises:
        Refused: one does not hold, or signs what does not stand there.
    """
    there: dict[str, Draft] = {}
    found: dict[str, Statement] = {}
    for draft in drafts:
        if draft.type != AUTHORED:
            there[str(draft.id)] = draft
            continue
        statement = read_statement(origin, draft.body)
        if draft.actor != statement.author.name:
            raise _bad("actor", statement.author.name, str(draft.actor))
        for id, digest in statement.digests.items():
            signed_draft = there.get(id)
            if signed_draft is None or id in found:
                raise _bad(f"events: {id}", "an event between this statement and the one before, signed once", "none")
            if signed_draft.actor != statement.author.name or digest_of(signed_draft) != digest:
                raise _bad(f"events: {id}", "the event as its author signed it", "another event, or another author")
            found[id] = statement
        there.clear()
    return found


def _bad(where: str, expected: str, found: str) -> Refused:
    return Refused(
        "an authorship does not hold",
        where=where,
        expected=expected,
        found=found[:200],
        cure="nothing was appended: let the author sign the events that are handed in",
    )
