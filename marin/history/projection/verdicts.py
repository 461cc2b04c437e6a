"""Verdicts: tags of the run that was verified. Where the alias of its model goes then is in ``aliases.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping

from marin.history.projection.intents import Intent, Tags
from marin.history.projection.projected import ProjectedRun, Told
from marin.history.projection.text import text
from marin.history.run import standing_of
from marin.record.events import ReplayCompleted
from marin.record.verdicts import Bytes, bytes_of, passed_as


def replayed(told: Told, projected: ProjectedRun, body: ReplayCompleted) -> Iterator[Intent]:
    """A verification that counts; the fold has taken it in already."""
    word = projected.verified
    tags = {"marin.verified": word, "marin.verified.by": told.event.actor, **_words(projected)}
    if body.first_divergence is not None:
        tags["marin.first_divergence"] = text(body.first_divergence)[:4000]
    yield Tags(projected.id(), tags)


class Twins:
    """Follows which complete runs are equal: what was established of one is told of the others."""

    def __init__(self, runs: Mapping[str, ProjectedRun]) -> None:
        self._runs = runs
        self._equal: dict[Bytes, list[str]] = {}
        self._told: dict[str, str] = {}

    def after(self, projected: ProjectedRun) -> Iterator[tuple[ProjectedRun, str]]:
        """Runs without a verdict whose word changes by what was said of this one, and that word."""
        view = projected.run
        if view.completed is None:
            return
        outputs = {step: result.output.digest for step, result in view.steps.items()}
        group = self._equal.setdefault(bytes_of(view.started.body.recipe_digest, outputs), [])
        if projected.name not in group:
            group.append(projected.name)
        passed = next((name for name in group if self._runs[name].passes), None)
        for name in group:
            if not self._runs[name].fold.verdicts():
                word = passed_as(passed) if passed else "never"
                if self._told.get(name, "never") != word:
                    self._told[name] = word
                    yield self._runs[name], word


def went_on(projected: ProjectedRun, before: str) -> Iterator[Intent]:
    """What a verification said (``before``), where the run went on after it."""
    if before != "never" and (word := projected.verified) != before:
        yield Tags(projected.id(), {"marin.verified": word, **_words(projected)})


def _words(projected: ProjectedRun) -> dict[str, str]:
    return {f"marin.verdict.{name}": word for name, word in standing_of(projected.fold.verdicts()).items()}
