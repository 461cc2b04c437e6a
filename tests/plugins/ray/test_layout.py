"""How a training is laid out over what is there: on processors, GPUs and TPU slices, the last against Ray's own
rules."""

from __future__ import annotations

from typing import Any

import pytest

from ledger import Unavailable
from marin.errors import UsageError
from marin.plugins.ray.training import scaling_config, shape_of
from marin.recipe.schema import Arithmetic, Execution, Recipe, Trainer


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


def in_slices(slices: int, **more: Any) -> Execution:
    """Slices of 4x4, of four hosts with four chips each."""
    asked: dict[str, Any] = {"devices": 16 * slices, "processes": 4 * slices, "slices": slices} | more
    return Execution(runner="ray", accelerator_type="TPU-V6E", topology="4x4", **asked)


@pytest.mark.parametrize(
    ("wanted", "chips", "found"),
    [(4, 64, 4), (4, 63, 2), (4, 48, 2), (4, 31, 1), (2, 16, 1), (2, 15, 2), (2, 0, 2), (1, 64, 1)],
)
def test_after_a_death_training_goes_on_in_the_whole_slices_that_are_left(wanted: int, chips: int, found: int) -> None:
    """Fewer than one: it waits for all of them, as at first."""
    shape = shape_of(recipe("tpu", 64), in_slices(wanted), {"TPU": float(chips)}, again=True)
    assert (shape.slices, shape.processes, shape.devices) == (found, 4 * found, 16 * found)
    config = scaling_config(shape)
    assert (config.num_workers, config.use_tpu, config.topology) == (4 * found, True, "4x4")


def test_at_first_all_slices_are_waited_for() -> None:
    assert shape_of(recipe("tpu", 64), in_slices(4), {"TPU": 16.0}).slices == 4


def test_slices_divide_over_processes() -> None:
    with pytest.raises(UsageError, match="processes do not divide over the slices"):
        shape_of(recipe("tpu", 64), in_slices(3, devices=64, processes=4), {"TPU": 64.0})


@pytest.mark.parametrize(("cpus", "found"), [(4, (4, 2)), (2, (2, 2)), (1, (1, 1))])
def test_on_processors_slices_go_with_the_devices_that_are_left(cpus: int, found: tuple[int, int]) -> None:
    shape = shape_of(recipe(), Execution(devices=4, processes=4, slices=2, runner="ray"), {"CPU": float(cpus)})
    assert (shape.devices, shape.slices) == found


def test_a_part_of_a_slice_is_refused() -> None:
    execution = Execution(devices=8, processes=2, runner="ray", accelerator_type="TPU-V6E", topology="4x4")
    with pytest.raises(UsageError, match="does not fit the accelerators"):
        scaling_config(shape_of(recipe("tpu", 32), execution, {}))
