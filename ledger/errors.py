"""The one exception tree of the ledger, and the shape of a message.

    LedgerError                 anything that this package refuses or finds wrong
     ├─ Malformed               the bytes are not of the format (nobody need have lied)
     ├─ Unverified              a signature or a proof does not hold, or no known key signed
     ├─ Tampered                well-formed bytes differ from their digest, tree or earlier self: evidence of change
     ├─ NotFound                a name, digest or index that is not there
     ├─ AlreadyExists           an exclusive write met something that is there
     ├─ Conflict                same id with other bytes, a wrong expected sequence, a concurrent writer
     │   ├─ OutOfSequence       another writer was first in the stream: read it again and decide anew
     │   └─ Fenced              of two writers in one bucket, this is the one that must stop
     ├─ Locked                  someone else holds the lock; the message names the holder
     ├─ Refused                 input that cannot be accepted as it is; names the cure        (exit status 2)
     ├─ Unavailable             something needed (a key, a file system feature) is missing    (exit status 3)
     └─ StorageFailed           the operating system or the server failed: disk full, I/O error, 5xx

An error is an interface: it says what failed, where, what was expected, what was found and what to do, always
on one line. Malformed, Unverified and Tampered are kept apart on purpose: bad input, broken proof and
dishonest peer call for different acts.
"""

from __future__ import annotations

from typing import ClassVar


class LedgerError(Exception):
    """Base of everything the ledger raises. ``str()`` is one line: ``what: where: expected X, found Y; cure``."""

    exit_code: ClassVar[int] = 1

    def __init__(self, what: str, *, where: str = "", expected: str = "", found: str = "", cure: str = "") -> None:
        super().__init__(what, where, expected, found, cure)
        self.what = what
        self.where = where
        self.expected = expected
        self.found = found
        self.cure = cure

    def __reduce__(self) -> tuple[object, ...]:
        # Errors cross process boundaries (workers, the append service): keyword fields need their own rebuild.
        return _rebuild, (type(self), self.what, self.where, self.expected, self.found, self.cure)

    def __str__(self) -> str:
        head = ": ".join(part for part in (self.what, self.where) if part)
        contrast = ", ".join(
            f"{label} {value}" for label, value in (("expected", self.expected), ("found", self.found)) if value
        )
        line = f"{head}: {contrast}" if contrast else head
        if self.cure:
            line = f"{line}; {self.cure}"
        return " ".join(line.split())


def _rebuild(kind: type[LedgerError], what: str, where: str, expected: str, found: str, cure: str) -> LedgerError:
    return kind(what, where=where, expected=expected, found=found, cure=cure)


class Malformed(LedgerError):
    """The bytes are not of the format they should be in."""


class Unverified(LedgerError):
    """A signature or proof does not hold, or no trusted key signed."""


class Tampered(LedgerError):
    """Bytes differ from their digest or from the signed tree: evidence of change."""


class NotFound(LedgerError):
    """There is nothing of that name, digest or index."""

    exit_code: ClassVar[int] = 3


class AlreadyExists(LedgerError):
    """An exclusive write found its name taken."""


class Conflict(LedgerError):
    """Same id with other bytes, a wrong expected sequence, or a concurrent writer."""


class OutOfSequence(Conflict):
    """A stream has gone on since the writer of ``expect_seq`` looked; nothing was written."""


class Fenced(Conflict):
    """Another writer holds the log since this one last looked; nothing of this one was written."""


class Locked(LedgerError):
    """Another process holds the lock; the message names it."""


class Refused(LedgerError):
    """Input that cannot be accepted as it is."""

    exit_code: ClassVar[int] = 2


class Unavailable(LedgerError):
    """Something that is needed is missing here."""

    exit_code: ClassVar[int] = 3


class StorageFailed(LedgerError):
    """The storage below failed: disk full, I/O error, permission, server error."""
