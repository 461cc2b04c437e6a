"""``tracker=NAME`` (or ``trainer.tracker=NAME``) and ``NAME.KEY=VALUE`` on a command line, such as ``wandb.mode=online``: which
tracker follows the run besides the ledger, and where.

What decides no bit is in no recipe, so these words are taken off the line before the recipe is composed and put into the
environment, where stages and workers find them (:mod:`marin.execution.tracker`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from marin.execution.tracker import NONE, VARIABLE, chosen, tracker_of, trackers

_WORD = re.compile(r"\+{0,2}(?:trainer\.)?tracker=(.*)")
_OWN = re.compile(r"\+{0,2}([a-z_]+)\.([a-z_]+)=(.*)")


def choose(overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """The words of a command line without the tracker's; what they name is the tracker from now on. A word ``NAME.KEY=VALUE``
    names the tracker NAME, unless that says of its words that it does not follow.

    Raises:
        UsageError: there is no such tracker, here or in the environment; or it does not take a word.
    """
    named = [found[1] for word in overrides if (found := _WORD.fullmatch(word))]
    about: dict[str, dict[str, str]] = {}
    if any(_OWN.fullmatch(word) for word in overrides):
        known = trackers()
        for word in overrides:
            if (found := _OWN.fullmatch(word)) and found[1] in known:
                about.setdefault(found[1], {})[found[2]] = found[3]
    for name, words in about.items():
        follows = tracker_of(name).choose(words)
        named = named or [name if follows else NONE]
    tracker = chosen(named[-1] if named else None)
    if named:
        os.environ[VARIABLE] = tracker
    return tuple(
        word
        for word in overrides
        if not (_WORD.fullmatch(word) or ((found := _OWN.fullmatch(word)) and found[1] in about))
    )
