"""Whether what a run's events say of one thing is the same everywhere it is said. Pure: events in, contradictions out.

An operator who holds the key can sign any event. Replay finds what he says of bits; what he says twice (a recipe and its
digest, an output and the input of the next step, a metric and its copy in the run's end) is compared here, and what follows
from other events (an identity, the first and the last loss) is derived again.

Claims that nothing else depends on are not evidence and are not looked at: times, seconds, names of actors, numbers of
attempts and devices, the description of the machine.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from typing import Any

from ledger import LedgerError, canonical_digest
from marin import events as kinds
from marin.events import Output
from marin.plan import Plan, identity_of, step_config
from marin.recipe import FilesDataset, Recipe, digest
from marin.runs import Indexed, RunView


@dataclass(frozen=True)
class Contradiction:
    """One event that does not agree with the others: its index, the field, and the step of the pipeline it is about."""

    index: int
    field: str
    expected: str
    found: str
    step: str = ""

    def __str__(self) -> str:
        about = f" of step {self.step}" if self.step else ""
        return f"event {self.index}, {self.field}{about}: expected {self.expected}, found {self.found}"


def contradictions(run: RunView, events: Iterable[Indexed], plan: Plan) -> list[Contradiction]:
    """All contradictions among the events of the run's own stream, in the order of the log."""
    try:
        recipe = run.recipe
    except LedgerError as error:
        return [Contradiction(run.started.index, "recipe", "one that this version reads", str(error))]
    looked = _Looked(run, recipe, plan)
    return [found for item in events for found in looked.at(item)]


