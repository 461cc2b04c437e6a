"""How a training is laid out over what is there: on processors, GPUs and TPU slices, the last against Ray's own
rules."""

from __future__ import annotations

from typing import Any

import pytest

from ledger import Unavailable
from marin.errors import UsageError
from marin.recipe.schema import Arithmetic, Execution, Recipe, Trainer
from marin.runners.ray.training import scaling_config, shape_of


def recipe(profile: Any = "portable-cpu", shards: Any = 8) -> Recipe:
    return Recipe(arithmetic=Arithmetic(profile=profile, logical_shards=shards), trainer=Trainer(batch_size=shards))


@pytest.mark.parametrize(
    ("wanted", "cpus", "found"), [(4, 4, 4), (4, 3, 2), (4, 2, 2), (4, 1, 1), (1, 64, 1), (8, 7, 4)]
)
def test_as_many_processes_as_fit_and_divide_the_shards(wanted: int, cpus: int, found: int) -> None:
    shape = shape_of(recipe(), Execution(devices=wanted, processes=wanted, runner="ray"), {"CPU": float(cpus)})
    assert (shape.processes, shape.devices) == (found, found)


def test_a_lost_machine_takes_its_devices_with_it() -> None:
    execution = Execution(devices=8, processes=2, runner="ray")
    assert shape_of(recipe(), execution, {"CPU": 2.0}).devices == 8
    assert shape_of(recipe(), execution, {"CPU": 1.0}).devices == 4


def test_no_room_and_impossible_layouts_are_told_apart() -> None:
    with pytest.raises(Unavailable, match="no machine has room"):
        shape_of(recipe(), Execution(devices=2, processes=2, runner="ray"), {"CPU": 0.0})
    with pytest.raises(UsageError, match="do not divide"):
        shape_of(recipe(), Execution(devices=3, processes=3, runner="ray"), {"CPU": 8.0})


def test_gpus_are_reserved_with_the_processes() -> None:
    execution = Execution(devices=16, processes=2, runner="ray", accelerator_type="H100")
    shape = shape_of(recipe("gpu", 16), execution, {"CPU": 64.0, "GPU": 16.0})
    config = scaling_config(shape)
    assert (config.num_workers, config.use_gpu, config.accelerator_type) == (2, True, "H100")
    assert config.resources_per_worker == {"CPU": 1.0, "GPU": 8.0}
    assert shape_of(recipe("gpu", 16), execution, {"CPU": 64.0, "GPU": 8.0}).processes == 1


@pytest.mark.parametrize("slices", [1, 2])
def test_tpu_slices_are_taken_whole(slices: int) -> None:
    execution = Execution(
        devices=16 * slices, processes=4 * slices, runner="ray", accelerator_type="TPU-V6E", topology="4x4"
    )
    config = scaling_config(shape_of(recipe("tpu", 32), execution, {}))
    assert (config.num_workers, config.use_tpu, config.topology) == (4 * slices, True, "4x4")
    assert config.resources_per_worker == {"CPU": 1.0, "TPU": 4.0}


def test_a_part_of_a_slice_is_refused() -> None:
    execution = Execution(devices=8, processes=2, runner="ray", accelerator_type="TPU-V6E", topology="4x4")
    with pytest.raises(UsageError, match="does not fit the accelerators"):
        scaling_config(shape_of(recipe("tpu", 32), execution, {}))
