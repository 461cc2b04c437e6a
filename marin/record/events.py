"""The event types that this product writes, and the schema that each body is checked against on append.

A released name never changes meaning: a changed shape is a new version (``train.segment/v2``). 64-bit integers are strings,
floats that must be exact hex strings (``float.hex``), digests ``sha256:<hex>``.
"""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta, Struct, field

from marin.errors import MarinError
from marin.record.bodies.body import Body as Body
from marin.record.bodies.body import Digest as Digest
from marin.record.bodies.body import HexFloat as HexFloat
from marin.record.bodies.body import Json as Json
from marin.record.bodies.collections import COLLECTIONS
from marin.record.bodies.following import FOLLOWING
from marin.record.bodies.following import STOP_REQUESTED as STOP_REQUESTED
from marin.record.bodies.following import TRAIN_WITHDRAWN as TRAIN_WITHDRAWN
from marin.record.bodies.following import StopRequested as StopRequested
from marin.record.bodies.following import TrainWithdrawn as TrainWithdrawn
from marin.record.bodies.labels import LABELS
from marin.record.bodies.labels import RUN_LABELLED as RUN_LABELLED
from marin.record.bodies.labels import RunLabelled as RunLabelled

RUN_STARTED = "run.started/v1"
RUN_COMPLETED = "run.completed/v1"
STEP_STARTED = "step.started/v1"
STEP_COMPLETED = "step.completed/v1"
STEP_CACHED = "step.cached/v1"
STEP_FAILED = "step.failed/v1"
STEP_PAUSED = "step.paused/v1"
STEP_PREEMPTED = "step.preempted/v1"
SEED_DRAWN = "seed.drawn/v1"
TRAIN_STARTED = "train.started/v1"
TRAIN_SEGMENT = "train.segment/v1"
CHECKPOINT_SAVED = "checkpoint.saved/v1"
EVAL_COMPLETED = "eval.completed/v1"
EVALUATION_RECORDED = "evaluation.recorded/v1"
EVALUATION_MEASURED = "evaluation.measured/v1"
MODEL_EXPORTED = "model.exported/v1"
REPLAY_COMPLETED = "replay.completed/v1"
METRICS_RECORDED = "metrics.recorded/v1"
TRACKING_LOGGED = "tracking.logged/v1"
REPLAY_SEGMENT = "replay.segment/v1"
GRAPH_STARTED = "graph.started/v1"
GRAPH_COMPLETED = "graph.completed/v1"
STEP_CHECKED = "step.checked/v1"
ARTIFACT_ADOPTED = "artifact.adopted/v1"
STORE_SCRUBBED = "store.scrubbed/v1"
LEASE_TAKEN = "lease.taken/v1"
LEASE_RENEWED = "lease.renewed/v1"
LEASE_RELEASED = "lease.released/v1"
LOOP_SEGMENT = "loop.segment/v1"
EVALUATIONS = (EVALUATION_RECORDED, EVALUATION_MEASURED)  # of recorded states, in a stream of its own
LEASES = "leases"  # the stream of all lease events
EXPERIMENT_REGISTERED = "experiment.registered/v1"
EXPERIMENT_REPORTED = "experiment.reported/v1"
SPEEDRUN_ENTERED = "speedrun.entered/v1"
UNLEARNING_REQUESTED = "unlearning.requested/v1"
UNLEARNING_FORKED = "unlearning.forked/v1"
CARD_STATED = "card.stated/v1"
ATTRIBUTION_MEASURED = "attribution.measured/v1"


class Output(Body, frozen=True):
    """What a step made. ``digest`` names the content; ``artifact`` the stored bytes (equal where the bytes are
    canonical)."""

    kind: str
    digest: Digest
    size: int
    artifact: Digest


class Continues(Body, frozen=True):
    """The state that a phase begins with: of which run, before which train step, its digest, and the stored
    checkpoint."""

    run: str
    step: int
    state: Digest
    checkpoint: Digest


