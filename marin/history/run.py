"""A run as it is read back: frozen values, which :mod:`marin.history.fold` makes of its events.

A run is one plan on its way through its steps. An execution of an experiment's graph is read as a run too: its steps are
the nodes of the graph, by address.
"""

from __future__ import annotations

import math
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import reduce

from msgspec import structs

from ledger import canonical_digest
from marin.history.executed import ExecutedRun
from marin.history.executed import Indexed as Indexed
from marin.history.executed import StepState as StepState
from marin.history.executed import new_id as new_id
from marin.history.executed import was_interrupted as was_interrupted
from marin.history.fold import RunFold
from marin.history.labels import Labels
from marin.kinds.kind import Fact as Fact
from marin.kinds.kind import StepView as StepView
from marin.record import events as kinds
from marin.record.events import DEFAULT_PIPELINE, STEPS, ReplayCompleted, TrainSegment, write
from marin.record.retention import let_go
from marin.record.verdicts import NAMES, NEVER, answerable, counting, of_the_log, overall, standing


@dataclass(frozen=True, kw_only=True)
class Run(ExecutedRun):
    """A run with what is said of it elsewhere: verdicts, and labels."""

    verdicts: tuple[Fact[ReplayCompleted], ...]
    """Those that count; what someone else's log says of its own runs is in ``claimed``."""
    claimed: tuple[Fact[ReplayCompleted], ...] = ()
    labels: Labels = field(default_factory=Labels)

    @property
    def is_running(self) -> bool:
        """Whether a step was begun and has not ended, as far as it is recorded. An open run without one stands between two
        steps; the process that stopped it there (Ctrl-C, while DVC began the next) could not say so."""
        return self.is_loop or any(state.state == "running" for state in self.states.values())

    def ordered_states(self) -> list[StepState]:
        """Every step that was begun, in the order of the pipeline."""
        return ordered(self.states)

    @property
    def answerable(self) -> tuple[str, ...]:
        """The verdicts that a run of its kind can have (:func:`marin.record.verdicts.answerable`)."""
        return answerable(self.started.body.pipeline, self.steps)

    @property
    def let_go(self) -> frozenset[str]:
        """Artifacts of training checkpoints that the run does not keep: whether they are still here does not matter."""
        return let_go([fact.body for fact in self.training], [fact.body for fact in self.checkpoints])

    @property
    def bits_per_byte(self) -> float | None:
        """Bits that the model needs for a byte of held-out text: as the evaluation recorded it, or its loss (nats a token) by
        the text's tokens a byte. None where that does not follow from the record: of all tokens in whole sequences some were
        not scored, or they are of another text than the corpus."""
        if "bits_per_byte" in self.measured:
            return self.measured["bits_per_byte"]
        found, recipe = self.metrics, self.started.body.recipe
        model, cache = recipe.get("model"), recipe.get("tokens")
        length = model.get("seq_len") if isinstance(model, Mapping) else None
        taken = isinstance(cache, Mapping) and cache.get("artifact") is not None
        names = ("evaluate.loss", "evaluate.tokens", "tokens.validation_tokens", "corpus.validation_bytes")
        if not isinstance(length, int) or length < 1 or taken or not all(found.get(name, 0) > 0 for name in names):
            return None
        loss, scored, tokens, size = (found[name] for name in names)
        whole = tokens // length * (length - 1)  # the first token of a sequence is read and not asked for
        return loss / math.log(2) * tokens / size if scored == whole else None

    @property
    def verified(self) -> str:
        """``never``, or what the verdicts that count say as one word, and its date."""
        return verified(self.verdicts, self.answerable)

    @property
    def verdict(self) -> dict[str, str]:
        """What the verdicts that count say together, by name; empty where there are none."""
        return standing_of(self.verdicts)


def standing_of(verdicts: Sequence[Fact[ReplayCompleted]]) -> dict[str, str]:
    """What these verdicts, oldest first, say together, by name (:func:`marin.record.verdicts.standing`)."""
    return standing(fact.body.verdicts for fact in verdicts)


