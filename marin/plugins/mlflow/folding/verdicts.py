"""Verdicts: tags of the run that was verified. Where the alias of its model goes then is in ``aliases.py``."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field

from marin.history.projection.text import text
from marin.history.run import age_in_words, record_digest, standing_of
from marin.plugins.mlflow.folding.intents import Intent, Tags
from marin.plugins.mlflow.folding.projected import ProjectedRun, RecordedEvent
from marin.record.events import ReplayCompleted, TrainSegment
from marin.record.verdicts import NEVER, Bytes, bytes_of, passed_as, same_numbers


def replayed(recorded: RecordedEvent, projected: ProjectedRun, body: ReplayCompleted) -> Iterator[Intent]:
    """A verification that counts; the fold has taken it in already."""
    tags = {"marin.verified": projected.verified, "marin.verified.by": recorded.event.actor, **words(projected)}
    if body.first_divergence is not None:
        tags["marin.first_divergence"] = text(body.first_divergence)[:4000]
    yield Tags(projected.id(), tags)


@dataclass
class Replays:
    """Up to where the segments of a run were executed again one by one, as events come."""

    _segments: dict[int, TrainSegment] = field(default_factory=dict)
    """By first train step."""
    _held: set[str] = field(default_factory=set)
    _reached: int = -1

    def recorded(self, body: TrainSegment) -> None:
        """Take in a segment; one that is recorded again takes the place of the other."""
        self._segments[body.start] = body
        self._reached = min(self._reached, body.start)

    def withdrawn(self, step: int) -> None:
        """Nothing from this train step on stands."""
        self._segments = {start: one for start, one in self._segments.items() if one.end <= step}
        self._reached = min(self._reached, step)

    def held(self, segment: str) -> None:
        """Somebody executed the segment of this record, and found it so."""
        self._held.add(segment)

    def told(self, run: str) -> Iterator[Intent]:
        """How old a state may be that nobody executed; nothing where nobody executes any."""
        if not self._held or not self._segments:
            return
        at = self._reached if self._reached >= 0 else min(self._segments)
        while at in self._segments and record_digest(self._segments[at]) in self._held:
            at = self._segments[at].end
        self._reached = at
        newest = max(one.end for one in self._segments.values())
        yield Tags(run, {"marin.followed": age_in_words(max(0, newest - at))})


class Twins:
    """Follows which complete runs are equal: what was established of one is told of the others, where they show no number
    that it does not have."""

    def __init__(self, runs: Mapping[str, ProjectedRun]) -> None:
        self._runs = runs
        self._key: dict[str, Bytes] = {}
        self._equal: dict[Bytes, list[str]] = {}
        self._words: dict[str, str] = {}

    def after(self, projected: ProjectedRun) -> Iterator[tuple[ProjectedRun, str]]:
        """Runs without a verdict whose word changes by what was said of this one, and that word."""
        if projected.fold.completed is None:
            return
        name, view = projected.name, projected.run
        outputs = {step: result.output.digest for step, result in view.steps.items()}
        key, before = bytes_of(view.started.body.recipe_digest, outputs), self._key.get(projected.name)
        if before != key:
            self._key[name] = key
            self._equal.setdefault(key, []).append(name)
            if before is not None:
                self._equal[before].remove(name)
        for group in {before or key: None, key: None}:
            yield from self._of_group(self._equal[group])

    def _of_group(self, group: Sequence[str]) -> Iterator[tuple[ProjectedRun, str]]:
        passed = [name for name in group if self._runs[name].passes]
        for name in group if passed or self._words else ():
            if not self._runs[name].fold.verdicts():
                twin = next((one for one in passed if _shows_no_more(self._runs[name], self._runs[one])), "")
                word = passed_as(twin) if twin else NEVER
                if self._words.get(name, NEVER) != word:
                    self._words[name] = word
                    yield self._runs[name], word


def _shows_no_more(run: ProjectedRun, twin: ProjectedRun) -> bool:
    """Whether every loss and every number of a step that is shown of ``run`` is one of ``twin``."""
    if run.disagreement is not None or twin.disagreement is not None:
        return False
    return (
        same_numbers(run.losses, twin.losses)
        and same_numbers(run.evaluation, twin.evaluation)
        and same_numbers(run.run.metrics, twin.run.metrics)
    )


def words(projected: ProjectedRun) -> dict[str, str]:
    """What verifications say of a run together, as tags; none where there are none."""
    found = projected.fold.verdicts()
    each = {f"marin.verdict.{name}": word for name, word in standing_of(found).items()}
    return {"marin.verified": projected.verified, **each} if found else {}
