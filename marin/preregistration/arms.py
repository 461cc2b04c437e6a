"""Which arm of which registration a run is, by what its log holds.

From its registration on every run that belongs to one of its arms and seeds cites it in ``run.started``, however it was
started, because the executor asks :func:`citation`.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import msgspec

from ledger import canonical_digest
from marin.errors import UsageError
from marin.history.run import Fact
from marin.history.runs import History, facts, started_runs
from marin.kinds.families.experiment import ExperimentRegistered
from marin.process.text import clipped
from marin.recipe.schema import ArtifactDataset, Recipe, digest, from_plain
from marin.recipe.section import Name
from marin.record.events import RunStarted

SAID = {"experiment": "name"} | {
    name: name
    for name in (
        *("question", "hypothesis", "primary", "secondary", "baseline", "seeds"),
        *("test", "alternative", "alpha", "stopping_rule", "cost_cap"),
    )
}
"""What an event repeats of its registration: its field, and that of the document."""


def arm_digest(recipe: Recipe) -> str:
    """Digest of what makes two runs runs of one arm: the recipe but for its seed, the state of a later phase, and the
    digests of what steps of the experiment make."""
    phase = recipe.phase
    if phase is not None:
        phase = msgspec.structs.replace(phase, state=None, tokenizer=None)
    dataset, tokens = recipe.dataset, recipe.tokens
    if isinstance(dataset, ArtifactDataset) and dataset.artifact.maker is not None:
        dataset = msgspec.structs.replace(dataset, artifact=msgspec.structs.replace(dataset.artifact, digest=None))
    if tokens.artifact is not None and tokens.artifact.maker is not None:
        tokens = msgspec.structs.replace(tokens, artifact=msgspec.structs.replace(tokens.artifact, digest=None))
    return digest(msgspec.structs.replace(recipe, seed=None, phase=phase, dataset=dataset, tokens=tokens))


def arm_key(recipe: Recipe, label: str) -> str:
    """What names an arm in the ledger: the digest of its recipe, and of the label that sets it apart if there is one."""
    return canonical_digest([arm_digest(recipe), label]) if label else arm_digest(recipe)


def arm_of(body: ExperimentRegistered, recipe: Recipe, pipeline: str) -> str | None:
    """The arm of a run, or None. ``pipeline``: the name of its plan, whose parts after the first are its labels."""
    arms = {value: name for name, value in body.arms.items()}
    labels = [*pipeline.split(".")[1:], ""]
    return next((arms[key] for label in labels if (key := arm_key(recipe, label)) in arms), None)


def registrations(history: History, name: str | None = None) -> Iterator[Fact[ExperimentRegistered]]:
    """Every registration (of the experiment ``name``), the oldest first. A word of someone else's
    log that is not a name is left out: pages and files are called by it."""
    for fact in facts(history, ExperimentRegistered):
        if name in (None, fact.body.experiment) and is_name(fact.body.experiment):
            yield fact


def runs_with_recipes(history: History) -> Iterator[tuple[Fact[RunStarted], Recipe]]:
    """Every run with its recipe, in the order in which they started. One of another version of Marin, whose recipe this one
    cannot read, is of no arm here."""
    for started in started_runs(history):
        try:
            recipe = from_plain(started.body.recipe, where=f"run {started.body.run}")
        except UsageError:
            continue
        yield started, recipe


def contradictions_with(body: ExperimentRegistered, document: bytes) -> Iterator[str]:
    """Where an event of a registration says otherwise than the stored document that it digests. Arms of another version of
    Marin are compared by their names alone."""
    try:
        stated = msgspec.json.decode(document, type=dict[str, Any])
    except (msgspec.DecodeError, ValueError, RecursionError):
        yield "what is stored is no registration"
        return
    told = msgspec.to_builtins(body)
    for field, name in SAID.items():
        if stated.get(name) != told[field]:
            yield f"{field}: the stored registration has {clipped(str(stated.get(name)), 80)}, the event {told[field]!s:.80}"
    arms, apart = (
        dict[str, Any](found) if isinstance(found := stated.get(name), dict) else {} for name in ("arms", "apart")
    )
    if arms.keys() != body.arms.keys():
        yield f"arms: the stored registration has {', '.join(sorted(arms))}, the event {', '.join(sorted(body.arms))}"
        return
    for name, recipe in arms.items():
        try:
            key = arm_key(from_plain(recipe, where=f"arm {name}"), str(apart.get(name, "")))
        except UsageError:
            continue
        if key != body.arms[name]:
            yield f"arm {name}: the stored registration has {key}, the event {body.arms[name]}"


def is_name(word: str) -> bool:
    """Whether an experiment can be called so."""
    try:
        msgspec.convert(word, Name)
    except msgspec.ValidationError:
        return False
    return True


def citation(history: History, recipe: Recipe, pipeline: str = "") -> str:
    """The digest of the newest registration that has this recipe, executed by a plan of this name, as an arm with this
    seed; "" where there is none."""
    cited = ""
    for fact in registrations(history):
        if registers(fact.body, recipe, pipeline):
            cited = fact.body.registration
    return cited


def registers(body: ExperimentRegistered, recipe: Recipe, pipeline: str = "") -> bool:
    """Whether a registration has this recipe, executed by a plan of this name, as an arm with this seed."""
    return str(recipe.seed) in body.seeds and arm_of(body, recipe, pipeline) is not None
