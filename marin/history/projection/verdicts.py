"""Verdicts: tags of the run that was verified. Where the alias of its model goes then is in ``aliases.py``."""

from __future__ import annotations

from collections.abc import Iterator

from marin.history.projection.intents import Intent, Tags
from marin.history.projection.projected import ProjectedRun, Told
from marin.history.projection.text import text
from marin.history.run import verified
from marin.record.events import ReplayCompleted


def replayed(told: Told, projected: ProjectedRun, body: ReplayCompleted) -> Iterator[Intent]:
    """A verification that counts; the fold has taken it in already."""
    word = verified(projected.fold.last_verdict())
    tags = {
        "marin.verified": word,
        "marin.verified.event": str(told.index),
        "marin.verified.by": told.event.actor,
        **_words(projected),
    }
    if body.first_divergence is not None:
        tags["marin.first_divergence"] = text(body.first_divergence)[:4000]
    yield Tags(projected.id(), tags)


def went_on(projected: ProjectedRun, before: str) -> Iterator[Intent]:
    """What a verification said (``before``), where the run went on after it."""
    if before != "never" and (word := verified(projected.fold.last_verdict())) != before:
        yield Tags(projected.id(), {"marin.verified": word, **_words(projected)})


def _words(projected: ProjectedRun) -> dict[str, str]:
    return {
        f"marin.verdict.{name}": word
        for fact in projected.fold.last_verdict()
        for name, word in fact.body.verdicts.items()
    }
