"""Which steps of a plan have their output already: recorded, of the identity that they have now, and still whole.

A result counts for three reasons together: the ledger holds a step.completed of exactly this identity; the pointer in
the working folder names the same content (for steps that other stages brought); and the store's bytes hash to what
the event says. Time, existence and DVC's opinion count for nothing.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path

from ledger import LedgerError, NotFound, Store, Tampered
from marin.errors import MissingEvidence
from marin.execution.plan import CodeIdentity, Plan, step_identity
from marin.execution.pointer import Pointer, pointer_path, read_pointer
from marin.execution.step import StepDefinition
from marin.history.fold import step_view
from marin.history.run import Run, StepView
from marin.history.runs import History, completions
from marin.recipe.schema import Recipe
from marin.record.events import Output

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Found:
    """A step that has its output. ``fresh``: the run at hand does not hold that result yet."""

    view: StepView
    fresh: bool


@dataclass(frozen=True)
class ResultCache:
    """The question for one plan, one recipe and one working folder, over a fixed history. ``project`` None: there is no
    working folder, the ledger and the store decide alone (the steps of an experiment file). ``run`` is the run that the
    results shall belong to, if there is one already. ``whole`` collects what was hashed and found whole, so that a
    stage which asks twice within its seconds reads a large input once."""

    plan: Plan
    recipe: Recipe
    code: CodeIdentity
    store: Store
    project: Path | None
    history: History
    run: Run | None
    whole: set[str] = field(default_factory=set)
    pinned: Mapping[str, StepView] = field(default_factory=dict)
    """Results that stand for steps of the plan whatever their identity: an experiment file said so."""

    def identity(self, step: StepDefinition, settled: Mapping[str, Found]) -> str:
        """The identity of ``step`` over the inputs as they are settled."""
        inputs = {name: settled[name].view.output.digest for name in step.inputs}
        return step_identity(step, self.recipe, inputs, self.code)

    def upstream(self, name: str) -> dict[str, Found]:
        """Every step that ``name`` depends on.

        Raises:
            MissingEvidence: one of them has not been made in this root.
            Malformed, Tampered: its pointer is not a pointer, or names something else than what was recorded.
        """
        settled: dict[str, Found] = {}
        for step in self.plan.before(name):
            settled[step.name] = self._pin(step.name) or self._input(step, self.identity(step, settled))
        return settled

    def hit(self, step: StepDefinition, identity: str) -> Found | None:
        """A recorded result of this identity whose every byte is what it was, or None."""
        for candidate in self._candidates(step.name, identity):
            damage = self.damage(candidate.view)
            if damage is None:
                return candidate
            log.warning(
                "%s: the result of event %d is not whole (%s); not used", step.name, candidate.view.completed_at, damage
            )
        return None

    def rest(self, settled: Mapping[str, Found]) -> dict[str, Found]:
        """``settled`` and every other step that has its output too, by the run itself or by its pointer."""
        known = dict(settled)
        for step in self.plan.steps:
            if step.name in known or any(name not in known for name in step.inputs):
                continue
            if (pin := self._pin(step.name)) is not None:
                known[step.name] = pin
                continue
            found = self._quietly(step, self.identity(step, known))
            if found is not None:
                known[step.name] = found
        return known

    def damage(self, view: StepView) -> str | None:
        """The first thing wrong with the stored bytes of a result, every one of them hashed; None when it is whole."""
        for digest in {view.output.artifact, *view.tables.values()} - self.whole:
            try:
                findings = self.store.verify(digest)
            except LedgerError as error:
                return str(error)
            if findings:
                return str(findings[0])
            self.whole.add(digest)
        return None

    def _pin(self, name: str) -> Found | None:
        view = self.pinned.get(name)
        if view is None:
            return None
        own = self.run.steps.get(name) if self.run is not None else None
        return self._whole(name, [Found(view, fresh=own is None or own.output != view.output)])

    def _candidates(self, name: str, identity: str) -> Iterator[Found]:
        """Results of this identity: the run's own first, then the newest recorded."""
        own = self.run.steps.get(name) if self.run is not None else None
        if own is not None and own.identity == identity:
            yield Found(own, fresh=False)
        for fact in reversed(list(completions(self.history, step=name, identity=identity))):
            if own is None or own.identity != identity or fact.index != own.completed_at:
                yield Found(step_view(fact), fresh=True)

    def _input(self, step: StepDefinition, identity: str) -> Found:
        candidates = list(self._candidates(step.name, identity))
        if not candidates:
            raise MissingEvidence(
                "an input has not been made in this root",
                where=f"step {step.name}",
                expected="a recorded result for this recipe and this code",
                found="none",
                cure=f"run `marin stage {step.name}`, or all of it with `dvc repro`",
            )
        if self.project is None:
            return self._whole(step.name, candidates)
        path = pointer_path(self.project, step.name)
        try:
            pointer = read_pointer(path)
        except NotFound:
            raise MissingEvidence(
                "an input has no pointer",
                where=str(path),
                expected=candidates[0].view.output.digest,
                found="no file",
                cure=f"run `marin stage {step.name}`: it writes it again",
            ) from None
        matching = [candidate for candidate in candidates if pointer_of(candidate.view.output) == pointer]
        if not matching:
            raise Tampered(
                "a pointer names something else than what was recorded",
                where=str(path),
                expected=_named(pointer_of(candidates[0].view.output)),
                found=_named(pointer),
                cure=f"restore it with Git, or run `marin stage {step.name}`: it writes it again",
            )
        return self._whole(step.name, matching)

    def _whole(self, name: str, candidates: list[Found]) -> Found:
        damage = ""
        for candidate in candidates:
            # What the run holds already was hashed when it came in, and is hashed again when it is checked out.
            found = self.damage(candidate.view) if candidate.fresh else None
            if found is None:
                return candidate
            damage = damage or found
        raise Tampered(
            "an input is not whole",
            where=f"step {name}",
            expected=candidates[0].view.output.artifact,
            found=damage,
            cure=f"make it again with `marin stage {name}`",
        )

    def _quietly(self, step: StepDefinition, identity: str) -> Found | None:
        """As :meth:`_input`, where nobody asked for the step: what is missing is simply not there yet."""
        candidates = list(self._candidates(step.name, identity))
        if candidates and not candidates[0].fresh:
            return candidates[0]
        if not candidates:
            return None
        try:
            return self._input(step, identity)
        except LedgerError as error:
            log.debug("%s is not taken into the run: %s", step.name, error)
            return None


def pointer_of(output: Output) -> Pointer:
    """The pointer that names an output."""
    return Pointer(digest=output.digest, kind=output.kind, size=output.size)


def _named(pointer: Pointer) -> str:
    return f"{pointer.digest} ({pointer.kind}, {pointer.size} bytes)"
