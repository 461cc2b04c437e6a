"""What a witness has seen, asked by anyone who watches a log (the monitoring part of C2SP tlog-witness).

``GET <monitoring prefix>/<sha256 of the origin>/checkpoint`` gives the newest checkpoint that the witness cosigned, with the
log's signature and its own. A user who was shown a log compares: a log that is shorter than what the witness has seen was
rolled back for its reader, and two roots of one size are two histories, both signed.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

from ledger.errors import Conflict, NotFound
from ledger.format.checkpoint import LogCheckpoint, open_checkpoint
from ledger.format.note import Note, VerifierKey
from ledger.witness.client import ANSWER_SECONDS, ask


def origin_hash(origin: str) -> str:
    """The name of a log in the addresses of witnesses and mirrors: SHA-256 of its origin, in lower-case hexadecimal."""
    return hashlib.sha256(origin.encode()).hexdigest()


def read_cosigned(
    address: str,
    origin: str,
    log_keys: Sequence[VerifierKey],
    witness_keys: Sequence[VerifierKey],
    *,
    seconds: float = ANSWER_SECONDS,
) -> tuple[LogCheckpoint, Note]:
    """The newest checkpoint of this log that the witness (or mirror) at ``address`` shows, and its note.

    A witness may be up to an hour behind what it cosigned. Compare with ``LogReader.check_continues``.

    Raises:
        NotFound: it has cosigned none.
        Conflict: it answers something else.
        Refused: ``address`` is not one of https or http.
        Unavailable: it cannot be reached, or takes too long.
        Unverified: the log's or the witness's signature is missing or wrong, or it is another log's checkpoint.
    """
    status, body = ask(f"{address.rstrip('/')}/{origin_hash(origin)}/checkpoint", None, seconds=seconds)
    if status == 404:
        raise NotFound("the witness has cosigned no checkpoint of this log", where=address, expected=origin)
    if status != 200:
        raise Conflict("the witness shows no checkpoint", where=address, found=f"status {status}")
    open_checkpoint(body, witness_keys, origin=origin)
    return open_checkpoint(body, log_keys, origin=origin)