def representative(
    verdicts: Sequence[Fact[ReplayCompleted]], answerable: Collection[str] = NAMES
) -> Fact[ReplayCompleted]:
    """Of these verdicts the newest that says by itself what all say together (:func:`marin.record.verdicts.overall`); where
    none does, the newest."""
    word = overall(standing_of(verdicts), answerable)
    alike = (fact for fact in reversed(verdicts) if overall(fact.body.verdicts, answerable) == word)
    return next(alike, verdicts[-1])


def verified(verdicts: Sequence[Fact[ReplayCompleted]], answerable: Collection[str] = NAMES) -> str:
    """``never``, or what these verdicts say together as one word, and since when."""
    if not verdicts:
        return NEVER
    return f"{overall(standing_of(verdicts), answerable)} {representative(verdicts, answerable).time[:10]}"


def unverified(run: Run, held: Collection[str]) -> int:
    """How many train steps the newest recorded state is ahead of the last one up to which every segment is among ``held``
    (:func:`record_digest`): no state older than that is unverified."""
    if not run.segments:
        return 0
    reached = run.segments[0].body.start
    for fact in run.segments:
        if fact.body.start != reached or record_digest(fact.body) not in held:
            break
        reached = fact.body.end
    return run.segments[-1].body.end - reached


def age_in_words(steps: int) -> str:
    """:func:`unverified` as pages and commands say it."""
    if not steps:
        return "every recorded state is verified"
    return f"no state older than {steps} train step{'s' if steps > 1 else ''} is unverified"


class JudgedFold(RunFold):
    """:class:`marin.history.fold.RunFold`, which also takes verdicts and labels."""

    def __init__(self, run: str) -> None:
        super().__init__(run)
        self._verdicts: list[Fact[kinds.ReplayCompleted]] = []
        self._claimed: list[Fact[kinds.ReplayCompleted]] = []
        self._label_events: list[kinds.RunLabelled] = []
        self.evaluated = -1
        """The last event in the stream of its evaluations; ``told`` does not count these."""

    def judge(self, fact: Fact[kinds.ReplayCompleted], *, counts: bool) -> None:
        """Take in a verification of the run, wherever in the log it is recorded; ``counts``: by this user, of this
        log. What was found in a copy elsewhere may say nothing of the run here."""
        if of_the_log(fact.body.verdicts, fact.body.log_checkpoint):
            (self._verdicts if counts else self._claimed).append(fact)

    def label(self, body: kinds.RunLabelled) -> None:
        """Take in what a user says of the run, in the order of the log."""
        self._label_events.append(body)

    @property
    def labels(self) -> Labels:
        """What is said of the run by now."""
        return reduce(Labels.after, self._label_events, Labels.first(self.started.body.recipe if self.started else {}))

    def verdicts(self) -> tuple[Fact[kinds.ReplayCompleted], ...]:
        """The verdicts that count, as they count for the run as it is by now."""
        return tuple(map(self._counting, self._verdicts))

    def view(self) -> Run:
        """As :meth:`RunFold.view`, with the verdicts as they count by now, and labels."""
        executed = super().view()
        return Run(
            **{item.name: getattr(executed, item.name) for item in fields(ExecutedRun)},
            verdicts=self.verdicts(),
            claimed=tuple(map(self._counting, self._claimed)),
            labels=self.labels,
        )

    def _counting(self, fact: Fact[kinds.ReplayCompleted]) -> Fact[kinds.ReplayCompleted]:
        body = fact.body
        words = counting(body, self.told, self.evaluated)
        return replace(fact, body=structs.replace(body, verdicts=words))


MAIN = "pipeline"
"""What people call the plan that dvc.yaml has. Events keep the name that they were recorded with."""


def record_digest(segment: TrainSegment) -> str:
    """Identity of what a replay compares: the whole record of a segment."""
    return canonical_digest(write(segment))


def ordered(states: Mapping[str, StepState]) -> list[StepState]:
    """These steps in the order of the pipeline."""
    place = {name: position for position, name in enumerate(STEPS)}
    return sorted(states.values(), key=lambda step: place.get(step.step, len(STEPS)))


def plan_of(pipeline: str) -> str:
    """What people call the plan whose recorded name is ``pipeline``."""
    return MAIN if pipeline == DEFAULT_PIPELINE else pipeline
