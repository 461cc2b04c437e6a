"""Training checkpoints: read back whole or refused; keys by name."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType

import jax
import msgspec
import numpy as np
import pytest

from ledger import LedgerError, Tampered
from marin.training.checkpoints.saving import save
from marin.training.checkpoints.whole import load
from marin.training.initial import initial_state
from marin.training.state import TrainState, leaves, manifest_of, named_key


@pytest.fixture(scope="module")
def state(worker: ModuleType) -> TrainState:
    return initial_state(worker.recipe_of(worker.Case(name="state", length=8)), worker.VOCABULARY)


def test_a_checkpoint_is_read_back_bit_for_bit(worker: ModuleType, state: TrainState, tmp_path: Path) -> None:
    save(state, tmp_path / "c")
    recipe = worker.recipe_of(worker.Case(name="state", length=8))
    read, manifest = load(tmp_path / "c", recipe, worker.VOCABULARY, manifest_of(state).digest, where="here")
    assert manifest == manifest_of(state)
    for (name, mine), (other, theirs) in zip(leaves(state), leaves(read), strict=True):
        assert name == other and np.asarray(mine).tobytes() == np.asarray(theirs).tobytes()


def test_another_state_is_refused(worker: ModuleType, state: TrainState, tmp_path: Path) -> None:
    save(state, tmp_path / "c")
    recipe = worker.recipe_of(worker.Case(name="state", length=8))
    with pytest.raises(
        Tampered, match=r"training checkpoint holds another state: step 40: expected sha256:0{64}, found sha256:"
    ):
        load(tmp_path / "c", recipe, worker.VOCABULARY, "sha256:" + "0" * 64, where="step 40")


@pytest.mark.parametrize(
    "fields",
    [{"hidden": 16}, {"layers": 3}, {"architecture": "gpt2"}, {"optimizer": "lion"}],
    ids=["width", "depth", "architecture", "optimizer"],
)
def test_a_checkpoint_of_another_recipe_is_refused(
    worker: ModuleType, state: TrainState, tmp_path: Path, fields: dict[str, str]
) -> None:
    save(state, tmp_path / "c")
    other = worker.recipe_of(worker.Case(name="other", length=8, **fields))
    with pytest.raises(LedgerError, match="training checkpoint"):
        load(tmp_path / "c", other, worker.VOCABULARY, manifest_of(state).digest, where="step 40")


def test_every_flipped_byte_of_the_tensors_is_refused(worker: ModuleType, state: TrainState, tmp_path: Path) -> None:
    """One byte in each file, near its end where the data is; what only times and names depend on may pass, with the
    same tensors."""
    save(state, tmp_path / "c")
    recipe = worker.recipe_of(worker.Case(name="state", length=8))
    expected = manifest_of(state).digest
    refused = 0
    files = sorted(path for path in (tmp_path / "c").rglob("*") if path.is_file() and path.stat().st_size)
    largest = sorted(files, key=lambda path: path.stat().st_size)[-3:]
    for path in largest:
        data = path.read_bytes()
        for position in (len(data) // 3, len(data) // 2):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            try:
                _, manifest = load(tmp_path / "c", recipe, worker.VOCABULARY, expected, where="step 40")
                assert manifest.digest == expected
            except LedgerError as error:
                assert "training checkpoint" in str(error) and "step 40" in str(error)
                refused += 1
        path.write_bytes(data)
    assert refused >= 1
    load(tmp_path / "c", recipe, worker.VOCABULARY, expected, where="step 40")


def test_keys_are_derived_by_name_and_from_all_bits_of_the_seed() -> None:
    seen = {
        tuple(np.asarray(named_key(seed, name)).tolist())
        for seed in (0, 1, 2**32, 2**32 + 1, 2**62)
        for name in ("data", "model", "train")
    }
    assert len(seen) == 15
    assert np.asarray(named_key(3, "model")).tolist() == np.asarray(named_key(3, "model")).tolist()


def test_the_initial_state_depends_on_the_seed_alone(worker: ModuleType, state: TrainState) -> None:
    recipe = worker.recipe_of(worker.Case(name="state", length=8))
    assert manifest_of(initial_state(recipe, worker.VOCABULARY)) == manifest_of(state)
    other = initial_state(msgspec.structs.replace(recipe, seed=8), worker.VOCABULARY)
    changed = manifest_of(state).differing(manifest_of(other))
    assert "key" in changed and any(path.startswith("model/") for path in changed)
    assert jax.tree.structure(other.moments) == jax.tree.structure(state.moments)
