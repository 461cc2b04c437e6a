"""Training executed again: every segment from its start state, compared with what was recorded.

Serial full replay starts from the initial state that the recipe leads to, never from a stored one: what the ledger
says is only compared with. A segment on its own starts from the stored state that its digest proves.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, nullcontext
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger import LedgerError, StateManifest, Store
from marin.errors import Unsupported
from marin.execution.continued import checkout
from marin.process.cache import compilation_cache
from marin.process.progress import Report
from marin.process.waiting import waiting
from marin.provenance.environment import available_cores
from marin.recipe.schema import CPU_PROFILES, Execution, Recipe, digest
from marin.record.events import GRAD_NORM, CheckpointSaved, Json, TrainSegment
from marin.record.outputs import listed_tensors
from marin.training.checkpoints.whole import load
from marin.training.loop import Hint, NotFinite, SegmentRecord, Training
from marin.training.model import vocabulary_size
from marin.training.run import compiled_identity, program_identity
from marin.training.runtime import hosts
from marin.training.runtime.compilation import use_compilation_cache
from marin.training.runtime.objective import objective_plugin
from marin.training.runtime.profile import check_recorded
from marin.training.runtime.turn import compiling
from marin.training.state import arrays_of
from marin.training.step.slices import SlicedState
from marin.verify.derivation.series import Measured
from marin.verify.jax import tensors
from marin.verify.segments import compare
from marin.verify.segments.compare import Divergence, ReplayedSegment
from marin.verify.segments.ordering import by_execution
from marin.verify.verdict import explained

logger = logging.getLogger(__name__)

Saved = Mapping[str, CheckpointSaved]
"""What is recorded of stored states, by the digest of the state."""
Done = Callable[[TrainSegment, Sequence[float]], None]
"""Called with each segment that held, and the losses that were found."""


@dataclass(frozen=True)
class TrainingReplay:
    """How a replay of training ended. ``program``: identity of what was compiled here. ``losses``: train step ->
    loss."""

    segments_replayed: int
    seconds: float
    program: Json
    divergence: Divergence | None
    losses: Mapping[int, float]


_prepared: dict[tuple[str, int, int], Training] = {}
_programs: dict[tuple[str, int, int], Json] = {}


def prepared(
    recipe: Recipe, tokens: Path, tokenizer: Path, execution: Execution, store: Store | None = None
) -> Training:
    """The compiled training of ``recipe``; the newest one is kept, so that a process that verifies run after run of one
    recipe compiles once."""
    vocab = vocabulary_size(tokenizer, recipe.model)
    key = (digest(recipe), vocab, execution.devices)
    if key not in _prepared:
        use_compilation_cache(compilation_cache())
        _prepared.clear()
        _programs.clear()
        # Processes that compute as one trace together: one that waited for its turn here would hold up the others for ever.
        name = f"{key[0].removeprefix('sha256:')}-{execution.devices}"
        turn = compiling(name) if hosts.processes() == 1 else nullcontext()
        with turn, waiting("compiling the train step"):
            _prepared[key] = Training(recipe, tokens / "train", vocab, execution, tokenizer, store)
    return _prepared[key].reading(tokens / "train")


def program_of(training: Training, execution: Execution) -> Json:
    """:func:`program_identity`, lowered once for a training of :func:`prepared`."""
    key = (digest(training.recipe), training.vocab_size, execution.devices)
    if key not in _programs:
        _programs[key] = program_identity(training)
    return dict(_programs[key])


def same_program(recorded: Mapping[str, object], training: Training) -> None:
    """Say, before anything is executed, where what was compiled here is another program than the recorded one. ``recorded``:
    ``program`` of the run's ``train.started``, empty where there is none.

    Raises:
        Unsupported: on an accelerator, whose profile promises the bits of one compiler on one kind of device; under portable-cpu
            where the run's compiler is not known to give the same train steps.
    """
    check_recorded(training.recipe.arithmetic, recorded.get("jaxlib"))
    lines = compare.compiled(recorded, compiled_identity(training)) if recorded else []
    exact = training.recipe.arithmetic.profile == "exact"
    for line in lines:
        logger.warning("%s: %s", "computed otherwise" if exact else "another program", line)
    if lines and training.recipe.arithmetic.profile not in CPU_PROFILES:
        raise Unsupported(
            "another program than the recorded one",
            where="compiled train step",
            expected="the recorded versions, kind of device and optimised programs",
            found="; ".join(lines),
            cure="verify with the run's own versions on its kind of device: nothing was executed, and nothing is shown",
        )


def _named_beside(training: Training, execution: Execution) -> Callable[[], Json]:
    """:func:`program_of`, traced in seconds beside the first steps: the interpreter is idle while one computes. Where there
    is one processor nothing is beside anything: it is traced when it is asked for."""
    if available_cores() == 1:
        return partial(program_of, training, execution)
    tracer = ThreadPoolExecutor(1, thread_name_prefix="tracer")
    named = tracer.submit(program_of, training, execution)
    tracer.shutdown(wait=False)
    return named.result


def replay(
    recipe: Recipe,
    tokens: Path,
    tokenizer: Path,
    segments: Sequence[TrainSegment],
    initial: StateManifest | None,
    store: Store,
    execution: Execution,
    report: Report,
    previous: Path | None = None,
    *,
    program: Mapping[str, object],
    saved: Saved | None = None,
    measured: Measured | None = None,
    done: Done | None = None,
) -> TrainingReplay:
    """Execute all ``segments`` in order from the recipe's own initial state and stop at the first difference. A phase
    begins with the stored state in ``previous`` instead, which is proven by its digest.

    ``initial`` is the recorded list of the initial state's tensors, if the store has it: it names the tensors when
    already the first state differs. ``saved`` names the tensors of later ones. ``program``: the recorded one
    (:func:`same_program`).
    """
    began = time.monotonic()
    training = prepared(recipe, tokens, tokenizer, execution, store)
    same_program(program, training)
    state, manifest = training.start(previous)
    named = _named_beside(training, execution)
    losses: dict[int, float] = {}
    judge = _Judge(training, store, saved or {}, measured)

    def ended(replayed: int, divergence: Divergence | None) -> TrainingReplay:
        return TrainingReplay(replayed, time.monotonic() - began, named(), divergence, losses)

    if segments and manifest.digest != segments[0].start_state:
        differing = tuple(initial.differing(manifest)) if initial is not None else ()
        return ended(
            0, Divergence(0, by_execution(differing), segments[0].start_state, manifest.digest, compare.INITIAL)
        )
    with closing(training):
        for number, recorded in enumerate(segments):
            try:
                state, record = training.segment(
                    state,
                    manifest,
                    recorded.start,
                    recorded.end,
                    progress=lambda step, loss: report(step + 1 - recipe.first_step, f"loss {loss:.3f}"),
                    hint=judge.hint(recorded),
                )
            except NotFinite as error:
                return ended(number + 1, not_finite(recorded, error))
            losses |= {recorded.start + i: loss for i, loss in enumerate(record.steps.losses)}
            divergence = judge.segment(recorded, record, state)
            if divergence is not None:
                return ended(number + 1, divergence)
            if done is not None:
                done(recorded, record.steps.losses)
            manifest = record.end_state
    return ended(len(segments), None)


class SegmentReplay:
    """Segments of one run, each executed on its own. Compiled once, for as many segments as come."""

    def __init__(
        self,
        recipe: Recipe,
        tokens: Path,
        tokenizer: Path,
        store: Store,
        execution: Execution,
        *,
        program: Mapping[str, object],
        named: bool,
    ) -> None:
        self._training = prepared(recipe, tokens, tokenizer, execution, store)
        same_program(program, self._training)
        self._store = store
        self._execution = execution
        self._program = _named_beside(self._training, execution) if named else None

    @property
    def program(self) -> Json:
        """Identity of what was compiled here; at once if it was to be ``named``."""
        return self._program() if self._program is not None else program_of(self._training, self._execution)

    def replay(
        self,
        segments: Sequence[TrainSegment],
        checkpoint: str | None,
        initial: StateManifest | None,
        ends: Sequence[CheckpointSaved] = (),
        measured: Measured | None = None,
    ) -> tuple[Divergence | None, Sequence[float]]:
        """Execute segments in a row and compare; the first difference and the losses found. A run's first segment starts
        from the recipe's own initial state (``initial`` names the tensors when it differs), every other from the training
        checkpoint stored as ``checkpoint``; ``ends`` is what is recorded of stored states after them, ``measured`` of what is
        measured of each train step.

        Raises:
            Tampered: what is stored is not the state that the segment starts from.
            LedgerError: the checkpoint can not be had.
        """
        recorded, losses = segments[0], list[float]()
        if checkpoint is None:
            state, manifest = self._first()
            if manifest.digest != recorded.start_state:
                differing = tuple(initial.differing(manifest)) if initial is not None else ()
                return Divergence(
                    recorded.start, by_execution(differing), recorded.start_state, manifest.digest, compare.INITIAL
                ), ()
        else:
            state, manifest = self._training.resume(
                (self._store, checkpoint),
                recorded.start_state,
                where=f"training checkpoint before train step {recorded.start}",
            )
        judge = _Judge(self._training, self._store, {end.state: end for end in ends}, measured)
        with closing(self._training):
            for recorded in segments:
                try:
                    state, record = self._training.segment(
                        state, manifest, recorded.start, recorded.end, hint=judge.hint(recorded)
                    )
                except NotFinite as error:
                    return not_finite(recorded, error), losses
                losses += record.steps.losses
                if (divergence := judge.segment(recorded, record, state)) is not None:
                    return divergence, losses
                manifest = record.end_state
        return None, losses

    def _first(self) -> tuple[SlicedState, StateManifest]:
        """The state before the first train step."""
        initial = self._training.recipe.initial
        if initial is None:
            return self._training.start()
        with TemporaryDirectory(prefix="marin-initial-") as base:
            return self._training.start(checkout(self._store, initial.model, Path(base) / "previous"))


@dataclass(frozen=True)
class _Judge:
    """Compares a segment with its record; on a difference it looks for the stored state, to say more."""

    training: Training
    store: Store
    saved: Saved
    measured: Measured | None

    def segment(self, recorded: TrainSegment, record: SegmentRecord, state: SlicedState) -> Divergence | None:
        ended = recorded.end_state, record.end_state
        named = explained(lambda: self._named(*ended), ()) if ended[0] != ended[1].digest else ()
        trace, names = _blob(self.store, recorded.trace), self.training.names
        divergence = compare.segment(recorded, replayed_segment(record), trace, names, named, self.measured)
        if divergence is not None and record.steps.records and divergence.step is not None:
            divergence = explained(partial(self._completions, recorded, record, divergence), divergence)
        if divergence is None or recorded.end_state == record.end_state.digest:
            return divergence
        details = explained(lambda: self._details(recorded, state), ())
        return replace(divergence, details=details, details_after=recorded.end - 1)

    def hint(self, recorded: TrainSegment) -> Hint:
        """What is stored of the completions that a recorded segment's updates saw."""
        if self.training.recipe.objective is None:
            return lambda step: None
        return lambda step: _blob(self.store, recorded.batches[step - recorded.start])

    def _completions(self, recorded: TrainSegment, record: SegmentRecord, divergence: Divergence) -> Divergence:
        """The first completion that differs, where it is completions that do."""
        place = (divergence.step or 0) - recorded.start
        expected, seen = recorded.batches[place], record.steps.batches[place]
        if expected == seen:
            return divergence
        told = objective_plugin().difference(_blob(self.store, expected), record.steps.records[seen])
        return replace(divergence, explanation=f"the completions differ: {told}")

    def _named(self, expected: str, found: StateManifest) -> tuple[str, ...]:
        """Tensors in which a recorded state differs, if its list is there and is what the digest says."""
        saved = self.saved.get(expected)
        manifest = listed_tensors(self.store, saved.manifest, expected) if saved is not None else None
        return manifest.differing(found) if manifest is not None else ()

    def _details(self, recorded: TrainSegment, state: SlicedState) -> tuple[compare.TensorDifference, ...]:
        """Element by element against the stored state at the segment's end; nothing where it can not be had."""
        saved = self.saved.get(recorded.end_state)
        if saved is None or hosts.processes() > 1:  # there no process has the whole state
            return ()
        training, where = self.training, f"training checkpoint after train step {recorded.end - 1}"
        try:
            with TemporaryDirectory(prefix="marin-state-") as base:
                folder = Path(base) / "checkpoint"
                self.store.checkout(saved.artifact, folder)
                stored, _ = load(folder, training.recipe, training.vocab_size, recorded.end_state, where=where)
        except LedgerError as error:
            logger.info("no comparison element by element: %s", error)
            return ()
        return tuple(tensors.compare(arrays_of(stored), arrays_of(training.step.collect(state))))


def not_finite(recorded: TrainSegment, error: NotFinite) -> Divergence:
    """A step whose loss or gradient is not finite here, where the record has one that was."""
    expected = recorded.fingerprints[error.number - recorded.start]
    return Divergence(error.number, (), expected, error.found, "loss or gradient is not finite")


def replayed_segment(record: SegmentRecord) -> ReplayedSegment:
    """A segment's record in the terms of its event."""
    return ReplayedSegment(
        losses=[loss.hex() for loss in record.steps.losses],
        batches=record.steps.batches,
        fingerprints=record.steps.fingerprints,
        start_state=record.start_state.digest,
        end_state=record.end_state.digest,
        trace=record.steps.trace,
        measured={GRAD_NORM: record.steps.grad_norms, **record.steps.routers, **record.steps.completions},
    )


def _blob(store: Store, digest: str) -> bytes | None:
    try:
        return store.read(digest)
    except LedgerError:
        return None
