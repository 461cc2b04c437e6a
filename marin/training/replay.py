"""Training executed again: every segment from its start state, compared with what was recorded.

Serial full replay starts from the initial state that the recipe leads to, never from a stored one: what the ledger
says is only compared with. A segment on its own starts from the stored state that its digest proves.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory

from ledger import LedgerError, StateManifest, Store
from marin.cache import compilation_cache
from marin.events import Json, TrainSegment
from marin.progress import Report
from marin.recipe import Execution, Recipe
from marin.replay import compare
from marin.replay.compare import Divergence, FoundSegment
from marin.training.loop import SegmentRecord, Training, use_compilation_cache
from marin.training.run import program_identity, vocabulary_size


@dataclass(frozen=True)
class TrainingReplay:
    """How a replay of training ended. ``program``: identity of what was compiled here."""

    segments_replayed: int
    seconds: float
    program: Json
    divergence: Divergence | None


def replay(recipe: Recipe, tokens: Path, tokenizer: Path, segments: Sequence[TrainSegment], initial: StateManifest | None,
           store: Store, execution: Execution, report: Report, previous: Path | None = None) -> TrainingReplay:
    """Execute all ``segments`` in order from the recipe's own initial state and stop at the first difference. A phase
    begins with the stored state in ``previous`` instead, which is proven by its digest.

    ``initial`` is the recorded list of the initial state's tensors, if the store has it: it names the tensors when
    already the first state differs.
    """
    began = time.monotonic()
    use_compilation_cache(compilation_cache())
    training = Training(recipe, tokens / "train", vocabulary_size(tokenizer), execution)
    state, manifest = training.start(previous)
    program = dict(program_identity(training))

    def ended(replayed: int, divergence: Divergence | None) -> TrainingReplay:
        return TrainingReplay(replayed, time.monotonic() - began, program, divergence)

    if segments and manifest.digest != segments[0].start_state:
        differing = tuple(initial.differing(manifest)) if initial is not None else ()
        return ended(0, Divergence(0, differing, segments[0].start_state, manifest.digest, "the initial state differs"))
    for done, recorded in enumerate(segments):
        state, record = training.segment(state, manifest, recorded.start, recorded.end,
                                         progress=lambda step, loss: report(step + 1 - recipe.first_step, f"loss {loss:.3f}"))
        divergence = compare.segment(recorded, found(record), _blob(store, recorded.trace), training.names)
        if divergence is not None:
            return ended(done + 1, divergence)
        manifest = record.end_state
    return ended(len(segments), None)


class SegmentReplay:
    """Segments of one run, each executed on its own. Compiled once, for as many segments as come."""

    def __init__(self, recipe: Recipe, tokens: Path, tokenizer: Path, store: Store, execution: Execution) -> None:
        use_compilation_cache(compilation_cache())
        self._training = Training(recipe, tokens / "train", vocabulary_size(tokenizer), execution)
        self._store = store
        self.program: Json = dict(program_identity(self._training))

    def replay(self, recorded: TrainSegment, checkpoint: str | None, initial: StateManifest | None) -> Divergence | None:
        """Execute one segment and compare. The first starts from the recipe's own initial state (``initial`` names the
        tensors when it differs), every other from the training checkpoint stored as ``checkpoint``.

        Raises:
            Tampered: what is stored is not the state that the segment starts from.
            LedgerError: the checkpoint can not be had.
        """
        if checkpoint is None:
            state, manifest = self._training.start()
            if manifest.digest != recorded.start_state:
                differing = tuple(initial.differing(manifest)) if initial is not None else ()
                return Divergence(recorded.start, differing, recorded.start_state, manifest.digest, "the initial state differs")
        else:
            with TemporaryDirectory(prefix="marin-segment-") as base:
                folder = Path(base) / "checkpoint"
                self._store.checkout(checkpoint, folder)
                state, manifest = self._training.resume(folder, recorded.start_state,
                                                        where=f"training checkpoint before train step {recorded.start}")
        _, record = self._training.segment(state, manifest, recorded.start, recorded.end)
        return compare.segment(recorded, found(record), _blob(self._store, recorded.trace), self._training.names)


def found(record: SegmentRecord) -> FoundSegment:
    """A segment's record in the terms of its event."""
    return FoundSegment(losses=[loss.hex() for loss in record.losses], batches=record.batches,
                        fingerprints=record.fingerprints, start_state=record.start_state.digest,
                        end_state=record.end_state.digest, trace=record.trace)


def _blob(store: Store, digest: str) -> bytes | None:
    try:
        return store.read(digest)
    except LedgerError:
        return None
