"""What an experiment says before it is run: question, hypothesis, primary metric, arms, seeds, test, stopping rule,
cap.

An experiment file states it as a value at its top level, ``experiment = Registration(...)``; ``marin experiment
register FILE`` appends it as ``experiment.registered/v1``. From then on every run that belongs to one of its arms and
seeds cites it (:mod:`marin.preregistration.arms`).

An arm is a recipe without its seed, and without the state that a later phase begins with (which differs from seed to
seed): two runs are of one arm exactly when :func:`marin.preregistration.arms.arm_digest` is equal. Two arms may be one
recipe that is executed in two ways: then one of them has the label that sets its steps apart in the file, and its runs the
same in the name of their plan.
"""

from __future__ import annotations

import difflib
from typing import Annotated, Any, Literal

import msgspec
from msgspec import Meta

from ledger import Store, canonical_bytes, digest_bytes
from marin.errors import DataError, UsageError
from marin.history.run import Fact
from marin.history.runs import History
from marin.kinds.families.experiment import ExperimentRegistered
from marin.preregistration.arms import arm_key, registrations
from marin.preregistration.resolution import pairs_needed
from marin.recipe.schema import Recipe, check, plain
from marin.recipe.section import Name, Section, Seed

Text = Annotated[str, Meta(min_length=1, max_length=4000)]
INDEX = "index"
"""The page of all tracks is called so; a track has a page by its own name beside it."""
MetricName = Annotated[str, Meta(pattern=r"^[a-z][a-z_0-9-]*\.[A-Za-z0-9_.-]+$")]


class Metric(Section, frozen=True):
    """A number that a run ends with, as ``step.name``, and which way is better."""

    name: MetricName
    direction: Literal["lower", "higher"] = "lower"


class CostCap(Section, frozen=True):
    """What the experiment may cost at most, over all runs. ``seconds`` are of executed steps."""

    seconds: Annotated[float, Meta(gt=0)] | None = None
    flops: Annotated[float, Meta(gt=0)] | None = None
    price: Annotated[float, Meta(gt=0)] | None = None
    currency: str = "USD"
    device: str = "here"


class Track(Section, frozen=True):
    """What one run on a track of speedruns may cost at most: ``flops`` of its training, ``parameters`` of its model,
    ``hours`` that a replay of it needs for its training (wall time, times workers: no clock of the entrant's is
    believed); at least one of them is given. What it is trained on, begins with and is measured by are the baseline's
    (:data:`marin.plugins.lab.speedrun.FIXED`)."""

    flops: Annotated[float, Meta(gt=0)] | None = None
    parameters: Annotated[int, Meta(gt=0)] | None = None
    hours: Annotated[float, Meta(gt=0)] | None = None


class Registration(Section, frozen=True, kw_only=True):
    """An experiment as it is preregistered. ``arms``: recipes by name, whose seeds do not matter; every arm is run with
    every one of ``seeds``, and compared with ``baseline``. ``alternative``: one-sided says that only an arm that is
    better counts. ``apart``: the label of an arm whose steps are executions of their own, by arm. ``track``: others may enter
    runs of their own (:mod:`marin.plugins.lab.speedrun`)."""

    name: Name
    question: Text
    hypothesis: Text
    primary: Metric
    arms: dict[Name, Recipe]
    baseline: Name
    seeds: tuple[Seed, ...]
    secondary: tuple[Metric, ...] = ()
    test: Literal["paired", "welch"] = "paired"
    alternative: Literal["two-sided", "one-sided"] = "two-sided"
    alpha: Annotated[float, Meta(gt=0, lt=1)] = 0.05
    apart: dict[Name, Name] = msgspec.field(default_factory=dict)
    stopping_rule: Text = "All arms with all seeds; no look at the results before that."
    cost_cap: CostCap = CostCap()
    track: Track | None = None

    @property
    def metrics(self) -> tuple[Metric, ...]:
        """The primary metric and the secondary ones."""
        return (self.primary, *self.secondary)

    def document(self) -> bytes:
        """Canonical JSON of the whole registration, recipes included; its digest names the registration."""
        value = msgspec.to_builtins(msgspec.structs.replace(self, arms={}))
        value["arms"] = {name: plain(msgspec.structs.replace(recipe, seed=None)) for name, recipe in self.arms.items()}
        if not self.apart:
            del value["apart"]  # as it was before there were any
        if self.track is None:
            del value["track"]
        elif self.track.hours is None:
            del value["track"]["hours"]  # as it was before there were any
        value["seeds"] = [str(seed) for seed in self.seeds]
        return canonical_bytes(value)

    def warnings(self) -> list[str]:
        """What is allowed and probably not meant."""
        found = []
        side: Literal["two-sided", "less"] = "two-sided" if self.alternative == "two-sided" else "less"
        needed = pairs_needed(self.alpha, side)
        if self.test == "paired" and len(self.seeds) < needed:
            found.append(
                f"with {len(self.seeds)} seeds no outcome can reach p <= {self.alpha:g} ({self.alternative}, exact "
                f"sign-flip); it takes {needed}"
            )
        if self.test == "welch" and len(self.seeds) < 2:
            found.append("with one seed there is no spread, and nothing can be tested")
        if self.cost_cap == CostCap():
            found.append("there is no cost cap")
        return found


