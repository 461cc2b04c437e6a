"""Segments: train steps between two recorded states, executed once to train and again to verify.

:class:`Training` holds the compiled programs of one recipe. :meth:`Training.segment` executes a range of train steps
from a given state and returns what is recorded about it. Training and replay call the same method, so a replay can
only differ where machine, data or program do.
"""

from __future__ import annotations

import logging
from collections.abc import Callable, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, field, replace
from pathlib import Path

import jax
import numpy as np
from jax.sharding import Mesh

from ledger import StateManifest, Store, Tampered, digest_bytes
from marin.errors import Diverged, Unsupported, UsageError
from marin.process.arithmetic import check_device, check_devices
from marin.provenance.plugins import load_plugin
from marin.recipe.model import BLANKS, IMPORTED
from marin.recipe.objective import between_updates
from marin.recipe.schema import CPU_PROFILES, Execution, Recipe
from marin.record.fingerprint import step_fingerprint
from marin.training.checkpoints.digesting import describe
from marin.training.checkpoints.loading import load_slices
from marin.training.checkpoints.saving import Saver
from marin.training.data import Batch, Batches, Span, streams, token_dataset
from marin.training.initial import initial_slices
from marin.training.runtime import hosts
from marin.training.runtime.compilation import give_back_memory
from marin.training.runtime.objective import Rollouts, objective_plugin
from marin.training.runtime.parts import experts
from marin.training.runtime.profile import check_known, exact_profile, layered_step
from marin.training.runtime.stopping import StopSignal
from marin.training.state import TrainState, leaves, state_like
from marin.training.step.contract import Step, StepOutcome, mesh_of
from marin.training.step.shards import TrainStep
from marin.training.step.slices import SlicedState
from marin.training.tokens.cache import Cache

logger = logging.getLogger(__name__)
MOST_KEPT = 1 << 26
"""Tokens of batches that are kept in memory for another training."""
Hint = Callable[[int], bytes | None]
"""What is recorded of the completions of an update, by the number of its first train step."""
Progress = Callable[[int, float], None]
"""Called after each train step with its number and loss."""


@dataclass
class Steps:
    """What is known of train steps ``[start, end)``. Lists have one item per step; ``trace`` is uint32 little-endian
    [steps, tensors, 2]: the per-tensor fingerprints after each step, in the order of the state's tree. ``routers``: by name
    (:func:`marin.training.experts.models.routing_balance`), where there are some. Of completions
    (:mod:`marin.training.runtime.objective`) ``completions`` has what is measured of them, and ``records`` what is stored of
    each update, by its digest."""

    start: int
    end: int
    losses: list[float] = field(default_factory=list)
    grad_norms: list[float] = field(default_factory=list)
    batches: list[str] = field(default_factory=list)
    fingerprints: list[str] = field(default_factory=list)
    trace: bytes = b""
    routers: dict[str, list[float]] = field(default_factory=dict)
    completions: dict[str, list[float]] = field(default_factory=dict)
    records: dict[str, bytes] = field(default_factory=dict)


@dataclass(frozen=True)
class SegmentRecord:
    """Train steps between two states that are known by their digests."""

    steps: Steps
    start_state: StateManifest
    end_state: StateManifest


def fingerprint_of(outcome: StepOutcome) -> str:
    """The recorded fingerprint of a step: over the bits of loss, gradient norm and all tensors' fingerprints after it."""
    tensors = np.ascontiguousarray(outcome.fingerprint, dtype="<u4").tobytes()
    return step_fingerprint(float(outcome.loss), float(outcome.grad_norm), tensors)


def differing_tensors(names: Sequence[str], one: StepOutcome, other: StepOutcome) -> list[str]:
    """What differs between two executions of a step: ``loss``, ``gradient norm``, and tensors by name."""
    scalars = {"loss": (one.loss, other.loss), "gradient norm": (one.grad_norm, other.grad_norm)}
    found = [name for name, (a, b) in scalars.items() if a.tobytes() != b.tobytes()]
    rows = zip(names, one.fingerprint, other.fingerprint, strict=True)
    return found + [name for name, a, b in rows if a.tolist() != b.tolist()]


