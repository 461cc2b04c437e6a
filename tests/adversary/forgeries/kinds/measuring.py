"""Class 2: measurements that no such run makes, and registrations that say otherwise than what was registered."""

from __future__ import annotations

import copy
import json
from collections.abc import Callable
from typing import Any

from ledger import canonical_bytes
from marin.kinds.families.experiment import EXPERIMENT_REGISTERED
from marin.preregistration.arms import arm_digest
from marin.preregistration.registration import Metric, Registration, registered
from marin.recipe.schema import Recipe, from_plain
from marin.record import events as kinds
from marin.record.events import write
from tests.adversary.forgeries.registry import Forge, kind
from tests.adversary.forgeries.workshop import OTHER, Entry, Shop

GOOD = (0.91).hex()


def _measured(key: str, step: str = "train") -> Forge:
    def forge(shop: Shop) -> None:
        series = [{"key": key, "steps": [11], "values": [GOOD]}]
        shop.add(kinds.METRICS_RECORDED, {"run": shop.run, "step": step, "series": series})

    return forge


for _key in ("router/entropy", "router/largest_share", "router/idle_experts"):
    kind(2, f"{_key} of a run without experts", says="no such measurement, for the recipe has no")(_measured(_key))
for _key in ("rl/reward", "rl/reward_std", "rl/completion_length", "rl/entropy"):
    kind(2, f"{_key} of a run without completions", says="no such measurement, for the recipe has no")(_measured(_key))
for _key in ("router/mmlu", "rl/mmlu", "router/entropy ", "rl/Reward", "router", "system"):
    kind(2, f"a benchmark that calls itself {_key!r}", says="a measurement")(_measured(_key))
kind(2, "router/entropy of the evaluation", says="router/entropy")(_measured("router/entropy", "evaluate"))
kind(2, "a gradient norm of the evaluation", says="train/grad_norm")(_measured("train/grad_norm", "evaluate"))


# Registrations


def _recipe(shop: Shop) -> Recipe:
    return from_plain(shop.one(kinds.RUN_STARTED).body["recipe"], where="forgery")


def _registration(shop: Shop) -> Registration:
    """One that has the run as an arm."""
    recipe = _recipe(shop)
    other = from_plain(copy.deepcopy(shop.one(kinds.RUN_STARTED).body["recipe"]) | {"seed": "4"}, where="forgery")
    faster = json.loads(json.dumps(shop.one(kinds.RUN_STARTED).body["recipe"]))
    faster["optimizer"]["learning_rate"] = (0.5).hex()
    return Registration(
        name="exp001",
        question="Is it better?",
        hypothesis="It is worse.",
        primary=Metric(name="evaluate.loss"),
        arms={"slow": other, "fast": from_plain(faster, where="forgery")},
        baseline="slow",
        seeds=(int(recipe.seed or 0),),
    )


def cited(shop: Shop) -> tuple[Entry, dict[str, Any]]:
    """The run cites what was registered before it: the event, and the document as it can be changed."""
    registration = _registration(shop)
    document = registration.document()
    body = write(registered(registration, file="exp001.py", file_digest=OTHER))
    shop.store.put_bytes(document)
    started = shop.one(kinds.RUN_STARTED)
    entry = Entry(EXPERIMENT_REGISTERED, "experiments", body, actor=started.actor, time=started.time)
    shop.events.insert(shop.place(started), entry)
    started.body["experiment"] = body["registration"]
    return entry, json.loads(document)


@kind(0, "an honest run that was registered before", honest=True)
def honest_registered(shop: Shop) -> None:
    cited(shop)


def _restated(name: str, **changes: Any) -> None:
    """The event says otherwise than the document that it digests."""

    @kind(2, f"a registration with another {name} than was registered", verdict="artifacts", says=name)
    def forge(shop: Shop) -> None:
        entry, _ = cited(shop)
        entry.body |= changes


_restated("hypothesis", hypothesis="It is better.")
_restated("question", question="Is it cheaper?")
_restated("primary", primary={"name": "train.loss_last", "direction": "lower"})
_restated("secondary", secondary=[{"name": "evaluate.perplexity", "direction": "lower"}])
_restated("baseline", baseline="fast")
_restated("alpha", alpha=0.9)
_restated("stopping_rule", stopping_rule="When it looks good.")
_restated("alternative", alternative="one-sided")
_restated("experiment", experiment="exp002")


def _document(change: Callable[[Shop, dict[str, Any], Entry], None]) -> Forge:
    """Another document was registered, whose digest somebody else has; the event says that it has this run as an arm."""

    def forge(shop: Shop) -> None:
        entry, document = cited(shop)
        change(shop, document, entry)
        digest = shop.store.put_bytes(canonical_bytes(document)).digest
        entry.body["registration"] = shop.one(kinds.RUN_STARTED).body["experiment"] = digest

    return forge


@kind(2, "an arm that was not registered", verdict="artifacts", says="arm")
@_document
def other_arm(shop: Shop, document: dict[str, Any], entry: Entry) -> None:
    document["arms"]["slow"]["optimizer"]["learning_rate"] = (0.25).hex()


@kind(2, "an arm more than was registered", verdict="artifacts", says="arms")
@_document
def more_arms(shop: Shop, document: dict[str, Any], entry: Entry) -> None:
    entry.body["arms"]["mine"] = arm_digest(_recipe(shop))
    del document["arms"]["slow"], entry.body["arms"]["slow"]


@kind(2, "seeds that were not registered", verdict="artifacts", says="seeds")
@_document
def other_seeds(shop: Shop, document: dict[str, Any], entry: Entry) -> None:
    document["seeds"] = ["8"]


@kind(2, "a registration that is no registration", verdict="artifacts", says="registration")
def nothing_registered(shop: Shop) -> None:
    entry, _ = cited(shop)
    digest = shop.store.put_bytes(b"we promise").digest
    entry.body["registration"] = shop.one(kinds.RUN_STARTED).body["experiment"] = digest


@kind(2, "a registration that nobody has", verdict="artifacts", outcomes=("UNAVAILABLE",), says="registration")
def absent_registration(shop: Shop) -> None:
    entry, _ = cited(shop)
    entry.body["registration"] = shop.one(kinds.RUN_STARTED).body["experiment"] = OTHER


@kind(2, "a registration after the run", says="experiment")
def registered_later(shop: Shop) -> None:
    entry, _ = cited(shop)
    shop.remove(entry)
    shop.events.append(entry)


@kind(2, "two registrations of one digest, one of them true", verdict="artifacts", says="hypothesis")
def registered_twice(shop: Shop) -> None:
    entry, _ = cited(shop)
    shop.again(entry, hypothesis="It is better.")


@kind(2, "a registered run of another seed", says="experiment")
def other_seed(shop: Shop) -> None:
    entry, _ = cited(shop)
    entry.body["seeds"] = ["8"]
