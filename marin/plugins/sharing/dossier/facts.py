"""What the events of one run say of its model, value by value, each with the events that it follows from.

A value is one of three: ``recorded`` (it is in an event, or follows from events by arithmetic), ``stated`` (a provider said
so in a recorded card; nothing here can tell whether it is true), or ``open`` (nobody said it yet).
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from marin.errors import UsageError
from marin.history.run import Run
from marin.history.runs import load
from marin.plugins.sharing.dossier.data import data_facts
from marin.plugins.sharing.dossier.measured import JOULES, band, measured
from marin.plugins.sharing.dossier.stated import STATED, check_card, newest_card
from marin.recipe.cost import TRAINING_PASSES, flops_per_token, parameters
from marin.recipe.schema import FilesDataset, Recipe, parts
from marin.verify.alone.proven import Proven

Source = Literal["recorded", "stated", "open"]
OPEN = "to be stated by the provider"
INFERENCE = 100_000
"""Tokens of the inference whose computation is told."""
_PARAMETERS = (
    (5e8, "1 to 500M parameters"),
    (5e9, "500M to 5B parameters"),
    (1.5e10, "5B to 15B parameters"),
    (5e10, "15B to 50B parameters"),
    (1e11, "50B to 100B parameters"),
    (5e11, "100B to 500B parameters"),
    (1e12, "500B to 1T parameters"),
)
"""The bands of the Model Documentation Form, each with its upper end."""


@dataclass(frozen=True)
class Entry:
    """One value of a dossier: its name, where it comes from, and the indexes of the events that it follows from.
    ``measured``: a clock or a counter of a machine says so; no execution could establish it."""

    name: str
    value: Any
    source: Source
    events: tuple[int, ...] = ()
    measured: bool = False

    def __str__(self) -> str:
        return ", ".join(map(str, self.value)) if isinstance(self.value, list) else str(self.value)


@dataclass(frozen=True)
class Subject:
    """A run, and all that a dossier can say of its model. ``origin``: of the log."""

    run: Run
    proven: Proven
    values: Mapping[str, Entry]
    files: Mapping[str, tuple[tuple[str, str, int], ...]] = field(default_factory=dict)
    """By step, path, sha256 and size of the files of its output, as far as their plain sha256 is known."""

    def __getitem__(self, name: str) -> Entry:
        return self.values[name]

    @property
    def title(self) -> Entry:
        """The name of the model where its card states one, and the id of the run elsewhere."""
        return self["model.name"] if self["model.name"].source == "stated" else self["run.id"]

    def named(self, before: str) -> Iterator[Entry]:
        """Those whose names begin with this, in order."""
        return (told for name, told in self.values.items() if name.startswith(before))


def subject(proven: Proven, run: str, files: Mapping[str, tuple[tuple[str, str, int], ...]] | None = None) -> Subject:
    """What the ``proven`` events say of ``run`` and of its model.

    Raises:
        UsageError: the run has no exported model, or its card contradicts the ledger.
    """
    view = load(proven, run)
    values = {told.name: told for told in derived(view, proven)}
    card = newest_card(proven, run)
    said = {} if card is None else card.body.values
    at = () if card is None else (card.index,)
    check_card(said, {name: told.value for name, told in values.items()}, where=f"the card of run {run}")
    last = max(
        (card.time if card is not None else "", values["run.ended" if "run.ended" in values else "run.began"].value)
    )
    values["summary.updated"] = Entry("summary.updated", last[:10], "recorded", at or values["run.began"].events)
    for name in STATED:
        if name not in values:
            values[name] = Entry(name, said[name], "stated", at) if name in said else Entry(name, OPEN, "open")
    values |= {told.name: told for told in _estimated(values)}
    return Subject(view, proven, values, files or {})


def _estimated(values: Mapping[str, Entry]) -> Iterator[Entry]:
    """The energy of training, where nothing measured it, but the provider states the power of the machine."""
    watts, seconds = values["training.watts"], values["training.seconds"]
    if watts.source == "stated" and values["training.energy_mwh"].source == "open":
        events = tuple(sorted({*watts.events, *seconds.events}))
        yield Entry("training.energy_mwh", watts.value * seconds.value / JOULES, "stated", events)
        yield Entry(
            "training.energy_method",
            f"estimated: {watts} W, as stated, for {seconds} s of training, as measured",
            "stated",
            events,
        )


def derived(run: Run, proven: Proven) -> Iterator[Entry]:
    """Everything that the ledger knows, by name.

    Raises:
        UsageError: the run has no exported model.
    """
    if run.is_loop or "export" not in run.steps:
        raise UsageError(
            "a run without an exported model has no dossier",
            where=f"run {run.run}",
            expected="step export",
            found=", ".join(run.steps) or "no outputs",
            cure="let the run end first",
        )
    # Each field names the event that says it: a reader of the dossier looks there, and its judge derives the field from that
    # event again. What follows from the recipe rests on the event that began the run.
    began, recipe, steps = run.started.index, run.recipe, run.steps
    at = {name: step.completed_at for name, step in steps.items()}

    def recorded(name: str, value: object, *events: int) -> Entry:
        return Entry(name, value, "recorded", tuple(sorted({*events})))

    yield recorded("run.id", run.run, began)
    yield recorded("run.began", run.started.time, began)
    yield recorded("run.ledger", proven.checkpoint.origin, began)
    yield recorded("run.recipe", run.started.body.recipe_digest, began)
    yield recorded("run.plan", run.plan, began)
    for name in ("commit", "tree"):
        if isinstance(code := run.started.body.code.get(name), str):
            yield recorded(f"run.{name}", code, began)
    if lock := run.started.body.environment.get("lock"):
        yield recorded("run.lock", str(lock), began)
    if run.completed is not None:
        yield recorded("run.ended", run.completed.time, run.completed.index)
    model, trainer = recipe.model, recipe.trainer
    export = steps["export"].output
    yield recorded("model.digest", export.digest, at["export"])
    yield recorded("model.bytes", export.size, at["export"])
    yield recorded("model.format", recipe.export.format, began)
    yield recorded("model.architecture", model.architecture, began)
    size = parameters(model, recipe.vocabulary)
    yield recorded("model.parameters", size, began)
    yield recorded("model.size_band", band(size, _PARAMETERS, "more than 1T parameters"), began)
    for name, value in (
        ("layers", model.num_layers),
        ("width", model.hidden_dim),
        ("heads", model.num_heads),
        ("context", model.seq_len),
    ):
        yield recorded(f"model.{name}", value, began)
    yield recorded("model.vocabulary", recipe.vocabulary, began)
    yield recorded("model.modality", "text", began)
    yield recorded("training.state", steps["train"].output.digest, at["train"])
    yield recorded("training.steps", trainer.num_steps, began)
    yield recorded("training.sequences", trainer.num_steps * trainer.batch_size, began)
    yield recorded("training.tokens", trainer.num_steps * trainer.batch_size * model.seq_len, began)
    yield recorded("training.seed", recipe.seed if recipe.seed is not None else "drawn", began)
    yield recorded("training.objective", objective_of(recipe), began)
    for name, setting in (
        ("optimizer", recipe.optimizer.name),
        ("learning_rate", recipe.optimizer.learning_rate),
        ("schedule", recipe.optimizer.schedule),
        ("weight_decay", recipe.optimizer.weight_decay),
        ("precision", recipe.arithmetic.compute_dtype),
        ("arithmetic", recipe.arithmetic.profile),
    ):
        yield recorded(f"training.{name}", setting, began)
    # Counted from the recipe and not measured: the same for anyone who derives it again, whatever the machine was.
    tokens = trainer.num_steps * trainer.batch_size * model.seq_len
    flop = TRAINING_PASSES * flops_per_token(model, recipe.vocabulary) * tokens
    yield recorded("training.compute_flop", flop, began)
    yield recorded("training.compute_order", f"10^{math.floor(math.log10(flop))} FLOP" if flop else "0 FLOP", began)
    yield recorded(
        "training.compute_method",
        "from the recipe: three passes, each of the matrix products and the attention "
        "(Narayanan et al. 2021); not a measurement",
        began,
    )
    yield recorded("inference.compute_flop", flops_per_token(model, recipe.vocabulary) * INFERENCE, began)
    yield recorded(
        "inference.compute_method",
        f"from the recipe: the forward pass over {INFERENCE:,} tokens in whole contexts, "
        "whatever the hardware (Narayanan et al. 2021); not a measurement",
        began,
    )
    for fact in (*measured(run, proven), *data_facts(run, proven)):
        yield Entry(fact.name, fact.value, "recorded", fact.events, fact.measured)
    # A number that is not finite has no place in JSON; the run itself still shows it.
    for name, number in sorted(run.measured.items()):
        if math.isfinite(number):
            where = run.evaluation.index if run.evaluation is not None else at["evaluate"]
            yield recorded(f"evaluation.{name}", number, where)
    # Of several verifications the newest that said this word, which is the one that the run stands by.
    for name, word in sorted(run.verdict.items()):
        said = next(fact for fact in reversed(run.verdicts) if fact.body.verdicts.get(name) == word)
        yield recorded(f"verification.{name}", word, said.index)


def objective_of(recipe: Recipe) -> str:
    """What the training lowers, in the words of its papers."""
    if (objective := recipe.objective) is not None:
        what = (
            "group relative policy optimization (GRPO)" if objective.name == "grpo" else "policy gradient (REINFORCE)"
        )
        reward = objective.reward if isinstance(objective.reward, str) else objective.reward.function
        if objective.judge is not None:
            reward = f"of the state {objective.judge.state} as judge"
        return f"{what} of completions that the model draws, by the reward {reward}"
    if recipe.lora is not None and recipe.lora.dpo_beta is not None:
        return f"direct preference optimization (DPO), beta {recipe.lora.dpo_beta}"
    answers = any(isinstance(part, FilesDataset) and part.chat for part in parts(recipe.dataset).values())
    return "cross entropy of the next token" + (" of what the assistant says" if answers else "")
