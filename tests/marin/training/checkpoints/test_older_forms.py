"""Checkpoints as earlier versions wrote them are read: by Levanter's own writer, and tensor by tensor."""

from __future__ import annotations

from pathlib import Path
from types import ModuleType
from typing import Any

import jax
import levanter.checkpoint
import numpy as np
import pytest
from haliax.jax_utils import is_jax_array_like
from jax.experimental.array_serialization.serialization import GlobalAsyncCheckpointManager
from jax.sharding import NamedSharding
from jax.sharding import PartitionSpec as P

from ledger import LedgerError, PosixStorage, Store, Tampered
from marin.tensors.checkpoints import checkpoint_state, stray_files
from marin.training.checkpoints.loading import load_slices
from marin.training.checkpoints.whole import load
from marin.training.initial import initial_state
from marin.training.optimizers.rule import optimizer
from marin.training.state import DATA, TrainState, arrays_of, local, manifest_of
from marin.training.step.contract import mesh_of
from marin.training.step.slices import Layout


def by_levanter(state: TrainState, folder: Path) -> None:
    manager = GlobalAsyncCheckpointManager()
    host = jax.tree.map(lambda x: local(x) if is_jax_array_like(x) else x, state)
    levanter.checkpoint.save_checkpoint(host, 0, str(folder), manager, is_temporary=False)
    manager.wait_until_finished()


def by_tensor(state: TrainState, folder: Path) -> None:
    (folder / "tensors").mkdir(parents=True)
    manifest, arrays = manifest_of(state), arrays_of(state)
    (folder / "state.json").write_bytes(manifest.encode())
    for index, tensor in enumerate(manifest.tensors):
        (folder / "tensors" / f"{index:05d}").write_bytes(np.ascontiguousarray(arrays[tensor.path]).tobytes())


@pytest.mark.parametrize("write", [by_levanter, by_tensor])
def test_it_is_read_whole_and_onto_devices(worker: ModuleType, tmp_path: Path, write: Any) -> None:
    recipe = worker.recipe_of(worker.Case(name="older", length=8))
    state = initial_state(recipe, worker.VOCABULARY)
    expected = manifest_of(state)
    folder = tmp_path / "checkpoint"
    write(state, folder)
    assert load(folder, recipe, worker.VOCABULARY, expected.digest, where="here")[1] == expected
    assert checkpoint_state(folder, expected) == expected and stray_files(folder) == []
    store = Store(PosixStorage(tmp_path / "root"))
    tree = store.put_tree(folder).digest
    layout, sharding = Layout(state, optimizer(recipe), 4), NamedSharding(mesh_of(1), P(DATA))
    for source in (folder, (store, tree)):
        read, manifest = load_slices(source, layout, sharding, recipe, worker.VOCABULARY, expected.digest, where="here")
        assert manifest == expected == manifest_of(layout.join(read))


def test_every_flipped_byte_of_levanter_s_tensors_is_refused(worker: ModuleType, tmp_path: Path) -> None:
    """One byte in each file, near its end where the data is; what only times and names depend on may pass, with the
    same tensors."""
    recipe = worker.recipe_of(worker.Case(name="older", length=8))
    state = initial_state(recipe, worker.VOCABULARY)
    by_levanter(state, tmp_path / "c")
    expected = manifest_of(state).digest
    refused = 0
    files = sorted(path for path in (tmp_path / "c").rglob("*") if path.is_file() and path.stat().st_size)
    for path in sorted(files, key=lambda path: path.stat().st_size)[-3:]:
        data = path.read_bytes()
        for position in (len(data) // 3, len(data) // 2):
            path.write_bytes(data[:position] + bytes([data[position] ^ 1]) + data[position + 1 :])
            try:
                _, manifest = load(tmp_path / "c", recipe, worker.VOCABULARY, expected, where="step 40")
                assert manifest.digest == expected
            except LedgerError as error:
                assert "training checkpoint" in str(error) and "step 40" in str(error)
                assert isinstance(error, Tampered)
                refused += 1
        path.write_bytes(data)
    assert refused >= 1
