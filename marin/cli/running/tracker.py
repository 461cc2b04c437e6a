"""`tracker=NAME` (or `trainer.tracker=NAME`) on a command line: which tracker follows the run besides the ledger.

What decides no bit is in no recipe, so the word is taken off the line before the recipe is composed and put into the
environment, where stages and workers find it (:mod:`marin.execution.tracker`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from marin.execution.tracker import VARIABLE, chosen

_WORD = re.compile(r"\+{0,2}(?:trainer\.)?tracker=(.*)")


def choose(overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """The words of a command line without the tracker's; what they name is the tracker from now on.

    Raises:
        UsageError: there is no such tracker, here or in the environment.
    """
    named = [found[1] for word in overrides if (found := _WORD.fullmatch(word))]
    tracker = chosen(named[-1] if named else None)
    if named:
        os.environ[VARIABLE] = tracker
    return tuple(word for word in overrides if not _WORD.fullmatch(word))