class NotFinite(Diverged):
    """A train step found a loss or a gradient that is not a finite number and left the state as it was: ``state`` is
    the one before the step, to be saved for inspection, and ``steps`` what led there from the segment's begin."""

    def __init__(self, number: int, outcome: StepOutcome, batch: Batch, state: SlicedState, steps: Steps) -> None:
        nothing = not hosts.whole(batch.weights).any()
        super().__init__(
            "loss or gradient is not finite",
            where=f"train step {number} (sequences {batch.indices.tolist()})",
            expected="finite numbers",
            found=f"loss {outcome.loss}, gradient norm {outcome.grad_norm}",
            cure="nothing of this batch is learned: raise trainer.batch_size"
            if nothing
            else "lower optimizer.learning_rate or raise optimizer.warmup_steps",
        )
        self.number = number
        self.state = state
        self.steps = steps

    def saved_as(self, artifact: str) -> Diverged:
        """This error for a user: with the place of the state that was saved."""
        return Diverged(
            self.what,
            where=self.where,
            expected=self.expected,
            found=self.found,
            cure=f"{self.cure}; the state before this step is stored: marin store get {artifact} FOLDER",
        )


def training_mesh(recipe: Recipe, execution: Execution) -> Mesh:
    """The mesh of the execution's devices, as the recipe's profile can use it.

    Raises:
        UsageError: there are not so many devices, they do not divide, or the profile's devices share no matrices.
    """
    check_devices(recipe, execution)
    replicas = execution.slices if recipe.arithmetic.gather == "layer" and recipe.arithmetic.profile != "exact" else 1
    return mesh_of(execution.devices, replicas, execution.tensor_parallel, execution.expert_parallel)


def _check_alone(execution: Execution) -> None:
    """Raises UsageError where several processes would have to draw together."""
    if execution.processes > 1 or execution.tensor_parallel > 1:
        raise UsageError(
            "completions are drawn by one process, of whole matrices",
            where="--processes" if execution.processes > 1 else "--tensor-parallel",
            expected="1 with an objective",
            found=str(max(execution.processes, execution.tensor_parallel)),
            cure="use --devices: they share the completions",
        )


def step_of(recipe: Recipe, mesh: Mesh, example: TrainState) -> Step:
    """The train step of the recipe's profile, compiled for this mesh; ``example`` has the state's shapes."""
    if recipe.arithmetic.profile == "exact":
        return exact_profile().step(recipe, mesh, example)
    if recipe.arithmetic.gather == "layer":
        return layered_step(recipe, mesh, example)
    return TrainStep(recipe, mesh, example)


