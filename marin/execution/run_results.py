"""Which steps of a plan have their output, for one run: by the result cache, and by the pointers of a working folder.

Beside what the result cache asks, a run has two questions of its own: does it hold the result already, and does the
pointer in the working folder name the same content (for steps that other stages brought)?
"""

from __future__ import annotations

import logging
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path

from ledger import LedgerError, NotFound, Tampered
from marin.errors import MissingEvidence, MissingInput
from marin.execution.plan import CodeIdentity, Plan, step_identity
from marin.execution.pointer import Pointer, pointer_path, read_pointer
from marin.execution.step import StepDefinition
from marin.history.executed import ExecutedRun, StepView
from marin.history.executions import History
from marin.recipe.schema import Recipe
from marin.record.events import Output
from marin.work.cached import ResultCache

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class RunResults:
    """The questions for one plan, one recipe and one working folder. ``project`` None: there is no working folder, the
    ledger and the store decide alone (the steps of an experiment file). ``run`` is the run that the results shall belong
    to, if there is one already."""

    plan: Plan
    recipe: Recipe
    code: CodeIdentity
    cache: ResultCache
    project: Path | None
    run: ExecutedRun | None
    pinned: Mapping[str, StepView] = field(default_factory=dict)
    """Results that stand for steps of the plan whatever their identity: an experiment file said so."""

    def is_held(self, view: StepView) -> bool:
        """Whether the run has this result already."""
        own = self._own(view.step)
        return own is not None and own.completed_at == view.completed_at

    def over(self, history: History, run: ExecutedRun | None) -> RunResults:
        """The same questions over a newer state of the ledger."""
        return replace(self, cache=replace(self.cache, history=history), run=run)

    def identity(self, step: StepDefinition, settled: Mapping[str, StepView]) -> str:
        """The identity of ``step`` over the inputs as they are settled."""
        inputs = {name: settled[name].output.digest for name in step.inputs}
        return step_identity(step, self.recipe, inputs, self.code)

    def upstream(self, name: str) -> dict[str, StepView]:
        """Every step that ``name`` depends on.

        Raises:
            MissingEvidence: one of them has not been made in this root.
            Malformed, Tampered: its pointer is not a pointer, or names something else than what was recorded.
        """
        settled: dict[str, StepView] = {}
        for step in self.plan.before(name):
            settled[step.name] = self._pin(step.name) or self._input(step, self.identity(step, settled))
        return settled

    def hit(self, step: StepDefinition, identity: str) -> StepView | None:
        """A recorded result of this identity whose every byte is what it was, or None."""
        return self.cache.first_whole(self._candidates(step.name, identity))

    def rest(self, settled: Mapping[str, StepView]) -> dict[str, StepView]:
        """``settled`` and every other step that has its output too, by the run itself or by its pointer."""
        known = dict(settled)
        for step in self.plan.steps:
            if step.name in known or any(name not in known for name in step.inputs):
                continue
            found = self._pin(step.name) or self._quietly(step, self.identity(step, known))
            if found is not None:
                known[step.name] = found
        return known

    def _own(self, name: str) -> StepView | None:
        return self.run.steps.get(name) if self.run is not None else None

    def _pin(self, name: str) -> StepView | None:
        view = self.pinned.get(name)
        return None if view is None else self._whole(name, [view])

    def _candidates(self, name: str, identity: str) -> list[StepView]:
        """Results of this identity: the run's own first, then the newest recorded."""
        own = self._own(name)
        recorded = self.cache.recorded(name, identity)
        if own is None or own.identity != identity:
            return recorded
        return [own, *(view for view in recorded if view.completed_at != own.completed_at)]

    def _input(self, step: StepDefinition, identity: str) -> StepView:
        candidates = self._candidates(step.name, identity)
        if not candidates:
            absent = MissingInput(
                "an input has not been made in this root",
                where=f"step {step.name}",
                expected="a recorded result for this recipe and this code",
                found="none",
                cure=f"run `marin stage {step.name}`, or all of it with `dvc repro`",
            )
            absent.step = step.name
            raise absent
        if self.project is None:
            return self._whole(step.name, candidates)
        path = pointer_path(self.project, step.name)
        try:
            pointer = read_pointer(path)
        except NotFound:
            raise MissingEvidence(
                "an input has no pointer",
                where=str(path),
                expected=candidates[0].output.digest,
                found="no file",
                cure=f"run `marin stage {step.name}`: it writes it again",
            ) from None
        matching = [candidate for candidate in candidates if pointer_of(candidate.output) == pointer]
        if not matching:
            raise Tampered(
                "a pointer names something else than what was recorded",
                where=str(path),
                expected=_pointer_in_words(pointer_of(candidates[0].output)),
                found=_pointer_in_words(pointer),
                cure=f"restore it with Git, or run `marin stage {step.name}`: it writes it again",
            )
        return self._whole(step.name, matching)

    def _whole(self, name: str, candidates: list[StepView]) -> StepView:
        damage = ""
        for candidate in candidates:
            # What the run holds already was hashed when it came in, and is hashed again when it is checked out.
            found = "" if self.is_held(candidate) else self.cache.damage(candidate)
            if not found:
                return candidate
            damage = damage or found
        raise Tampered(
            "an input is not whole",
            where=f"step {name}",
            expected=candidates[0].output.artifact,
            found=damage,
            cure=f"make it again with `marin stage {name}`",
        )

    def _quietly(self, step: StepDefinition, identity: str) -> StepView | None:
        """As :meth:`_input`, where nobody asked for the step: what is missing is simply not there yet."""
        candidates = self._candidates(step.name, identity)
        if candidates and self.is_held(candidates[0]):
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


def _pointer_in_words(pointer: Pointer) -> str:
    return f"{pointer.digest} ({pointer.kind}, {pointer.size} bytes)"
