"""What the events of one run say of its model, value by value, each with the events that it follows from.

A value is one of three: ``recorded`` (it is in an event, or follows from events by arithmetic), ``stated`` (a provider said
so in a recorded card; nothing here can tell whether it is true), or ``open`` (nobody said it yet).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from marin.dossier.evidence import Proven
from marin.dossier.stated import STATED, check_card, stated
from marin.errors import UsageError
from marin.history.run import Run
from marin.history.runs import load
from marin.recipe.cost import TRAINING_PASSES, flops_per_token, parameters
from marin.recipe.schema import parts
from marin.record.events import MetricsRecorded, read

Source = Literal["recorded", "stated", "open"]
OPEN = "to be stated by the provider"


@dataclass(frozen=True)
class Told:
    """One value of a dossier: its name, where it comes from, and the indexes of the events that it follows from."""

    name: str
    value: Any
    source: Source
    events: tuple[int, ...] = ()

    def __str__(self) -> str:
        return ", ".join(map(str, self.value)) if isinstance(self.value, list) else str(self.value)


@dataclass(frozen=True)
class Subject:
    """A run, and all that a dossier can say of its model. ``origin``: of the log."""

    run: Run
    proven: Proven
    values: Mapping[str, Told]
    files: Mapping[str, tuple[tuple[str, str, int], ...]] = field(default_factory=dict)
    """By step, path, sha256 and size of the files of its output, as far as their plain sha256 is known."""

    def __getitem__(self, name: str) -> Told:
        return self.values[name]

    def named(self, before: str) -> Iterator[Told]:
        """Those whose names begin with this, in order."""
        return (told for name, told in self.values.items() if name.startswith(before))


def subject(proven: Proven, run: str, files: Mapping[str, tuple[tuple[str, str, int], ...]] | None = None) -> Subject:
    """What the ``proven`` events say of ``run`` and of its model.

    Raises:
        UsageError: the run has no exported model, or its card contradicts the ledger.
    """
    view = load(proven, run)
    values = {told.name: told for told in derived(view, proven)}
    card = stated(proven, run)
    said = {} if card is None else card.body.values
    at = () if card is None else (card.index,)
    check_card(said, {name: told.value for name, told in values.items()}, where=f"the card of run {run}")
    for name in STATED:
        values[name] = Told(name, said[name], "stated", at) if name in said else Told(name, OPEN, "open")
    return Subject(view, proven, values, files or {})


def derived(run: Run, proven: Proven) -> Iterator[Told]:
    """Everything that the ledger knows, by name."""
    if run.is_loop or "export" not in run.steps:
        raise UsageError("a run without an exported model has no dossier", where=f"run {run.run}", expected="step export",
                         found=", ".join(run.steps) or "no outputs", cure="let the run end first")  # fmt: skip
    began, recipe, steps = run.started.index, run.recipe, run.steps
    at = {name: step.completed_at for name, step in steps.items()}

    def told(name: str, value: object, *events: int) -> Told:
        return Told(name, value, "recorded", tuple(sorted({*events})))

    yield told("run.id", run.run, began)
    yield told("run.began", run.started.time, began)
    yield told("run.ledger", proven.checkpoint.origin, began)
    yield told("run.recipe", run.started.body.recipe_digest, began)
    yield told("run.plan", run.plan, began)
    for name in ("commit", "tree"):
        if isinstance(code := run.started.body.code.get(name), str):
            yield told(f"run.{name}", code, began)
    if lock := run.started.body.environment.get("lock"):
        yield told("run.lock", str(lock), began)
    if run.completed is not None:
        yield told("run.ended", run.completed.time, run.completed.index)
    model, trainer = recipe.model, recipe.trainer
    export = steps["export"].output
    yield told("model.digest", export.digest, at["export"])
    yield told("model.bytes", export.size, at["export"])
    yield told("model.format", recipe.export.format, began)
    yield told("model.architecture", model.architecture, began)
    yield told("model.parameters", parameters(model, recipe.tokenizer.vocab_size), began)
    for name, size in (("layers", model.num_layers), ("width", model.hidden_dim), ("heads", model.num_heads),
                       ("context", model.seq_len)):  # fmt: skip
        yield told(f"model.{name}", size, began)
    yield told("model.vocabulary", recipe.tokenizer.vocab_size, began)
    yield told("model.modality", "text", began)
    yield told("training.state", steps["train"].output.digest, at["train"])
    yield told("training.steps", trainer.num_steps, began)
    yield told("training.sequences", trainer.num_steps * trainer.batch_size, began)
    yield told("training.tokens", trainer.num_steps * trainer.batch_size * model.seq_len, began)
    yield told("training.seed", recipe.seed if recipe.seed is not None else "drawn", began)
    yield told("training.objective", "cross entropy of the next token", began)
    for name, value in (("optimizer", recipe.optimizer.name), ("learning_rate", recipe.optimizer.learning_rate),
                        ("schedule", recipe.optimizer.schedule), ("weight_decay", recipe.optimizer.weight_decay),
                        ("precision", recipe.arithmetic.compute_dtype), ("arithmetic", recipe.arithmetic.profile)):  # fmt: skip
        yield told(f"training.{name}", value, began)
    flop = TRAINING_PASSES * flops_per_token(model, recipe.tokenizer.vocab_size) * trainer.num_steps
    yield told("training.compute_flop", flop * trainer.batch_size * model.seq_len, began)
    yield told("training.compute_method", "from the recipe: three passes, each of the matrix products and the attention "
               "(Narayanan et al. 2021); not a measurement", began)  # fmt: skip
    yield told("training.seconds", steps["train"].seconds, at["train"])
    yield told("run.seconds", round(sum(step.seconds for step in steps.values()), 6), *at.values())
    yield from _machine(run, proven)
    yield from _data(run)
    for name, value in sorted(run.measured.items()):
        if math.isfinite(value):
            where = run.evaluation.index if run.evaluation is not None else at["evaluate"]
            yield told(f"evaluation.{name}", value, where)
    if run.verdicts:
        last = run.verdicts[-1]
        for name, word in sorted(last.body.verdicts.items()):
            yield told(f"verification.{name}", word, last.index)


def _machine(run: Run, proven: Proven) -> Iterator[Told]:
    """What the training was measured on, and by how much."""
    environment, began = run.started.body.environment, run.started.index
    processor = environment.get("processor")
    if isinstance(processor, Mapping) and isinstance(kind := processor.get("model"), str):
        yield Told("training.processor", kind, "recorded", (began,))
    if run.training:
        first = run.training[0]
        yield Told("training.devices", first.body.devices, "recorded", (first.index,))
        if isinstance(kind := first.body.device.get("kind"), str):
            yield Told("training.device", kind, "recorded", (first.index,))
    wanted, found, places = "system/cpu_utilization_percentage", [], []
    streams = {run.run, run.steps["train"].origin}
    for index, event in proven.events(type="metrics.recorded/v1"):
        body = read(MetricsRecorded, event.body, where=f"event {index}")
        if body.run in streams and body.step == "train":
            for series in body.series:
                if series.key == wanted:
                    found += [float.fromhex(value) for value in series.values]
                    places.append(index)
    if found:
        yield Told("training.cpu_percent", round(sum(found) / len(found), 3), "recorded", tuple(places))


def _data(run: Run) -> Iterator[Told]:
    began, recipe = run.started.index, run.recipe
    yield Told("data.name", recipe.dataset.name, "recorded", (began,))
    yield Told("data.parts", sorted(parts(recipe.dataset)), "recorded", (began,))
    yield Told("data.kinds", sorted({type(part).__struct_config__.tag for part in parts(recipe.dataset).values()}),
               "recorded", (began,))  # fmt: skip
    yield Told("data.excluded", list(recipe.exclude or ()), "recorded", (began,))
    for name in ("corpus", "tokenizer", "tokens"):
        if name in run.steps:
            step = run.steps[name]
            yield Told(f"data.{name}", step.output.digest, "recorded", (step.completed_at,))
            for metric, value in sorted(step.metrics.items()):
                if math.isfinite(value):
                    shown = int(value) if value == int(value) else value
                    yield Told(f"data.{name}.{metric}", shown, "recorded", (step.completed_at,))
