"""A proof of an entry, as a user who has the log makes it."""

from __future__ import annotations

from ledger.format.proof import LogProof
from ledger.log.reader import LogReader


def make_proof(reader: LogReader, index: int) -> LogProof:
    """The proof that entry ``index`` is in the log at the reader's checkpoint.

    Raises:
        NotFound: the log has no such entry, or its bytes are not here.
        Tampered: what is here does not lead to the checkpoint.
    """
    entry = reader.entry(index)
    return LogProof(index, tuple(reader.inclusion_proof(index)), reader.note().decode(), entry)
