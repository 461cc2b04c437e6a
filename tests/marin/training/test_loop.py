"""Segments on one device without the contract: what is recorded, refused, and checked twice."""

from __future__ import annotations

from pathlib import Path
from tempfile import TemporaryDirectory
from types import ModuleType
from typing import Any

import numpy as np
import pytest

from ledger import PosixStorage, StateManifest, Store, Tampered, packed_size
from marin.errors import Diverged, Unsupported
from marin.recipe.schema import Execution
from marin.training import loop
from marin.training.data import Batches, batch_digest
from marin.training.inspection.batch import batch_at
from marin.training.loop import NotFinite, Training, differing_tensors, fingerprint_of
from marin.training.runtime import canary
from marin.training.step import known
from marin.training.step.contract import StepOutcome, mesh_of
from marin.training.step.shards import TrainStep
from marin.training.step.slices import SlicedState
from marin.training.tokens.building import write_cache
from marin.work import answers

Started = tuple[Training, SlicedState, StateManifest]


@pytest.fixture(scope="module")
def cache(worker: ModuleType, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A token cache of forty documents."""
    folder = tmp_path_factory.mktemp("tokens") / "train"
    generator = np.random.default_rng(9)
    write_cache(folder, (generator.integers(0, worker.VOCABULARY, 30 + n, dtype=np.int32) for n in range(40)))
    return folder


@pytest.fixture(scope="module")
def recipe(worker: ModuleType) -> Any:
    return worker.recipe_of(worker.Case(name="loop", shards=2, batch=4, length=16, steps=6, hidden=16, layers=1))


@pytest.fixture
def start(worker: ModuleType, recipe: Any, cache: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Starts a training; the contract is not in force in this process, so its proofs are left out."""
    monkeypatch.setattr(canary, "check", lambda _: None)
    monkeypatch.setattr(known, "check", lambda _: None)
    monkeypatch.setattr(TrainStep, "foreign_products", lambda _: [])

    def started(**execution: int) -> Started:
        training = Training(recipe, cache, worker.VOCABULARY, Execution(**execution))
        return training, *training.start()

    return started


def saved(training: Training, store: Store, state: SlicedState) -> str:
    """The tree of a state in the store."""
    trees: list[str] = []
    with TemporaryDirectory() as work, training.saver(store, Path(work)) as saver:
        saver.save(state, lambda done: trees.append(done.artifact.digest))
        saver.settle(wait=True)
    return trees[0]


def test_a_resumed_segment_records_what_the_straight_one_does(start: Any, tmp_path: Path) -> None:
    training, state, manifest = start(self_check_every=2)
    state, first = training.segment(state, manifest, 0, 3)
    store = Store(PosixStorage(tmp_path / "root"))
    tree = saved(training, store, state)
    _, second = training.segment(state, first.end_state, 3, 5)
    assert (first.steps.start, first.steps.end, len(first.steps.losses)) == (0, 3, 3)
    assert len(first.steps.trace) == 3 * len(training.names) * 2 * 4
    resumed, at = training.resume((store, tree), first.end_state.digest, where="step 3")
    assert at == first.end_state
    assert training.segment(resumed, at, 3, 5)[1] == second


def test_what_a_step_saw_is_found_without_training(recipe: Any, cache: Path) -> None:
    with Batches(recipe, cache, mesh_of(1), 7) as fed:
        read = next(fed), next(fed)
    for step, batch in zip((7, 8), read, strict=True):
        seen, digest = batch_at(recipe, cache, step)
        assert digest == batch.digest == batch_digest(batch.indices, batch.tokens)
        assert [sequence.index for sequence in seen] == batch.indices.tolist()
        assert all(len(sequence.documents) in (1, 2) for sequence in seen)


def test_a_step_that_computes_otherwise_the_second_time_is_noticed(start: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    training, state, manifest = start(self_check_every=1)
    run, calls = TrainStep.run, []

    def faulty(self: TrainStep, *arguments: Any, **how: Any) -> tuple[SlicedState, StepOutcome]:
        after, outcome = run(self, *arguments, **how)
        calls.append(outcome)
        prints = outcome.fingerprint.copy()
        prints[4, 1] ^= len(calls) == 4  # the second execution of step 1
        return after, StepOutcome(outcome.loss, outcome.grad_norm, prints)

    monkeypatch.setattr(TrainStep, "run", faulty)
    with pytest.raises(Diverged, match=rf"executed twice gave other bits: train step 1: .* in {training.names[4]};"):
        training.segment(state, manifest, 0, 3)


def test_a_loss_that_is_not_finite_stops_at_its_step_with_the_state_before(
    start: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    training, state, manifest = start()
    run = TrainStep.run

    def poisoned(
        self: TrainStep, state: SlicedState, tokens: Any, weights: Any, **how: Any
    ) -> tuple[SlicedState, StepOutcome]:
        return run(self, state, tokens, weights * (np.nan if int(state.step) == 2 else 1.0), **how)

    monkeypatch.setattr(TrainStep, "run", poisoned)
    with pytest.raises(NotFinite, match=r"train step 2 .*: expected finite numbers, found loss nan") as raised:
        training.segment(state, manifest, 0, 4)
    assert int(training.step.collect(raised.value.state).step) == 2


def test_a_machine_with_another_answer_is_unsupported(
    recipe: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canary, "answer", lambda: "sha256:" + "0" * 64)
    with pytest.raises(Unsupported, match="does not compute the bits") as raised:
        Training(recipe, cache, 64, Execution())
    assert raised.value.exit_code == 3
    monkeypatch.setattr(canary, "version", lambda _: "9.9.9")
    with pytest.raises(Unsupported, match="no known answer"):
        canary.check(recipe.arithmetic)


def test_a_training_begins_where_whole_train_steps_give_their_known_answer(
    recipe: Any, cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Executed once for a machine, its versions and the code; an answer that was wrong is asked for again."""
    expected, executed = known.ANSWERS[known.version("jaxlib")], []
    came_out = ["sha256:" + "0" * 64]

    def whole() -> str:
        executed.append(came_out[0])
        return came_out[0]

    monkeypatch.setenv("MARIN_CACHE", str(tmp_path))
    monkeypatch.setattr(canary, "check", lambda _: None)
    monkeypatch.setattr(known, "whole", whole)
    for _ in range(2):
        with pytest.raises(Unsupported, match=f"whole train steps: .* expected {expected}, found sha256:0") as raised:
            Training(recipe, cache, 64, Execution())
    assert raised.value.exit_code == 3
    came_out[0] = expected
    for _ in range(2):
        known.check(recipe.arithmetic)
    assert executed == ["sha256:" + "0" * 64] * 2 + [expected]
    (kept,) = (tmp_path / "answers").iterdir()
    for spoiled in (b"", b"sha256:" + b"1" * 64, b"\xff"):
        kept.write_bytes(spoiled)
        known.check(recipe.arithmetic)
    assert len(executed) == 6, "what is kept is believed where it is the pinned answer"
    monkeypatch.setattr(answers.environment, "versions", lambda: {"jaxlib": "another"})
    known.check(recipe.arithmetic)
    assert (len(executed), len(list((tmp_path / "answers").iterdir()))) == (7, 2)
    monkeypatch.setattr(known, "ANSWERS", {"0.1": expected})
    with pytest.raises(Unsupported, match="no known answer of whole train steps"):
        known.check(recipe.arithmetic)


def test_products_that_depend_on_the_processor_are_refused(
    recipe: Any, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(canary, "check", lambda _: None)
    monkeypatch.setattr(known, "check", lambda _: None)
    monkeypatch.setattr(loop.TrainStep, "foreign_products", lambda _: ["%dot.7"])
    with pytest.raises(Unsupported, match=r"products whose bits depend on the processor: .* found %dot\.7"):
        Training(recipe, cache, 64, Execution())


def test_differences_are_named() -> None:
    one = StepOutcome(np.float32(1), np.float32(2), np.zeros((2, 2), np.uint32))
    other = StepOutcome(np.float32(1), np.float32(3), np.array([[0, 0], [0, 1]], np.uint32))
    assert differing_tensors(["a", "b"], one, other) == ["gradient norm", "b"]
    assert differing_tensors(["a", "b"], one, one) == []
    assert fingerprint_of(one) != fingerprint_of(other)


def test_a_packed_checkpoint_is_the_same_state(start: Any, tmp_path: Path) -> None:
    """What `--pack-checkpoints` keeps resumes as what is kept plainly: bit for bit, and smaller the second time."""
    training, state, manifest = start()
    store, other = Store(PosixStorage(tmp_path / "root")), Store(PosixStorage(tmp_path / "other"))
    trees: list[str] = []
    with training.saver(store, tmp_path / "work", pack=True) as saver:
        saver.save(state, lambda saved: trees.append(saved.artifact.digest))
        at, first = training.segment(state, manifest, 0, 3)
        saver.save(at, lambda saved: trees.append(saved.artifact.digest))
        saver.settle(wait=True)
    tree = trees[1]
    assert saved(training, other, at) == tree
    packed, found = training.resume((store, tree), first.end_state.digest, where="step 3")
    plain, same = training.resume((other, tree), first.end_state.digest, where="step 3")
    assert found == same == first.end_state
    assert training.segment(packed, found, 3, 5)[1] == training.segment(plain, same, 3, 5)[1]
    assert packed_size(store, tree) < store.artifact(tree).size
    store.checkout(tree, tmp_path / "packed", how="copy")
    (tmp_path / "packed" / "slices" / "00000").write_bytes(b"short")
    with pytest.raises(Tampered, match="can not be read"):
        training.resume(tmp_path / "packed", first.end_state.digest, where="step 3")