def checked(registration: Registration, *, where: str) -> Registration:
    """``registration`` with every type and range checked (a file of Python can write anything into it).

    Raises:
        UsageError: a value does not fit, the baseline is not an arm, two arms are one recipe, a seed or a metric is there
            twice.
    """
    try:
        found = msgspec.convert(msgspec.to_builtins(registration), Registration)
    except (msgspec.ValidationError, TypeError) as error:
        raise UsageError(
            "a registration cannot be so",
            where=where,
            expected="the types of marin.experiment.Registration",
            found=str(error),
            cure="correct that value",
        ) from None
    if found.baseline not in found.arms:
        near = difflib.get_close_matches(found.baseline, found.arms, n=1)
        raise UsageError(
            "the baseline is no arm",
            where=where,
            expected=", ".join(found.arms) or "arms",
            found=found.baseline,
            cure=f"did you mean {near[0]}?" if near else "name one of the arms",
        )
    # A page of a published site is called by the name of its track.
    if found.track is not None and found.name == INDEX:
        raise UsageError(
            "a track by the name of the page of all tracks",
            where=where,
            expected="another name",
            found=found.name,
            cure="call the experiment otherwise",
        )
    if found.track == Track():
        raise UsageError(
            "a track that limits nothing",
            where=where,
            expected="flops, parameters or hours that one run may cost at most",
            found="none of them: anyone who spends most would win",
            cure="write track=Track(flops=...), parameters=... or hours=...",
        )
    if len(found.arms) < 2 and found.track is None:
        raise UsageError(
            "nothing to compare",
            where=where,
            expected="two arms or more",
            found=str(len(found.arms)),
            cure="add the arm that the hypothesis is about",
        )
    if len(set(found.seeds)) != len(found.seeds) or not found.seeds:
        raise UsageError(
            "seeds are there twice or not at all",
            where=where,
            expected="different seeds",
            found=", ".join(map(str, found.seeds)) or "none",
            cure="give each seed once",
        )
    names = [metric.name for metric in found.metrics]
    if len(set(names)) != len(names):
        raise UsageError("a metric is there twice", where=where, found=", ".join(names), cure="name each once")
    # A run belongs to an arm by its recipe: two arms with one recipe would be compared with themselves.
    by_digest: dict[str, str] = {}
    for arm, recipe in found.arms.items():
        check(recipe, where=f"{where}: arm {arm}")
        other = by_digest.setdefault(arm_key(recipe, found.apart.get(arm, "")), arm)
        if other != arm:
            raise UsageError(
                "two arms are one recipe",
                where=where,
                expected="arms that differ",
                found=f"{other} and {arm}",
                cure="drop one of them: a seed does not make an arm; or name in apart={arm: label} what sets it apart",
            )
    if strangers := found.apart.keys() - found.arms.keys():
        raise UsageError(
            "a label for an arm that is not there",
            where=f"{where}: apart",
            expected=", ".join(found.arms),
            found=", ".join(sorted(strangers)),
            cure="name arms",
        )
    return found


def registered(registration: Registration, *, file: str, file_digest: str) -> ExperimentRegistered:
    """The event's body."""
    return ExperimentRegistered(
        experiment=registration.name,
        registration=digest_bytes(registration.document()),
        file=file,
        file_digest=file_digest,
        question=registration.question,
        hypothesis=registration.hypothesis,
        primary=_metric(registration.primary),
        secondary=[_metric(metric) for metric in registration.secondary],
        arms={name: arm_key(recipe, registration.apart.get(name, "")) for name, recipe in registration.arms.items()},
        baseline=registration.baseline,
        seeds=[str(seed) for seed in registration.seeds],
        test=registration.test,
        alternative=registration.alternative,
        alpha=registration.alpha,
        stopping_rule=registration.stopping_rule,
        cost_cap=msgspec.to_builtins(registration.cost_cap),
    )


class RegistrationDocument(msgspec.Struct, frozen=True):
    """What is read again of a registration's document: recipes by arm, and the track if it is one."""

    arms: dict[str, dict[str, Any]]
    track: Track | None = None


def document_of(fact: Fact[ExperimentRegistered], store: Store) -> RegistrationDocument:
    """What a registration says, from the store.

    Raises:
        DataError: what is there is no registration.
        LedgerError: it is not there.
    """
    try:
        return msgspec.json.decode(store.read(fact.body.registration), type=RegistrationDocument)
    except (msgspec.DecodeError, ValueError, RecursionError) as error:
        raise DataError(
            "no registration",
            where=f"registration {fact.body.registration}",
            expected="arms, and a track if it is one",
            found=str(error)[:200],
        ) from None


def find(history: History, name: str) -> str:
    """The experiment that ``name`` means: its whole name or a unique beginning of it.

    Raises:
        UsageError: there is none, or several begin like that.
    """
    known = sorted({fact.body.experiment for fact in registrations(history)})
    matching = [item for item in known if item == name] or [item for item in known if name and item.startswith(name)]
    if len(matching) == 1:
        return matching[0]
    near = difflib.get_close_matches(name, known, n=1)
    raise UsageError(
        "ambiguous experiment" if matching else "unknown experiment",
        where=name,
        expected="the name of a registered experiment, or a beginning that only one has",
        found=", ".join(matching or known) or "none is registered",
        cure=f"did you mean {near[0]}?" if near else "register it with `marin experiment register FILE`",
    )


def _metric(metric: Metric) -> dict[str, Any]:
    return {"name": metric.name, "direction": metric.direction}


def as_alternative(direction: str, alternative: str) -> Literal["two-sided", "less", "greater"]:
    """The side that counts for arm - baseline when better is ``direction``."""
    if alternative == "two-sided":
        return "two-sided"
    return "less" if direction == "lower" else "greater"