class _Looked:
    """One pass over the events, remembering what steps began with."""

    def __init__(self, run: RunView, recipe: Recipe, plan: Plan) -> None:
        self.run, self.recipe, self.plan = run, recipe, plan
        self._begun: dict[str, kinds.StepStarted] = {}
        self._training = ""

    def _superseded(self, body: kinds.Body) -> bool:
        """Whether the event tells of a training whose place another one of this run took, when its inputs had changed:
        what follows from it can agree with nothing that stands."""
        if isinstance(body, kinds.StepStarted) and body.step == "train":
            self._training = body.identity
        view = self.run.steps.get("train")
        facts = isinstance(body, kinds.TrainStarted | kinds.CheckpointSaved)
        return facts and view is not None and self._training not in ("", view.identity)

    def at(self, item: Indexed) -> Iterator[Contradiction]:
        index, event = item
        kind = kinds.BODIES.get(event.type)
        if kind is None:
            return
        body = kinds.read(kind, event.body, where=f"event {index}")
        if self._superseded(body):
            return
        step, pairs = "", list[tuple[str, Any, Any]]()
        match body:
            case kinds.RunStarted():
                pairs = self._started(body)
            case kinds.StepStarted():
                step, pairs = body.step, self._step_started(body)
            case kinds.StepCompleted() | kinds.StepCached():
                step, pairs = body.step, self._output(body)
            case kinds.TrainStarted():
                step, pairs = "train", self._train_started(body)
            case kinds.CheckpointSaved():
                step, pairs = "train", self._checkpoint(body)
            case kinds.EvalCompleted():
                step, pairs = "evaluate", [("model", self._digest("train"), body.model)]
                if (view := self.run.steps.get("evaluate")) is not None:
                    pairs.append(("metrics", dict(view.metrics), {k: float.fromhex(v) for k, v in body.metrics.items()}))
            case kinds.ModelExported():
                step = "export"
                pairs = [("model", self._digest("train"), body.model), ("output", self._whole("export"), body.output),
                         ("format", self.recipe.export.format, body.format)]
            case kinds.RunCompleted():
                pairs = [("outputs", {name: view.output for name, view in self.run.steps.items()}, body.outputs),
                         ("metrics", self.run.metrics, {k: float.fromhex(v) for k, v in body.metrics.items()})]
        if "run" in event.body and event.type != kinds.REPLAY_COMPLETED:
            pairs.insert(0, ("run", self.run.run, event.body["run"]))
        for name, expected, found in pairs:
            if expected is not None and expected != found:
                yield Contradiction(index, name, *_texts(expected, found), step)

    def _digest(self, step: str) -> str | None:
        view = self.run.steps.get(step)
        return view.output.digest if view is not None else None

    def _whole(self, step: str) -> Output | None:
        view = self.run.steps.get(step)
        return view.output if view is not None else None

    def _started(self, body: kinds.RunStarted) -> list[tuple[str, Any, Any]]:
        pairs: list[tuple[str, Any, Any]] = [("recipe_digest", digest(self.recipe), body.recipe_digest)]
        if not isinstance(steps := body.code.get("steps"), dict):
            return pairs

        def plan(name: str) -> str:
            return canonical_digest({"code": steps, "lock": body.environment.get("lock"), "plan": name,
                                     "recipe": digest(self.recipe)})

        if body.pipeline == self.plan.name:
            pairs.append(("plan", plan(body.pipeline), body.plan))
        elif body.plan == plan(self.plan.name):
            pairs.append(("pipeline", self.plan.name, body.pipeline))
        return pairs

    def _step_started(self, body: kinds.StepStarted) -> list[tuple[str, Any, Any]]:
        self._begun[body.identity] = body
        started = self.run.started.body
        codes = started.code.get("steps")
        pairs = [("config_digest", canonical_digest(body.config), body.config_digest),
                 ("identity", identity_of(body.step, body.config, body.inputs, body.code,
                                          body.lock or started.environment.get("lock", "")), body.identity),
                 ("lock", started.environment.get("lock") if body.lock else None, body.lock),
                 ("code", codes.get(body.step) if isinstance(codes, dict) else None, body.code),
                 ("inputs", self._inputs(body), body.inputs)]
        known = {step.name: step for step in self.plan.steps} if started.pipeline == self.plan.name else {}
        if body.step in known and not (body.step == "corpus" and isinstance(self.recipe.dataset, FilesDataset)):
            # What local files hold is part of the corpus' configuration, and is not in the recipe.
            pairs.append(("config", step_config(known[body.step], self.recipe), body.config))
        return pairs

    def _output(self, body: kinds.StepCompleted | kinds.StepCached) -> list[tuple[str, Any, Any]]:
        pairs: list[tuple[str, Any, Any]] = [("inputs", self._inputs(body), body.inputs)]
        begun = self._begun.get(body.identity)
        if isinstance(body, kinds.StepCached):
            return pairs
        if begun is None:
            return [*pairs, ("identity", "that of a step that began", body.identity)]
        pairs += [("step", begun.step, body.step), ("inputs", begun.inputs, body.inputs)]
        if body.step == "train" and self._inputs(body) is not None:
            pairs.append(("metrics", self._train_metrics(), {k: float.fromhex(v) for k, v in body.metrics.items()}))
        return pairs

    def _inputs(self, body: kinds.StepStarted | kinds.StepCompleted | kinds.StepCached) -> dict[str, str] | None:
        """What the event has as inputs, with the digests that the steps named there have as outputs, as far as they are
        steps; None for a result that another one of this run took the place of, when its inputs had changed."""
        view, recorded = self.run.steps.get(body.step), body.inputs
        if view is not None and view.identity != body.identity:
            return None
        return {name: self.run.steps[name].output.digest if name in self.run.steps else found
                for name, found in recorded.items()}

    def _train_metrics(self) -> dict[str, float] | None:
        losses = [float.fromhex(loss) for fact in self.run.segments for loss in fact.body.losses]
        trainer = self.recipe.trainer
        if len(losses) != trainer.num_steps:
            return None  # a gap, or more than this run's own steps: the chain of segments says so
        return {"loss_first": losses[0], "loss_last": losses[-1],
                "tokens": float(trainer.num_steps * trainer.batch_size * self.recipe.model.seq_len)}

    def _train_started(self, body: kinds.TrainStarted) -> list[tuple[str, Any, Any]]:
        arithmetic = self.recipe.arithmetic
        begins = {fact.body.start: fact.body.start_state for fact in self.run.segments}
        seeds = body.seeds.get("root")
        return [("num_steps", self.recipe.last_step, body.num_steps),
                ("state", begins.get(body.first_step), body.state),
                ("program.xla_flags", list(arithmetic.xla_flags), body.program.get("xla_flags")),
                ("program.threads", arithmetic.threads, body.program.get("threads")),
                ("program.profile", arithmetic.profile, body.program.get("profile")),
                ("seeds.root", str(self.recipe.seed), seeds)]

    def _checkpoint(self, body: kinds.CheckpointSaved) -> list[tuple[str, Any, Any]]:
        ends = {fact.body.end: fact.body.end_state for fact in self.run.segments}
        return [("state", ends.get(body.step), body.state)]  # none yet: the writer stopped between the two events


def _texts(expected: Any, found: Any) -> tuple[str, str]:
    """The first place in which two values differ, short."""
    if isinstance(expected, dict) and isinstance(found, dict):
        key = next((k for k in sorted(expected.keys() | found.keys()) if expected.get(k) != found.get(k)), None)
        if key is not None:
            return tuple(f"{key}={_short(side.get(key))}" for side in (expected, found))  # type: ignore[return-value]
    return _short(expected), _short(found)


def _short(value: Any) -> str:
    text = str(value)
    return text if len(text) <= 120 else text[:117] + "..."
