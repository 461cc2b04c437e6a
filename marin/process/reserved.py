"""Names that speak for the ledger: whoever reads ``marin.verified`` takes what stands beside it for a verdict of his own.

Marin alone gives such names. In what somebody else wrote, a log that was copied or a call of MLflow's, the same name is
refused, or shown as ``label:marin.verified``.
"""

from __future__ import annotations

import unicodedata

from marin.process.text import visible

VERDICT = "verified"
MARK = "label:"
_LOOK_ALIKES = str.maketrans(
    "\u0430\u0435\u0456\u0457\u0433\u043f\u043c\u0432\u0501\u03b1\u03b9\u0131\u03b7\u03bd\u03b5\u03c1\u217f\u0261\u0491"
    "\u00b7\u3002\uff61\u2027\u2219\u22c5\u30fb\u0387\u06d4\u0701\u0702\u05c5",
    "aeiirnmvdaiinvepmgr............",
)
"""Letters and dots that are drawn as those of ``marin.verified`` (Unicode's confusables), after their compatible form."""


def speaks_for_the_ledger(name: str) -> bool:
    """Whether eyes take ``name`` for one that Marin gives: ``marin.…`` or ``verified``, in any case, with spaces, accents or
    unseen characters, or in letters of another alphabet that look the same."""
    seen = _as_seen(name)
    return seen.startswith("marin.") or seen == VERDICT


def marked(name: str) -> str:
    """``name`` as it is shown of what somebody else wrote."""
    return f"{MARK}{name}" if speaks_for_the_ledger(name) else name


def marked_label(name: str) -> str:
    """As :func:`marked`, for a label of a run: MLflow's own names decide what it shows, so these are marked too."""
    return f"{MARK}{name}" if speaks_for_the_ledger(name) or _as_seen(name).startswith("mlflow.") else name


def _as_seen(name: str) -> str:
    letters = (letter for letter in unicodedata.normalize("NFKD", name) if not unicodedata.combining(letter))
    seen = "".join(letter for letter in letters if visible(letter) == letter and not letter.isspace())
    return unicodedata.normalize("NFKD", seen.casefold()).translate(_LOOK_ALIKES)