DEFAULT_PIPELINE = "default"
"""The plan that dvc.yaml has: raw text to an exported model."""
STEPS = ("corpus", "tokenizer", "tokens", "train", "evaluate", "export")  # in the order in which people read them
DATA_STEPS, MODEL_STEPS = STEPS[:3], STEPS[4:]
"""Those that make what a model learns from, and those that say what it became."""


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


class StepPaused(Body, frozen=True):
    """A node of the plan stopped where it was told to; its state is recorded, and a later attempt goes on."""

    run: str
    step: str
    identity: Digest
    where: str


class SeedDrawn(Body, frozen=True):
    """A seed was drawn from the system for a recipe that left it open; ``recipe`` is its digest with the seed null."""

    recipe: Digest
    seed: Annotated[str, Meta(pattern=r"^[0-9]{1,19}$")]


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
    """The result of an equal step is taken over. ``completed_at`` is the index of its step.completed."""

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
    the matrices of a layer (``tensor_parallel``, where some do).
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


LOOP = "loop"
"""The plan, and the one step, of a run whose loop is its user's own: its ``recipe`` is what the user says of it."""


class LoopSegment(Body, frozen=True):
    """Train steps ``[start, end)`` of a loop that is the user's own. Lists have one item per train step.

    ``losses``: hex floats. ``batches``: digests of what each step saw, "" where the loop does not say. ``state``: digest
    of the tensors after the last step, and ``manifest`` the stored list of them; both "" where the loop does not say.
    """

    run: str
    start: int
    end: int
    losses: list[HexFloat]
    batches: list[Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")]]
    state: Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""
    manifest: Annotated[str, Meta(pattern=r"^(sha256:[0-9a-f]{64})?$")] = ""


class CheckpointSaved(Body, frozen=True):
    """A training checkpoint is in the store. ``state`` digests its tensors, ``artifact`` the stored tree,
    ``manifest`` the blob with the sorted list of (path, dtype, shape, digest)."""

    run: str
    step: int
    state: Digest
    artifact: Digest
    manifest: Digest
    size: int


class EvalCompleted(Body, frozen=True):
    """What the evaluation measured; metrics are hex floats by name."""

    run: str
    model: Digest
    metrics: dict[str, HexFloat]


class EvaluatedTask(Struct, frozen=True, kw_only=True):
    """One task of an evaluation: digests of its configuration, of the data of each split and of everything that was asked;
    and over how many documents."""

    config: Digest
    data: dict[str, Digest]
    prompts: Digest
    documents: int


class EvaluationRecorded(Body, frozen=True):
    """Numbers that lm-evaluation-harness drew from the ``state`` of a run before train step ``step``.

    ``identity`` digests what decides them: state, tokenizer, tasks, settings, harness, code and lock. ``results`` are hex
    floats by task and metric; ``samples`` the stored tree with the tasks, their data, and every request with its tokens
    and log-likelihoods. ``requests``: how many; ``truncated``: those that lost their beginning to the context's length.
    """

    run: str
    step: int
    state: Digest
    tokenizer: Digest
    identity: Digest
    harness: str
    code: Digest
    lock: str
    settings: Json
    tasks: dict[str, EvaluatedTask]
    results: dict[str, dict[str, HexFloat]]
    samples: Digest
    requests: int
    truncated: int


class MeasuredSet(Struct, frozen=True, kw_only=True):
    """One held-out set: ``data`` is the stored JSON lines, ``scores`` the stored float32 of every token's log-likelihood
    (little-endian, document after document). ``numbers``: loss in nats a token, perplexity, bits per byte."""

    data: Digest
    scores: Digest
    documents: int
    bytes: int
    tokens: int
    numbers: dict[str, HexFloat]


class EvaluationMeasured(Body, frozen=True):
    """What held-out sets measured of the ``state`` that a run recorded before train step ``step``, while it trained.
    ``code`` and ``lock`` are what measured it."""

    run: str
    step: int
    state: Digest
    tokenizer: Digest
    code: Digest
    lock: str
    sets: dict[str, MeasuredSet]


class ModelExported(Body, frozen=True):
    """A model left in a public format. ``model`` is the state it was made from."""

    run: str
    format: str
    model: Digest
    output: Output


class RunCompleted(Body, frozen=True):
    """All steps of the plan have an output."""

    run: str
    outputs: dict[str, Output]
    metrics: dict[str, HexFloat]


class ReplayCompleted(Body, frozen=True):
    """A reproducer's verdicts on a run, over the log checkpoint it verified."""

    run: str
    verdicts: dict[str, str]
    training: Json
    first_divergence: Json | None
    log_checkpoint: Json
    details: dict[str, list[str]]
    environment: Json


GRAD_NORM = "train/grad_norm"
"""The one measured series that evidence covers: the fingerprint of each train step."""


class Series(Struct, frozen=True, kw_only=True):
    """Points of one measurement: train steps and values (hex floats), one each."""

    key: str
    steps: list[int]
    values: list[HexFloat]


class MetricsRecorded(Body, frozen=True):
    """Measurements beside the evidence: times, memory, load, norms. They depend on machine and moment, enter no
    identity and no verdict. ``step`` is the step of the plan that was measured, empty for the run as a whole."""

    run: str
    step: str
    series: list[Series]


class TrackingLogged(Body, frozen=True):
    """Something that a user logged through MLflow's own interface. ``run`` is MLflow's run id (empty where the
    operation speaks of none), ``operation`` and ``values`` are described in ``marin/history/projection/logged.py``."""

    run: str
    operation: str
    values: Json


class ReplaySegment(Body, frozen=True):
    """A reproducer executed train steps ``[start, end)`` of a run again and found what was recorded. ``segment``
    digests the whole body of the run's train.segment, ``conditions`` the recipe, the tokens and the code that were
    executed."""

    run: str
    start: int
    end: int
    segment: Digest
    conditions: Digest


class ExperimentRegistered(Body, frozen=True):
    """What an experiment claims, before it is run. ``registration`` digests the canonical JSON of all of it, recipes
    included, which the store keeps; ``arms`` are digests of recipes without seed, by name; metrics are name and
    direction (lower or higher is better); seeds are strings."""

    experiment: str
    registration: Digest
    file: str
    file_digest: Digest
    question: str
    hypothesis: str
    primary: dict[str, str]
    secondary: list[dict[str, str]]
    arms: dict[str, Digest]
    baseline: str
    seeds: list[str]
    test: str
    alternative: str
    alpha: float
    stopping_rule: str
    cost_cap: Json


class ExperimentReported(Body, frozen=True):
    """What the runs of an experiment bear out. ``verdict``: confirmatory, exploratory or incomplete; ``artifact`` is
    the stored tree with report.md, report.html, table.csv and plot.svg; ``supported`` is None where nothing could be
    tested."""

    experiment: str
    registration: Digest
    verdict: str
    supported: bool | None
    deviations: list[str]
    artifact: Digest
    runs: list[str]


class GraphStarted(Body, frozen=True):
    """One execution of an experiment's graph begins; its stream is ``graph/<graph>``. ``declaration`` is the digest of
    what the file says (addresses, configurations, functions, edges), ``steps`` how many there are, ``ends`` the wanted
    ones."""

    graph: str
    name: str
    file: str
    declaration: Digest
    steps: int
    ends: list[str]
    options: Json
    code: Json
    environment: Json


class GraphCompleted(Body, frozen=True):
    """The graph is through. ``outcome``: completed, failed or interrupted. ``counts`` by how steps ended. ``results``
    is the stored JSON list with one object for each step: address, step, identity, action, digest, artifact, kind,
    size, run and completed_at. ``outputs`` are those of the ends, by address."""

    graph: str
    outcome: str
    counts: dict[str, int]
    results: Digest
    outputs: dict[str, Output]
    failed: list[str]


class StepChecked(Body, frozen=True):
    """A step was executed a second time and its results were compared, by content digest."""

    step: str
    identity: Digest
    address: str
    deterministic: bool
    outputs: list[Digest]


class ArtifactAdopted(Body, frozen=True):
    """An artifact that was made elsewhere stands for the output of a step; ``vouched_by`` says so, nobody proved it."""

    graph: str
    address: str
    artifact: Digest
    kind: str
    vouched_by: str
    note: str


class StoreScrubbed(Body, frozen=True):
    """A portion of the store was hashed again. ``findings`` are lines for people, the first hundred of them, in which
    digests are words and name nothing; ``repaired``: names in the store that are whole again; ``finished``: to the
    end."""

    checked: int
    size: int
    findings: list[str]
    repaired: list[str]
    finished: bool


class LeaseTaken(Body, frozen=True):
    """An executor takes leases on steps, by identity; ``until`` is when they end if nothing is heard of it. ``host``,
    ``pid`` and ``born`` say which process that is, so that its death is seen at once where it can be. ``over`` are the
    executors whose leases end with this event; ``term`` is how long the leases outlive a sign of life, in milliseconds."""

    executor: str
    host: str
    pid: int
    born: str
    until: str
    steps: dict[Digest, str]
    over: list[str] = field(default_factory=list)
    term: int = 120_000


class LeaseRenewed(Body, frozen=True):
    """An executor is alive and keeps all its leases until ``until``."""

    executor: str
    until: str


class LeaseReleased(Body, frozen=True):
    """An executor gives leases back: the steps are done, failed or left."""

    executor: str
    steps: list[Digest]


class UnlearningRequested(Body, frozen=True):
    """Somebody asked that ``documents`` be excluded from what run ``from_run`` is; recorded before the work, in the
    stream ``unlearning/<from_run>``. ``recipe``: digest of the recipe that excludes them too. ``first_use``: the first
    train step that read one of them; ``step``: the train step before which the training is forked, and ``state`` the
    recorded state there."""

    from_run: str
    documents: list[str]
    reason: str
    recipe: Digest
    first_use: int
    step: int
    state: Digest


class UnlearningForked(Body, frozen=True):
    """This run's training begins with the train steps of ``from_run`` before ``step``, recorded again after this, as the
    event ``request`` asked for. ``same_tokenizer``: trained without the documents, the tokenizer is the one of
    ``from_run``; where it is another, nothing is taken over, and ``step`` is the first."""

    run: str
    from_run: str
    request: int
    step: int
    state: Digest
    same_tokenizer: bool


class CardStated(Body, frozen=True):
    """What a provider states of the model of run ``about``, by name (:mod:`marin.dossier.stated`), in the stream
    ``card/<about>``. The newest counts."""

    about: str
    values: Json


class MeasuredLoss(Struct, frozen=True, kw_only=True):
    """One set of texts on one state: ``data`` is the stored JSON lines, ``loss`` the mean in nats a token, ``sums`` the stored
    float64 of every document's negative log-likelihood (little-endian, in the order of the lines)."""

    data: Digest
    sums: Digest
    loss: HexFloat


class AttributionMeasured(Body, frozen=True):
    """What the losses of run ``about`` are if its training leaves ``documents`` out (none: the run as it is), in the stream
    ``attribution/<about>``. ``first_use``: the first train step that read one of them; the training was executed again
    from ``step`` and its recorded ``state``, and ended with ``end_state``. ``same_tokenizer``: trained without the
    documents, the tokenizer is the run's own, so that this is the training without them; null where that was not asked.
    The tokens are the run's own in any case. ``code`` and ``lock`` are what measured it."""

    about: str
    documents: list[str]
    first_use: int | None
    step: int
    state: Digest
    end_state: Digest
    same_tokenizer: bool | None
    sets: dict[str, MeasuredLoss]
    code: Digest
    lock: Digest


class Replayed(Struct, frozen=True, kw_only=True):
    """Where a reproducer's five PASS stand: the verifier key, the event in that log, and the size of the run's log."""

    key: str
    event: int
    size: int


class SpeedrunEntered(Body, frozen=True, omit_defaults=True):
    """A run on a track (the ``registration`` of an experiment), admitted by the keeper of the track: the keeper or ``replayed``
    others replayed all of it. ``run`` is one of the log ``origin`` under ``keys``, whose root at ``size`` is ``root`` (hex).
    ``score`` is the track's metric; ``flops`` of training and ``parameters`` follow from ``recipe``, ``hours`` from what
    those who counted needed to replay its training (None where they did not say so)."""

    track: str
    registration: Digest
    run: str
    origin: str
    keys: list[str]
    size: int
    root: str
    recipe: Json
    metric: str
    score: HexFloat
    flops: float
    parameters: int
    replayed: list[Replayed]
    hours: float | None = None


BODIES: dict[str, type[Body]] = {
    RUN_STARTED: RunStarted,
    RUN_COMPLETED: RunCompleted,
    STEP_STARTED: StepStarted,
    STEP_COMPLETED: StepCompleted,
    STEP_CACHED: StepCached,
    STEP_FAILED: StepFailed,
    STEP_PAUSED: StepPaused,
    STEP_PREEMPTED: StepPreempted,
    SEED_DRAWN: SeedDrawn,
    TRAIN_STARTED: TrainStarted,
    TRAIN_SEGMENT: TrainSegment,
    LOOP_SEGMENT: LoopSegment,
    CHECKPOINT_SAVED: CheckpointSaved,
    EVAL_COMPLETED: EvalCompleted,
    EVALUATION_RECORDED: EvaluationRecorded,
    EVALUATION_MEASURED: EvaluationMeasured,
    MODEL_EXPORTED: ModelExported,
    REPLAY_COMPLETED: ReplayCompleted,
    METRICS_RECORDED: MetricsRecorded,
    TRACKING_LOGGED: TrackingLogged,
    REPLAY_SEGMENT: ReplaySegment,
    GRAPH_STARTED: GraphStarted,
    GRAPH_COMPLETED: GraphCompleted,
    STEP_CHECKED: StepChecked,
    ARTIFACT_ADOPTED: ArtifactAdopted,
    STORE_SCRUBBED: StoreScrubbed,
    LEASE_TAKEN: LeaseTaken,
    LEASE_RENEWED: LeaseRenewed,
    LEASE_RELEASED: LeaseReleased,
    EXPERIMENT_REGISTERED: ExperimentRegistered,
    EXPERIMENT_REPORTED: ExperimentReported,
    SPEEDRUN_ENTERED: SpeedrunEntered,
    **COLLECTIONS,
    **LABELS,
    **FOLLOWING,
    UNLEARNING_REQUESTED: UnlearningRequested,
    UNLEARNING_FORKED: UnlearningForked,
    CARD_STATED: CardStated,
    ATTRIBUTION_MEASURED: AttributionMeasured,
}


def read[T: Body](kind: type[T], body: Any, *, where: str) -> T:
    """``body`` as ``kind``; raises :class:`MarinError` with the path of the first field that does not fit."""
    try:
        return msgspec.convert(body, kind)
    except (msgspec.ValidationError, RecursionError) as error:
        raise MarinError(
            "event body does not fit its type", where=where, expected=kind.__name__, found=str(error)
        ) from None


def write(body: Body) -> Json:
    """The JSON-shaped builtins of ``body``."""
    result = msgspec.to_builtins(body)
    assert isinstance(result, dict)
    return result
