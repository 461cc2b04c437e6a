"""``tracker=NAME`` (or ``trainer.tracker=NAME``) and ``wandb.KEY=VALUE`` on a command line: which tracker follows the run
besides the ledger, and where.

What decides no bit is in no recipe, so these words are taken off the line before the recipe is composed and put into the
environment, where stages and workers find them (:mod:`marin.execution.tracker`, :mod:`marin.tracking.wandb.choice`).
"""

from __future__ import annotations

import os
import re
from collections.abc import Sequence

from marin.execution.tracker import NONE, VARIABLE, chosen

_WORD = re.compile(r"\+{0,2}(?:trainer\.)?tracker=(.*)")
_WANDB = re.compile(r"\+{0,2}wandb\.([a-z_]+)=(.*)")
WANDB = "wandb"


def choose(overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """The words of a command line without the tracker's; what they name is the tracker from now on. Any ``wandb.KEY=VALUE``
    names W&B, but for ``wandb.log=false``.

    Raises:
        UsageError: there is no such tracker, here or in the environment; or W&B does not take a word.
    """
    named = [found[1] for word in overrides if (found := _WORD.fullmatch(word))]
    about = {found[1]: found[2] for word in overrides if (found := _WANDB.fullmatch(word))}
    if about:
        from marin.tracking.wandb.choice import from_words, keep

        keep(choice := from_words(about))
        named = named or [WANDB if choice.log else NONE]
    tracker = chosen(named[-1] if named else None)
    if named:
        os.environ[VARIABLE] = tracker
    return tuple(word for word in overrides if not (_WORD.fullmatch(word) or _WANDB.fullmatch(word)))
