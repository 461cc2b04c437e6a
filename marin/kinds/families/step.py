"""Steps: an attempt begins, and ends with an output or without; or an equal step has the output already."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec import field

from ledger import canonical_digest
from marin.kinds.body import Body, Digest, HexFloat, Json, Output
from marin.kinds.claim import Claim, Contradiction
from marin.kinds.families.run import LOOP
from marin.kinds.kind import Around, Fact, Held, Kind, LoopContext, Pair, RunContext, Standing, hex_metrics

STEP_STARTED = "step.started/v1"
STEP_COMPLETED = "step.completed/v1"
STEP_CACHED = "step.cached/v1"
STEP_FAILED = "step.failed/v1"
STEP_PAUSED = "step.paused/v1"
STEP_PREEMPTED = "step.preempted/v1"
DEFAULT_PIPELINE = "default"
"""The plan that dvc.yaml has: raw text to an exported model."""
STEPS = ("corpus", "tokenizer", "tokens", "train", "evaluate", "export")  # in the order in which people read them
DATA_STEPS, MODEL_STEPS = STEPS[:3], STEPS[4:]
"""Those that make what a model learns from, and those that say what it became."""
ONCE = "an output that was recorded once"


class StepStarted(Body, frozen=True):
    """A node of the plan begins. ``identity`` decides a hit: config, inputs, code, seeds. ``address`` is the readable
    name that an experiment file gave the step; ``lock`` the digest of the locked packages. Both are empty where not
    known."""

    run: str
    step: str
    identity: Digest
    config_digest: Digest
    config: Json
    inputs: dict[str, Digest]
    code: Digest
    attempt: int
    address: str = ""
    lock: str = ""


class StepCompleted(Body, frozen=True):
    """A node of the plan has its output. ``metrics`` are hex floats by name, ``tables`` stored texts by name, so that a
    hit can write both files again; ``seconds`` is wall time (not evidence)."""

    run: str
    step: str
    identity: Digest
    inputs: dict[str, Digest]
    output: Output
    metrics: dict[str, HexFloat]
    seconds: float
    tables: dict[str, Digest] = field(default_factory=dict)
    address: str = ""


class StepCached(Body, frozen=True):
    """The result of an equal step is reused. ``completed_at`` is the index of its step.completed."""

    run: str
    step: str
    identity: Digest
    inputs: dict[str, Digest]
    output: Output
    completed_at: int


class StepFailed(Body, frozen=True):
    """A node of the plan stopped with an error (its one line, no traceback). ``lasting``: the step's own code raised
    it, so that the same step will fail again; a full disk or a killed process is not."""

    run: str
    step: str
    identity: Digest
    error: str
    address: str = ""
    lasting: bool = False


class StepPaused(Body, frozen=True):
    """A node of the plan stopped where it was told to; its state is recorded, and a later attempt goes on."""

    run: str
    step: str
    identity: Digest
    where: str


class StepPreempted(Body, frozen=True):
    """What executed an attempt died, or was taken away, and the work goes on if ``again``. ``launch`` counts within the
    attempt; it is 0 where the whole attempt ended so, which the next one records. ``processes`` and ``devices`` are
    what it was executed on, 0 where there were none; ``at`` is the number of the train step at which the record
    ends."""

    run: str
    step: str
    attempt: int
    launch: int
    reason: str
    processes: int
    devices: int
    at: int
    again: bool


def _begun(fact: Fact[StepStarted], seen: RunContext) -> Iterator[Pair]:
    body, started = fact.body, seen.started
    codes = started.code.get("steps")
    yield "config_digest", canonical_digest(body.config), body.config_digest
    yield "identity", seen.identity(body), body.identity
    yield "lock", started.environment.get("lock") if body.lock else None, body.lock
    yield "code", codes.get(body.step) if isinstance(codes, dict) else None, body.code
    yield "inputs", seen.inputs(body), body.inputs
    yield from seen.of_plan(body)


def _begun_by_loop(fact: Fact[StepStarted], seen: LoopContext) -> Iterator[Pair]:
    body, started = fact.body, seen.started
    yield "step", LOOP, body.step
    yield "identity", seen.identity, body.identity
    yield "config_digest", started.recipe_digest, body.config_digest
    yield "config", {name: value for name, value in started.recipe.items() if name != LOOP}, body.config
    yield "inputs", {}, body.inputs
    yield "code", started.code.get("tree"), body.code
    yield "attempt", 1, body.attempt


def _completed(fact: Fact[StepCompleted], seen: RunContext) -> Iterator[Pair]:
    body = fact.body
    yield "inputs", seen.inputs(body), body.inputs
    begun = seen.begun.get(body.identity)
    if begun is None:
        yield "identity", "that of a step that began", body.identity
        return
    yield "step", begun.step, body.step
    yield "inputs", begun.inputs, body.inputs
    yield from seen.of_output(body.step, body.output)
    if body.step == "train" and seen.is_current("train", body.identity):
        yield "metrics", _of_losses(seen), hex_metrics(body.metrics)


def _of_losses(seen: RunContext) -> dict[str, float] | None:
    """The numbers of a training, as the losses of its segments give them."""
    losses = [float.fromhex(loss) for fact in seen.run.segments for loss in fact.body.losses]
    trainer = seen.recipe.trainer
    if len(losses) != trainer.num_steps:
        return None  # a gap, or more than this run's own steps: the chain of segments says so
    return {
        "loss_first": losses[0],
        "loss_last": losses[-1],
        "tokens": float(trainer.num_steps * trainer.batch_size * seen.recipe.model.seq_len),
    }


def _completed_by_loop(fact: Fact[StepCompleted], seen: LoopContext) -> Iterator[Pair]:
    name, output, metrics = fact.body.step, fact.body.output, hex_metrics(fact.body.metrics)
    yield "step", ONCE, ONCE if seen.times(name) == 1 else f"{name} once more"
    yield "inputs, tables", ({}, {}), (fact.body.inputs, fact.body.tables)
    if name == LOOP:
        yield "output", seen.losses, output  # the losses that the segments record
        yield "identity", seen.identity, fact.body.identity
        yield "metrics", seen.measured(metrics), metrics
    else:
        yield "output.kind", "files", output.kind
        yield "output.artifact", output.digest, output.artifact  # the bytes are their own digest
        yield "identity", canonical_digest([seen.identity, name]), fact.body.identity
        yield "metrics", {}, metrics


def _replaced(fact: Fact[StepCompleted], standing: Standing) -> str:
    body, view = fact.body, standing.run.steps.get(fact.body.step)
    if view is None or fact.index == view.index or body.output.artifact == view.output.artifact:
        return ""
    return f"the output of step {body.step} as {body.output.artifact}, which another took the place of"


def _one_output(facts: Sequence[Fact[StepCompleted]], standing: Standing) -> Iterator[Contradiction]:
    """Equal identities have equal content: every end of a step says what the others of its identity say. Files that are
    not canonical (states, token caches) may be stored as others."""
    known: dict[tuple[str, str], StepCompleted] = {}
    for fact in facts:
        body = fact.body
        first = known.setdefault((body.step, body.identity), body)
        for name, expected, found in (
            ("output.digest", first.output.digest, body.output.digest),
            ("output.size", first.output.size, body.output.size),
            ("metrics", first.metrics, body.metrics),
            ("tables", first.tables, body.tables),
        ):
            if expected != found:
                yield Contradiction(fact.index, name, str(expected)[:120], str(found)[:120], body.step)


def _taken_over(fact: Fact[StepCached], seen: RunContext) -> Iterator[Pair]:
    body, view = fact.body, seen.run.steps.get(fact.body.step)
    yield "inputs", seen.inputs(body), body.inputs
    if body.completed_at >= fact.index:
        yield "completed_at", f"an event before {fact.index}", body.completed_at
    if view is not None and view.index == fact.index:
        yield "identity", view.identity, body.identity
        yield "inputs", dict(view.inputs), body.inputs


def _failed_by_loop(fact: Fact[StepFailed], seen: LoopContext) -> Iterator[Pair]:
    yield "step, identity", (LOOP, seen.identity), (fact.body.step, fact.body.identity)


def _attempted(fact: Fact[StepStarted], around: Around) -> Iterator[Claim]:
    body = fact.body
    named = f", as {body.address}" if body.address else ""
    lock = body.lock or around.started.environment.get("lock") or "unknown"
    attempt = f"step {body.step}, attempt {body.attempt}, by code {body.code} under lock {lock}{named}"
    yield Claim(attempt, "claimed", event=fact.index)


def _failed(fact: Fact[StepFailed], around: Around) -> Iterator[Claim]:
    yield Claim(f"step {fact.body.step} failed: {fact.body.error}", "claimed", event=fact.index)


def _paused(fact: Fact[StepPaused], around: Around) -> Iterator[Claim]:
    yield Claim(f"step {fact.body.step} paused: {fact.body.where}", "claimed", event=fact.index)


def _preempted(fact: Fact[StepPreempted], around: Around) -> Iterator[Claim]:
    yield Claim(f"step {fact.body.step} was preempted: {fact.body.reason}", "claimed", event=fact.index)


KINDS: tuple[Kind, ...] = (
    Kind(
        STEP_STARTED,
        StepStarted,
        underway=True,
        identifies=True,
        run=Held(claimed=("attempt", "address"), agrees=_begun),
        loop=Held(claimed=("address", "lock"), agrees=_begun_by_loop),
        fold=lambda run, fact: run.step_begun(fact),
        claims=_attempted,
    ),
    Kind(
        STEP_COMPLETED,
        StepCompleted,
        underway=True,
        identifies=True,
        run=Held(claimed=("seconds", "address"), agrees=_completed),
        loop=Held(claimed=("seconds", "address"), agrees=_completed_by_loop),
        fold=lambda run, fact: run.step_completed(fact),
        aside=_replaced,
        twice=_one_output,
    ),
    Kind(STEP_CACHED, StepCached, underway=True, identifies=True, run=Held(agrees=_taken_over), kept=True),
    Kind(STEP_PAUSED, StepPaused, run=Held(claimed=("identity", "where")), claims=_paused),
    Kind(
        STEP_FAILED,
        StepFailed,
        run=Held(claimed=("identity", "error", "address", "lasting")),
        loop=Held(claimed=("error", "address", "lasting"), agrees=_failed_by_loop),
        fold=lambda run, fact: run.step_failed(fact),
        claims=_failed,
    ),
    Kind(
        STEP_PREEMPTED,
        StepPreempted,
        underway=True,
        run=Held(claimed=("attempt", "launch", "reason", "processes", "devices", "at", "again")),
        kept=True,
        claims=_preempted,
    ),
)
