"""Which tracker follows a run besides the ledger: none, or an installed one (``tracker=wandb``, or MARIN_TRACKER=wandb).

A tracker is an entry point of the group ``marin.trackers``: a class without arguments that is a :class:`Tracker`. So
anyone who executes steps knows none of them, in no process. MLflow needs none of this: it is a projection that is always
there. Which tracker follows decides no bit, so the choice is in no recipe and in no identity: it is a variable of the
environment, which stages and workers inherit, and where words of a command line are put. Whatever happens to the tracker is said
on stderr and takes nothing from the run, which the ledger has.
"""

from __future__ import annotations

import os
import re
from collections.abc import Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from typing import Protocol

from marin.errors import UsageError
from marin.execution.step import Journal
from marin.process import running
from marin.provenance.plugins import points
from marin.record.root import Root

VARIABLE = "MARIN_TRACKER"
GROUP = "marin.trackers"
NONE = "none"
_WORD = re.compile(r"\+{0,2}(?:trainer\.)?tracker=(.*)")
_OWN = re.compile(r"\+{0,2}([a-z_]+)\.([a-z_]+)=(.*)")


class Tracker(Protocol):
    """What follows a run. Neither of the two raises anything of its library's: the run goes on without it."""

    def choose(self, words: Mapping[str, str]) -> bool:
        """Take what ``NAME.KEY=VALUE`` say on a command line, by KEY, for this process and those that it starts; whether the
        tracker follows at all. Raises :class:`marin.errors.UsageError` for a word that it does not know."""

    def following(self, journal: Journal, root: Root, run: str) -> AbstractContextManager[Journal]:
        """A journal for the training of ``run`` that tells the tracker what became durable in ``journal``."""

    def completed(self, root: Root, run: str) -> None:
        """The run has all its outputs: the tracker gets what it does not have yet."""


def choose_tracker(named: str | None = None) -> str:
    """The tracker that ``named`` or else the environment names.

    Raises:
        UsageError: there is no such tracker.
    """
    tracker = named or os.environ.get(VARIABLE) or NONE
    if tracker != NONE and tracker not in (known := trackers()):
        raise UsageError(
            "no such tracker",
            where="tracker" if named else VARIABLE,
            expected=" or ".join([NONE, *sorted(known)]),
            found=tracker,
            cure="MLflow shows every run without one: marin ui",
        )
    return tracker


def choose(overrides: Sequence[str] = ()) -> tuple[str, ...]:
    """The words of a command line without the tracker's (``tracker=NAME``, ``NAME.KEY=VALUE``); what they name is the tracker
    from now on. A word ``NAME.KEY=VALUE`` names the tracker NAME, unless that says of its words that it does not follow.

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
    tracker = choose_tracker(named[-1] if named else None)
    if named:
        os.environ[VARIABLE] = tracker
    return tuple(
        word
        for word in overrides
        if not (_WORD.fullmatch(word) or ((found := _OWN.fullmatch(word)) and found[1] in about))
    )


def untracked() -> AbstractContextManager[None]:
    """No tracker follows what is executed in here: it is a part of a run that comes after."""
    return running.environment({VARIABLE: NONE})


def environment() -> dict[str, str]:
    """The variables that carry the choice to processes on other machines, those of the tracker's own (``MARIN_TRACKER_…``) with
    it; nothing where there is no tracker. Keys are not among them."""
    tracker = choose_tracker()
    own = {name: value for name, value in os.environ.items() if name.startswith(f"{VARIABLE}_")}
    return {} if tracker == NONE else {VARIABLE: tracker, **own}


@contextmanager
def following(journal: Journal, root: Root, run: str, step: str) -> Iterator[Journal]:
    """The journal that a step gets: for a training that a tracker follows, one that tells it what became durable."""
    tracker = _tracker() if step == "train" else None
    if tracker is None:
        yield journal
        return
    with tracker.following(journal, root, run) as live:
        yield live


def completed(root: Root, run: str) -> None:
    """A run has all its outputs: the tracker gets what it does not have yet."""
    tracker = _tracker()
    if tracker is not None:
        tracker.completed(root, run)


def trackers() -> frozenset[str]:
    """The names of those that are installed."""
    return frozenset(points(GROUP))


def tracker_of(name: str) -> Tracker:
    """The tracker of this name, which is installed."""
    loaded: Tracker = points(GROUP)[name].load()()
    return loaded


def _tracker() -> Tracker | None:
    name = choose_tracker()
    return None if name == NONE else tracker_of(name)
