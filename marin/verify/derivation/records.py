"""Whether what a run's events say of one thing is the same everywhere it is said. Pure: events in, findings out.

An operator who holds the key can sign any event. Replay finds what is said of bits; what is said twice (a recipe and
its digest, an output and the input of the next step, a metric and its copy in the run's end) is compared here, and what
follows from other events (an identity, the first and the last loss) is derived again. What nothing here can derive (a
step that the installed pipeline does not have, a type of event that this version does not know) is named, and keeps a
verdict from passing.

What a type must agree with, and which of its fields nothing else depends on (claims are not evidence, and are not compared),
the type says itself (:mod:`marin.kinds`).
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any

from ledger import LedgerError
from marin.execution.plan import Plan, identity_of, step_config
from marin.history.run import Indexed, Run
from marin.history.runs import read_fact
from marin.kinds.kind import Held, Kind, LoopContext, Pair
from marin.kinds.known import own_kind, type_of
from marin.process.text import clipped
from marin.provenance.plugins import load_plugin
from marin.recipe.schema import Recipe, digest, plain
from marin.recipe.seeds import seeds_of
from marin.record import events as kinds
from marin.record.events import DATA_STEPS, Continues, Output
from marin.record.outputs import KINDS, by_content
from marin.record.schemas import MALFORMED
from marin.verify.derivation import record as kept
from marin.verify.derivation.attempts import Standing, beside, disagreements, superseded
from marin.verify.derivation.fields import unknown_fields


def contradictions(record: kept.RunRecord, plan: Plan) -> list[kept.Contradiction]:
    """All contradictions among the events of a run, in the order of the log, stretch by stretch."""
    if record.run.is_loop:
        of_loop = load_plugin("marin.judges", "loop", "a run of a loop of one's own")
        return [*of_loop(record), *kept.misplaced_entries(record)]
    try:
        recipe = record.run.recipe
    except LedgerError as error:
        return [kept.Contradiction(record.run.started.index, "recipe", "one that this version reads", str(error))]
    found = list(_beginnings(record))
    for stretch in record.stretches:
        looked = _RunPass(record, stretch, recipe, plan)
        found += [item for event in stretch.events for item in looked.at(event)]
    return [*found, *disagreements(record), *kept.misplaced_entries(record)]


def unexplained(record: kept.RunRecord, plan: Plan, *, until: Continues | None = None) -> list[kept.Unexplained]:
    """What the run's events say and nothing here derives: unknown types, steps, fields and measurements, and reports of a
    step that has no end: nothing says what it was made of, so nothing is executed for it. ``until``: where a later phase
    went on from this run. Its train steps are executed up to there, ended or not; but then nothing is that rests on an end.
    """
    strays = [kept.Unexplained(stray.index, str(stray)) for stray in record.strays if not stray.field]
    if record.run.is_loop:
        of_loop = [(item[0], what) for item in record.own.events for what in unknown_parts(item, _held(item))]
        return [*(kept.Unexplained(index, what) for index, what in of_loop), *strays]
    known = {step.name for step in plan.steps}
    left = until is not None and "train" not in record.run.steps
    found = [
        kept.Unexplained(item[0], what)
        for stretch in record.stretches
        for item in stretch.events
        for what in (*_unexplained(item, known), *_without_end(item, record.run, left=left))
    ]
    return [
        *found,
        *(
            kept.Unexplained(
                index, f"an event of type {event.type} in the stream {event.stream}, in the name of this run"
            )
            for index, event in record.outside
            if not beside(event)
        ),
        *strays,
    ]


def _beginnings(record: kept.RunRecord) -> Iterator[kept.Contradiction]:
    """A run begins once, before everything else; one that is a phase says what it continues; and it cites what was
    registered before it."""
    for place, (index, event) in enumerate(record.own.events):
        if (event.type == type_of(kinds.RunStarted)) != (place == 0):
            yield kept.Contradiction(index, "type", "one beginning of a run, first in its stream", event.type)
    phase, link = record.run.recipe.phase, record.run.started.body.continues
    if (phase is None) != (link is None):
        what = "the run that it continues, for its recipe is a phase's" if phase is not None else "none: it is no phase"
        yield kept.Contradiction(
            record.run.started.index, "continues", what, "none" if link is None else f"run {link.run}"
        )
    cited, started = record.run.started.body.experiment, record.run.started
    if not cited:
        return
    arms = load_plugin("marin.registrations", "arms", "a registered experiment")
    if not any(
        fact.body.registration == cited
        and fact.index < started.index
        and arms.registers(fact.body, record.run.recipe, started.body.pipeline)
        for fact in record.registrations
    ):
        yield kept.Contradiction(
            started.index, "experiment", "a registration before it that has its recipe and seed", cited
        )


def unknown_parts(item: Indexed, held: Held[Any] | None) -> Iterator[str]:
    """Types that say nothing of themselves here, and fields that their type does not have. ``held``: how such a run's stream
    holds the type."""
    event = item[1]
    kind = own_kind(event.type)
    if event.type == MALFORMED:
        yield f"an event of type {event.body.get('type')} that does not fit it ({event.body.get('found')})"
    elif kind is None or held is None:
        yield f"an event of type {event.type}"
    else:
        for name in unknown_fields(kind.body, event.body):
            yield f"a field {name} in an event of type {event.type}"


def _unexplained(item: Indexed, known: set[str]) -> Iterator[str]:
    event = item[1]
    kind = own_kind(event.type)
    yield from unknown_parts(item, held := kind.run if kind is not None else None)
    if kind is None or held is None:
        return
    step = event.body.get("step")
    if isinstance(step, str) and step and step not in known:
        yield f"a step {step} ({event.type}), which the installed pipeline does not have"
    if held.underived is not None:
        yield from held.underived(read_fact(kind.body, item))


def _without_end(item: Indexed, run: Run, *, left: bool) -> Iterator[str]:
    """A report of a step without an end. ``left``: of a training that a later phase goes on with, what rests on its end."""
    kind, body = own_kind(item[1].type), item[1].body
    if kind is None:
        kind = Kind(item[1].type, kinds.Body)
    if kind.step and kind.step not in run.steps and not (left and kind.step == "train"):
        yield f"an event of type {kind.type} of step {kind.step}, which has no end"
    elif left and (kind.rests_on == "train" or "train" in (body.get("inputs") or ())):
        yield f"an event of type {kind.type}, which rests on the end of step train, which has none"


class _RunPass(Standing):
    """One pass over the events of one stretch, remembering what steps began with: what a kind gets to see
    (:class:`marin.kinds.kind.RunContext`)."""

    def __init__(self, record: kept.RunRecord, stretch: kept.Stretch, recipe: Recipe, plan: Plan) -> None:
        super().__init__(record.run)
        self.recipe, self.recipe_digest, self.recipe_plain = recipe, digest(recipe), plain(recipe)
        self.seeds, self.referred = seeds_of(recipe), record.referred
        self.stream, self.started = stretch.run, stretch.started.body
        self.events: Sequence[Indexed] = stretch.events
        self.begun: dict[str, Any] = {}
        self._plan, self._gone = plan, superseded(record.run, stretch)
        self._pinned = kept.pinned_steps(record.run) & set(DATA_STEPS)

    def at(self, item: Indexed) -> Iterator[kept.Contradiction]:
        """What the next event does not agree with."""
        kind = own_kind(item[1].type)
        if kind is None:
            return
        fact = read_fact(kind.body, item)
        if fact.index in self._gone and not kind.identifies:
            return  # it can agree with nothing that stands: told as judged by nobody
        if isinstance(fact.body, kinds.StepStarted):
            self.begun[fact.body.identity] = fact.body
        agrees = kind.run.agrees if kind.run is not None else None
        pairs: list[Pair] = [*agrees(fact, self)] if agrees is not None else []
        if "run" in item[1].body and not kind.is_verdict_within:
            pairs.insert(0, ("run", self.stream, item[1].body["run"]))
        for name, expected, found in pairs:
            if expected is not None and expected != found:
                step = kept.step_of(item) if agrees is not None else ""
                yield kept.Contradiction(fact.index, name, *in_texts(expected, found), step)

    def output(self, step: str) -> Output | None:
        """The output of a step, if it has one."""
        view = self.run.steps.get(step)
        return view.output if view is not None else None

    def is_current(self, step: str, identity: str) -> bool:
        """Whether the run's output of ``step`` is of this identity, or there is none yet."""
        view = self.run.steps.get(step)
        return view is None or view.identity == identity

    def inputs(self, body: kinds.StepStarted | kinds.StepCompleted | kinds.StepCached) -> dict[str, str] | None:
        """What the event has as inputs, with the digests that the steps named there have as outputs, as far as they are
        steps; None for a result that another one of this run took the place of, when its inputs had changed."""
        if not self.is_current(body.step, body.identity):
            return None
        return {
            name: self.run.steps[name].output.digest if name in self.run.steps else found
            for name, found in body.inputs.items()
        }

    def identity(self, body: kinds.StepStarted) -> str:
        """The identity of a step by what it begins with."""
        lock = body.lock or self.started.environment.get("lock", "")
        return identity_of(body.step, body.config, body.inputs, body.code, lock)

    def of_plan(self, body: kinds.StepStarted) -> Iterator[Pair]:
        """The inputs and the configuration that plan and recipe give the step. What local files hold is part of the corpus'
        and not in the recipe: the data that is executed here has to lead to the same sources."""
        definition = next((known for known in self._plan.steps if known.name == body.step), None)
        if definition is None or body.step in self._pinned or not self.is_current(body.step, body.identity):
            return
        yield "inputs", sorted(definition.inputs), sorted(body.inputs)
        if definition.name == "corpus":
            expected = {"dataset": plain(self.recipe.dataset), "sources": body.config.get("sources")}
        else:
            expected = step_config(definition, self.recipe)
        yield "config", expected, dict(body.config)

    def of_output(self, step: str, output: Output) -> Iterator[Pair]:
        """How an output must be stored."""
        if step in KINDS:
            yield "output.kind", KINDS[step], output.kind
        if not by_content(output):
            yield "output.artifact", output.digest, output.artifact  # a tree is its own digest


def in_texts(expected: Any, found: Any) -> tuple[str, str]:
    """The first place in which two values differ, short."""
    if isinstance(expected, dict) and isinstance(found, dict):
        key = next((k for k in sorted(expected.keys() | found.keys()) if expected.get(k) != found.get(k)), None)
        if key is not None:
            return clipped(f"{key}={expected.get(key)}", 120), clipped(f"{key}={found.get(key)}", 120)
    return clipped(str(expected), 120), clipped(str(found), 120)


def _held(item: Indexed) -> Held[LoopContext] | None:
    """How the stream of such a run holds events of this type."""
    kind = own_kind(item[1].type)
    return kind.loop if kind is not None else None