class Training:
    """One recipe, ready to execute on ``execution.devices`` devices of this process.

    Raises:
        Unsupported: this machine does not give the contract's known answer, or a product would depend on it.
        UsageError: logical shards (under ``exact`` the batch) do not divide over the devices, or there are not so many.
    """

    def __init__(
        self,
        recipe: Recipe,
        cache: Cache,
        vocab_size: int,
        execution: Execution,
        tokenizer: Path | None = None,
        store: Store | None = None,
    ) -> None:
        check_device(recipe.arithmetic, jax.devices()[0].device_kind)
        check_known(recipe.arithmetic)
        self.recipe = recipe
        self.vocab_size = vocab_size
        self.mesh = training_mesh(recipe, execution)
        self._cache = cache
        self._self_check = execution.self_check_every
        example = state_like(recipe, vocab_size)
        self.names = [name for name, _ in leaves(example)]
        self.step = step_of(recipe, self.mesh, example)
        foreign = self.step.foreign_products() if recipe.arithmetic.profile in CPU_PROFILES else []
        if foreign:
            raise Unsupported(
                "products whose bits depend on the processor",
                where="compiled gradient" if recipe.arithmetic.profile != "exact" else "compiled train step",
                expected="every matrix product in XLA's own library; under exact, no product that meets a sum unguarded",
                found=", ".join(foreign),
                cure="choose other sizes of model or microbatch, and report these",
            )
        self._rollouts: Rollouts | None = None
        if recipe.objective is not None:
            _check_alone(execution)
            assert tokenizer is not None, "prompts are texts"
            self._rollouts = objective_plugin().rollouts(recipe, self.step, vocab_size, tokenizer, store, execution)
        self._left_out: Callable[[Batch], Batch] | None = None
        self._cached: dict[int, Batch] | None = None
        self._lengths: dict[str, int] = {}
        self._stream: Batches | None = None
        self._next_step = -1

    def reading(self, cache: Cache) -> Training:
        """The same compiled programs on the tokens in another cache."""
        other = copy(self)
        other._cache, other._stream, other._next_step, other._lengths = cache, None, -1, {}
        return other

    def without(self, spans: Sequence[Span], kept: dict[int, Batch]) -> Training:
        """The same compiled programs on the same tokens, of which those of ``spans`` are blank. The recipe is one that
        excludes documents. ``kept``: batches as they were read, by train step, for anyone who trains more than once."""
        other = self.reading(self._cache)
        if not self._lengths:
            width, paths = self.recipe.model.seq_len, streams(self.recipe, self._cache)
            self._lengths |= {name: token_dataset(path, width)[1] for name, path in paths.items()}
        left_out = load_plugin(*BLANKS, "exclude").LeftOut
        other._left_out, other._cached = left_out(self.recipe, self._lengths, spans), kept
        return other

    def close(self) -> None:
        """Stop reading ahead, and end what draws completions. The next batch that is asked for is made anew."""
        if self._rollouts is not None:
            self._rollouts.close()
        if self._stream is not None:
            self._stream.close()
            self._stream = None

    def start(self, previous: Path | None = None) -> tuple[SlicedState, StateManifest]:
        """The state before the first train step, and its digest: the recipe's own initial state; in a phase the one in
        ``previous`` (``checkpoint/``, and ``state.json`` where it is the output of a train step); or that of the model made
        elsewhere which is there.

        Raises:
            UsageError: a phase needs ``previous`` and a run from the beginning has none.
            Tampered: what is in ``previous`` is not the state that the phase begins with.
        """
        phase = self.recipe.phase
        if self.recipe.initial is not None and previous is not None:
            form = self.step.layout.form
            begun = _imported_state()(self.recipe, self.vocab_size, previous / "checkpoint", form)
            first = self.step.layout.cut(begun, self.step.by_slice)
            return first, describe(first, self.step.layout)
        if phase is None and previous is None and self.recipe.initial is None:
            first = initial_slices(self.recipe, self.vocab_size, self.step.layout, self.step.by_slice)
            give_back_memory()
            return first, describe(first, self.step.layout)
        if phase is None or previous is None:
            raise UsageError(
                "a phase, and only a phase, begins with the state of another run",
                where="step train",
                expected="phase and the state together",
                found="phase only" if phase else "a state only",
                cure="`marin train --continue RUN` gives both",
            )
        named = previous / "state.json"
        digest = StateManifest.parse(named.read_bytes()).digest if named.exists() else phase.state
        if digest is None or digest != (phase.state or digest):
            raise Tampered(
                "the state to continue from is another one",
                where="phase.state",
                expected=str(phase.state),
                found=str(digest),
                cure="continue from the run that ended with it",
            )
        state, manifest = self.resume(previous / "checkpoint", digest, where="state of the phase before")
        at = int(state.step), int(state.cursor)
        if at != (phase.first_step, phase.first_sequence & 0xFFFFFFFF):
            raise Tampered(
                "the state to continue from is of another train step",
                where="phase",
                expected=f"train step {phase.first_step}, {phase.first_sequence} sequences",
                found=f"train step {at[0]}, {at[1]} sequences",
                cure="continue from the run that ended with it",
            )
        return state, manifest

    def resume(
        self, source: Path | tuple[Store, str], expected: str, *, where: str
    ) -> tuple[SlicedState, StateManifest]:
        """The state of a checkpoint, in a folder or of a tree in a store; raises ``Tampered`` when its tensors are not those
        of ``expected``."""
        step = self.step
        return load_slices(source, step.layout, step.by_slice, self.recipe, self.vocab_size, expected, where=where)

    def saver(self, store: Store, work: Path, *, pack: bool = False, base: str | None = None) -> Saver:
        """What saves states of this training, to be entered; see :class:`Saver`."""
        return Saver(store, self.step.layout, work, pack=pack, base=base)

    def segment(
        self,
        state: SlicedState,
        before: StateManifest,
        start: int,
        end: int,
        *,
        stop: StopSignal | None = None,
        progress: Progress | None = None,
        hint: Hint = lambda step: None,
    ) -> tuple[SlicedState, SegmentRecord]:
        """:meth:`steps`, with the digest of the state after them; ``before`` is that of ``state``."""
        state, steps = self.steps(state, start, end, stop=stop, progress=progress, hint=hint)
        return state, SegmentRecord(steps, before, describe(state, self.step.layout))

    def steps(
        self,
        state: SlicedState,
        start: int,
        end: int,
        *,
        stop: StopSignal | None = None,
        progress: Progress | None = None,
        hint: Hint = lambda step: None,
    ) -> tuple[SlicedState, Steps]:
        """Execute train steps ``[start, end)``; fewer when ``stop`` was asked for, but at least one. Train steps on the same
        completions stay together.

        Raises:
            Diverged: a step that was executed twice (``execution.self_check_every``) gave other bits.
            NotFinite: loss or gradient is not a finite number; the error names the step and holds the state before it.
        """
        made = Steps(start, start)
        batch: Batch | None = None
        for number in range(start, end):
            batch = (
                self._batch(number) if self._rollouts is None else self._completions(number, state, made, batch, hint)
            )
            checked = self._self_check and number % self._self_check == 0
            earlier = self.step.collect(state) if checked else None
            state, outcome = self.step.run(state, batch.tokens, batch.weights, blank=batch.blank)
            if earlier is not None:
                self._check_again(number, earlier, batch, outcome)
            if not outcome.finite:
                raise NotFinite(number, outcome, batch, state, made)
            made.losses.append(float(outcome.loss))
            made.grad_norms.append(float(outcome.grad_norm))
            made.batches.append(batch.digest)
            made.fingerprints.append(fingerprint_of(outcome))
            made.trace += np.ascontiguousarray(outcome.fingerprint, dtype="<u4").tobytes()
            for loads in outcome.loads:
                for name, value in experts().routing_balance(loads).items():
                    made.routers.setdefault(name, []).append(value)
            made.end = number + 1
            if progress is not None:
                progress(number, float(outcome.loss))
            if stop is not None and stop.asked(number) and self.between(number + 1):
                break
        return state, made

    def _check_again(self, number: int, earlier: TrainState, batch: Batch, outcome: StepOutcome) -> None:
        """Execute a step once more from the state before it; raises ``Diverged`` where the bits are not the same."""
        _, again = self.step.run(self.step.place(earlier), batch.tokens, batch.weights, blank=batch.blank)
        differing = differing_tensors(self.names, outcome, again)
        if differing:
            raise Diverged(
                "a train step executed twice gave other bits",
                where=f"train step {number}",
                expected=fingerprint_of(outcome),
                found=f"{fingerprint_of(again)} in {', '.join(differing[:8])}",
                cure="this machine computes wrongly: go on from the last checkpoint on another one",
            )

    def between(self, step: int) -> bool:
        """Whether a state may be recorded before train step ``step``."""
        return between_updates(self.recipe, step)

    @property
    def programs(self) -> Mapping[str, str]:
        """Digests of what draws completions, by name; nothing where none are drawn."""
        return {} if self._rollouts is None else self._rollouts.program

    def _completions(self, number: int, state: SlicedState, made: Steps, before: Batch | None, hint: Hint) -> Batch:
        """The batch of a train step: completions that ``state`` draws, or those of the step before."""
        objective, rollouts = self.recipe.objective, self._rollouts
        assert objective is not None and rollouts is not None
        update, within = divmod(number - self.recipe.first_step, objective.num_iterations)
        if before is None or within == 0:
            if before is None and not self.between(number):
                raise UsageError(
                    "train steps that begin within an update",
                    where=f"train step {number}",
                    expected="one before which a state may be recorded",
                    found="completions that another state drew",
                    cure="begin where the update does",
                )
            drawn = rollouts.draw(state, update, hint(number))
            digest = digest_bytes(drawn.record)
            made.records[digest] = drawn.record
            for name, value in drawn.measured.items():
                made.completions.setdefault(name, []).extend([value] * objective.num_iterations)
            tokens, numbers = self.step.batch(drawn.tokens), self.step.batch(drawn.numbers)
            return Batch(number, drawn.indices, tokens, numbers, digest)
        return replace(before, step=number)

    def _batch(self, number: int) -> Batch:
        kept = self._cached
        batch = kept[number] if kept is not None and number in kept else self._read(number)
        if kept is not None and len(kept) * batch.tokens.size < MOST_KEPT:
            kept[number] = batch
        return batch if self._left_out is None else self._left_out(batch)

    def _read(self, number: int) -> Batch:
        if self._stream is None or self._next_step != number:
            self.close()
            self._stream = Batches(self.recipe, self._cache, self.mesh, number)
        batch = next(self._stream)
        assert batch.step == number, "the loader starts where it was asked to"
        self._next_step = number + 1
        return batch


def _imported_state() -> Callable[..., TrainState]:
    """What makes the first state of a model that was made elsewhere."""
    found: Callable[..., TrainState] = load_plugin(*IMPORTED, "initial")
    return found
