"""Training: an attempt begins, segments between recorded states, and the checkpoints that hold the states."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Annotated

from msgspec import Meta, field

from marin.kinds.body import Body, Digest, HexFloat, Json
from marin.kinds.claim import Claim, Contradiction
from marin.kinds.kind import Around, Fact, Held, Kind, Pair, RunContext, Standing

TRAIN_STARTED = "train.started/v1"
TRAIN_SEGMENT = "train.segment/v1"
CHECKPOINT_SAVED = "checkpoint.saved/v1"


class Retention(Body, frozen=True):
    """Which training checkpoints a run keeps: the newest ``last``, and those that lie a multiple of one of ``every`` train
    steps after the first (marin/record/retention.py)."""

    every: list[Annotated[int, Meta(ge=1)]]
    last: Annotated[int, Meta(ge=1)]


class TrainStarted(Body, frozen=True):
    """An attempt at training begins or resumes at ``first_step`` from ``state``. ``program`` identifies what is
    compiled: digests of the StableHLO of each function, XLA flags, versions, and where it goes layer by layer the
    identities of the optimised programs, the kind of device and its compiler; ``devices`` and ``processes`` are how it
    is executed, ``device`` what each of them is (platform, kind, place in the topology where there is one) and how many share
    the matrices of a layer (``tensor_parallel``, where some do) or its experts (``expert_parallel``).
    ``manifest`` is the stored list of the state's tensors. ``num_steps``: the number after the last train step (of this
    phase). ``retention``: the training checkpoints to keep; all of them where there is none."""

    run: str
    first_step: int
    num_steps: int
    state: Digest
    manifest: Digest
    program: Json
    seeds: Json
    devices: int
    attempt: int
    processes: int = 1
    device: Json = field(default_factory=dict)
    retention: Retention | None = None


class TrainSegment(Body, frozen=True):
    """Train steps ``[start, end)`` between two recorded states. Lists have one item per train step.

    ``losses``: hex floats. ``batches``: digest of each step's token ids and sequence indices. ``fingerprints``: digest
    over loss, gradient norm and the fingerprint of the state after the step. ``start_state``/``end_state``: digest of
    the whole state (parameters, optimizer moments, step, key, data cursor) before and after. ``trace``: digest of the
    stored blob uint32[steps, tensors, 2] (little-endian) with every tensor's fingerprint after every step.
    """

    run: str
    start: int
    end: int
    losses: list[HexFloat]
    batches: list[str]
    fingerprints: list[str]
    start_state: Digest
    end_state: Digest
    trace: Digest

    @property
    def is_whole(self) -> bool:
        """Whether there is a train step, and one record of each kind for each."""
        length = self.end - self.start
        return length > 0 and {len(self.losses), len(self.batches), len(self.fingerprints)} == {length}

    @property
    def counts(self) -> str:
        """How many records of each kind there are, in words."""
        return f"{len(self.losses)} losses, {len(self.batches)} batches, {len(self.fingerprints)} fingerprints"

    @property
    def by_step(self) -> dict[int, tuple[str, str, str]]:
        """Loss, batch and fingerprint of each train step, by its number."""
        rows = zip(self.losses, self.batches, self.fingerprints, strict=False)
        return dict(zip(range(self.start, self.end), rows, strict=False))


class CheckpointSaved(Body, frozen=True):
    """A training checkpoint is in the store. ``state`` digests its tensors, ``artifact`` the stored tree,
    ``manifest`` the blob with the sorted list of (path, dtype, shape, digest)."""

    run: str
    step: int
    state: Digest
    artifact: Digest
    manifest: Digest
    size: int


def within(field: str, step: int, seen: RunContext) -> Iterator[Pair]:
    """Whether the run has a state before this train step."""
    first, last = seen.recipe.first_step, seen.recipe.last_step
    if not first <= step <= last:
        yield field, f"a train step from {first} to {last}", f"train step {step}"


def _begun(fact: Fact[TrainStarted], seen: RunContext) -> Iterator[Pair]:
    body, arithmetic = fact.body, seen.recipe.arithmetic
    yield "num_steps", seen.recipe.last_step, body.num_steps
    yield from within("first_step", body.first_step, seen)
    yield "state", seen.states.get(body.first_step), body.state
    yield "program.xla_flags", list(arithmetic.xla_flags), body.program.get("xla_flags")
    yield "program.threads", arithmetic.threads, body.program.get("threads")
    yield "program.profile", arithmetic.profile, body.program.get("profile")
    yield "seeds", seen.seeds, body.seeds


def _saved(fact: Fact[CheckpointSaved], seen: RunContext) -> Iterator[Pair]:
    yield from within("step", fact.body.step, seen)
    # None yet: the writer stopped between the two events.
    yield "state", seen.states.get(fact.body.step), fact.body.state


def _from_nowhere(fact: Fact[TrainStarted], standing: Standing) -> str:
    step = fact.body.first_step
    if step in standing.states:
        return ""
    return f"training from a state before train step {step}, with which no segment begins or ends"


def _repeated(fact: Fact[TrainSegment], standing: Standing) -> str:
    start, end = fact.body.start, fact.body.end
    if (start, end) in standing.segments:
        return ""
    return f"a segment of train steps {start} to {end - 1}, which is not one of those that stand"


def _replaced(fact: Fact[CheckpointSaved], standing: Standing) -> str:
    step = fact.body.step
    if step not in standing.states:
        return f"a state before train step {step}, with which no segment begins or ends"
    if fact.index not in standing.checkpoints:
        return f"a training checkpoint of step {step}, {fact.body.artifact}, which another took the place of"
    return ""


def _one_record(facts: Sequence[Fact[TrainSegment]], standing: Standing) -> Iterator[Contradiction]:
    """Every record of a train step says what the one that stands says of it."""
    known: dict[int, tuple[str, str, str]] = {}
    traces = {(fact.body.start, fact.body.end): fact.body.trace for fact in standing.run.segments}
    for fact in standing.run.segments:
        known |= fact.body.by_step
    for fact in facts:
        index, body = fact.index, fact.body
        if not body.is_whole:
            each = f"{body.end - body.start} of each"
            yield Contradiction(index, "losses, batches, fingerprints", each, body.counts, "train")
        for step, row in body.by_step.items():
            if known.get(step, row) != row or (step not in known and "train" in standing.run.steps):
                expected = "another record of it" if step in known else "no such train step"
                yield Contradiction(
                    index, f"train step {step}", expected, "losses, tokens or state that differ", "train"
                )
                break
        for name, step, state in (
            ("start_state", body.start, body.start_state),
            ("end_state", body.end, body.end_state),
        ):
            if standing.states.get(step, state) != state:
                yield Contradiction(index, name, standing.states[step], state, "train")
        if traces.get((body.start, body.end), body.trace) != body.trace:
            yield Contradiction(index, "trace", traces[body.start, body.end], body.trace, "train")


def _attempted(fact: Fact[TrainStarted], around: Around) -> Iterator[Claim]:
    body, kind = fact.body, fact.body.device.get("kind", "cpu")
    attempt = (
        f"trained from step {body.first_step} on {body.devices} device(s)"
        f"{'' if kind == 'cpu' else f' of the kind {kind}'} in {body.processes} process(es), attempt {body.attempt}, "
        f"compiled by jaxlib {body.program.get('jaxlib', 'of an unknown version')}"
    )
    yield Claim(attempt, "claimed", event=fact.index)


KINDS: tuple[Kind, ...] = (
    Kind(
        TRAIN_STARTED,
        TrainStarted,
        underway=True,
        step="train",
        run=Held(claimed=("program", "devices", "attempt", "processes", "device", "retention"), agrees=_begun),
        fold=lambda run, fact: run.step_goes_on("train", fact),
        reaches=lambda body: int(body.first_step),
        aside=_from_nowhere,
        claims=_attempted,
    ),
    Kind(
        TRAIN_SEGMENT,
        TrainSegment,
        underway=True,
        step="train",
        run=Held(),
        kept=True,
        reaches=lambda body: int(body.end),
        aside=_repeated,
        twice=_one_record,
    ),
    Kind(
        CHECKPOINT_SAVED,
        CheckpointSaved,
        underway=True,
        step="train",
        run=Held(agrees=_saved),
        kept=True,
        reaches=lambda body: int(body.step),
        aside=_replaced,
    ),
)
