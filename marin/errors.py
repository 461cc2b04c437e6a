"""Errors of the product, hung below the ledger's tree so that one ``except LedgerError`` sees them all.

LedgerError                 (ledger.errors; fields what, where, expected, found, cure; exit status 1)
└── MarinError              anything Marin itself refuses or finds
    ├── UsageError          the command or a parameter is wrong                          exit status 2
    ├── DataError           input data is empty, corrupt or not what it was declared to be
    │   └── DataMissing     input data is not there, or cannot be read or fetched now
    ├── StepFailed          a step stopped before it had a result
    ├── LeaseLost           another executor has taken over the step that this process executes
    ├── Diverged            training left the numbers (NaN), or a re-execution gave other bits
    ├── Unsupported         this machine cannot honour the arithmetic contract           exit status 3
    ├── NotInstalled        a package that the command needs is not installed            exit status 3
    ├── MissingEvidence     something that the answer needs is not here                  exit status 3
    │   └── MissingInput    a step's input has no result in this root
    └── Interrupted         the user or the system asked to stop; the state was saved    exit status 130
        ├── StoppedByFollower  a follower found something wrong, and asked the training to stop
        └── Paused          training reached the train step at which it was to pause     exit status 0
"""

from __future__ import annotations

from typing import ClassVar

from ledger import LedgerError


class MarinError(LedgerError):
    """Root of what the product raises."""


class UsageError(MarinError):
    """A command line, a parameter or an experiment file is wrong."""

    exit_code: ClassVar[int] = 2


class DataError(MarinError):
    """Input data is empty, corrupt, or differs from its declared digest."""


class NoConversation(DataError):
    """A line of chats is not a conversation."""


class DataMissing(DataError):
    """Input data is not there, or cannot be read or fetched now; nothing is known to be wrong with it."""


class StepFailed(MarinError):
    """A step stopped before it produced its output."""


class LeaseLost(MarinError):
    """Another executor has the step that this process was executing; nothing more is recorded of this attempt."""


class Diverged(MarinError):
    """Training produced a number that is not finite, or a re-execution produced other bits."""


class Unsupported(MarinError):
    """This machine cannot honour the arithmetic contract of the recipe."""

    exit_code: ClassVar[int] = 3


class NotInstalled(MarinError):
    """A package that is needed for this is an extra, and not installed."""

    exit_code: ClassVar[int] = 3


class MissingEvidence(MarinError):
    """Bytes or events that the answer needs are not in this root."""

    exit_code: ClassVar[int] = 3


class MissingInput(MissingEvidence):
    """A step cannot begin: what it reads has no result in this root. ``step`` is whose result that would be."""

    step: str = ""


class Interrupted(MarinError):
    """The work was asked to stop, saved its state and did."""

    exit_code: ClassVar[int] = 130


class StoppedByFollower(Interrupted):
    """A follower of the run found something that does not hold. ``back``: go on from the last state that held."""

    back: bool = False


class Paused(Interrupted):
    """Training stopped where it was told to, with its state recorded; nothing is wrong."""

    exit_code: ClassVar[int] = 0
