"""Runs: how one begins and ends, the seed that was drawn for it, and how people find it."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Annotated

from msgspec import Meta, field

from ledger import canonical_digest
from marin.kinds.body import Body, Digest, HexFloat, Json, Output
from marin.kinds.kind import Fact, Folding, Held, Kind, LoopContext, Pair, RunContext, hex_metrics

RUN_STARTED = "run.started/v1"
RUN_COMPLETED = "run.completed/v1"
RUN_LABELLED = "run.labelled/v1"
SEED_DRAWN = "seed.drawn/v1"
LOOP = "loop"
"""The plan, and the one step, of a run whose loop is its user's own: its ``recipe`` is what the user says of it."""


class Continues(Body, frozen=True):
    """The state that a phase begins with: of which run, before which train step, its digest, and the stored
    checkpoint."""

    run: str
    step: int
    state: Digest
    checkpoint: Digest


class RunStarted(Body, frozen=True, omit_defaults=True):
    """One execution of a plan begins. ``plan`` is the digest of recipe and code: equal plans must give equal bits.
    ``continues``: this run is a phase.
    ``experiment`` is the digest of the newest registration that has this recipe and seed as an arm, or "". ``pinned`` are
    steps whose output an experiment named, by its artifact, whatever the recipe would make."""

    run: str
    pipeline: str
    plan: Digest
    recipe_digest: Digest
    recipe: Json
    code: Json
    environment: Json
    continues: Continues | None = None
    experiment: str = ""
    pinned: dict[str, Digest] = field(default_factory=dict)


class RunCompleted(Body, frozen=True):
    """All steps of the plan have an output."""

    run: str
    outputs: dict[str, Output]
    metrics: dict[str, HexFloat]


class RunLabelled(Body, frozen=True, omit_defaults=True):
    """What a user says of a run (:mod:`marin.history.labels`). What is None or empty stays as it was. ``archived``: lists leave
    the run out; ``untagged``: tags that are taken off."""

    run: str
    archived: bool | None = None
    description: str | None = None
    tags: dict[str, str] = field(default_factory=dict)
    untagged: list[str] = field(default_factory=list)


class SeedDrawn(Body, frozen=True):
    """A seed was drawn from the system for a recipe that left it open; ``recipe`` is its digest with the seed null."""

    recipe: Digest
    seed: Annotated[str, Meta(pattern=r"^[0-9]{1,19}$")]


def _begins(run: Folding, fact: Fact[RunStarted]) -> None:
    run.started = fact


def _ends(run: Folding, fact: Fact[RunCompleted]) -> None:
    run.completed = fact


def _begun(fact: Fact[RunStarted], seen: RunContext) -> Iterator[Pair]:
    body = fact.body
    yield "recipe_digest", seen.recipe_digest, body.recipe_digest
    written = {name: value for name, value in body.recipe.items() if name != "recipe_version"}
    yield "recipe", seen.recipe_plain, written  # in the one form that a recipe has
    if not isinstance(steps := body.code.get("steps"), dict):
        yield "code.steps", "the code of each step of the plan", "none"
        return
    decided = {"code": steps, "lock": body.environment.get("lock"), "plan": body.pipeline}
    pinned = {"pinned": body.pinned} if body.pinned else {}
    yield "plan", canonical_digest({**decided, "recipe": seen.recipe_digest, **pinned}), body.plan


def _begun_by_loop(fact: Fact[RunStarted], seen: LoopContext) -> Iterator[Pair]:
    body = fact.body
    yield "recipe_digest", canonical_digest(body.recipe), body.recipe_digest
    yield "plan", canonical_digest([body.recipe_digest, body.code.get("tree")]), body.plan
    yield "continues, experiment, pinned", (None, "", {}), (body.continues, body.experiment, body.pinned)


def _ended(fact: Fact[RunCompleted], seen: RunContext) -> Iterator[Pair]:
    body, run = fact.body, seen.run
    yield "outputs", sorted(run.planned | set(body.outputs)), sorted(body.outputs)
    yield "outputs", {name: view.output for name, view in run.steps.items()}, body.outputs
    yield "metrics", run.metrics, hex_metrics(body.metrics)


def _ended_by_loop(fact: Fact[RunCompleted], seen: LoopContext) -> Iterator[Pair]:
    body, run = fact.body, seen.run
    yield "outputs", {name: view.output for name, view in run.steps.items()}, body.outputs
    yield "outputs", True, LOOP in body.outputs
    yield "metrics", run.metrics, hex_metrics(body.metrics)


KINDS: tuple[Kind, ...] = (
    Kind(
        RUN_STARTED,
        RunStarted,
        underway=True,
        run=Held(claimed=("code", "environment"), agrees=_begun),
        loop=Held(claimed=("recipe", "code", "environment"), agrees=_begun_by_loop),
        fold=_begins,
    ),
    Kind(
        RUN_COMPLETED,
        RunCompleted,
        rests_on="train",
        run=Held(agrees=_ended),
        loop=Held(agrees=_ended_by_loop),
        fold=_ends,
    ),
    Kind(RUN_LABELLED, RunLabelled, beside=lambda event: f"labels given to this run by {event.actor}"),
    Kind(SEED_DRAWN, SeedDrawn, underway=True),
)
