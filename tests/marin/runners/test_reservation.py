"""What a step reserves: the same for every door, by the recipe's profile and the command line."""

from __future__ import annotations

import pytest
from msgspec.structs import replace

from marin.pipeline.stages import PIPELINE
from marin.provenance.environment import available_cores
from marin.recipe.schema import Execution, Recipe
from marin.runners import reservation as room
from marin.runners.reservation import reservation
from marin.runners.resources import Resources

CLUSTER = Execution(devices=8, runner="ray", accelerator_type="TPU-V6E", topology="4x4")


def on(profile: str, step: str, execution: Execution) -> Resources:
    recipe = Recipe(arithmetic=replace(Recipe().arithmetic, profile=profile, device_kind="a kind"))  # type: ignore[arg-type]
    return reservation(PIPELINE.step(step), recipe, execution, cpus=2)


@pytest.mark.parametrize("step", ["corpus", "tokenizer", "tokens"])
@pytest.mark.parametrize("profile", ["portable-cpu", "gpu", "tpu"])
def test_data_steps_leave_accelerators_to_others(step: str, profile: str) -> None:
    assert on(profile, step, CLUSTER) == Resources(2)


@pytest.mark.parametrize("step", ["evaluate", "export"])
def test_evaluation_and_export_hold_the_device_that_they_compute_on(step: str) -> None:
    assert on("gpu", step, replace(CLUSTER, accelerator_type="H100")) == Resources(2, 1, accelerator_type="H100")
    assert on("tpu", step, CLUSTER) == Resources(2, tpus=1, accelerator_type="TPU-V6E")
    assert on("portable-cpu", step, CLUSTER) == Resources(2)


def test_training_holds_all_devices_and_names_the_slice() -> None:
    assert on("tpu", "train", CLUSTER) == Resources(2, tpus=8, accelerator_type="TPU-V6E", topology="4x4")
    assert on("gpu", "train", CLUSTER).gpus == 8


def test_on_this_machine_nothing_is_asked_for_that_is_not_here(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(room, "available_gpus", lambda: 1)
    assert on("gpu", "train", Execution(devices=4)).gpus == 1
    assert on("tpu", "evaluate", Execution()) == Resources(available_cores()), "a chip has one process"


def test_gpus_are_counted_as_the_environment_names_them(monkeypatch: pytest.MonkeyPatch) -> None:
    for named, count in (("", 0), ("-1", 0), ("0", 1), ("0,2,GPU-abc", 3)):
        monkeypatch.setenv("CUDA_VISIBLE_DEVICES", named)
        assert room.available_gpus.__module__ == "marin.runners.reservation"
        assert room.available_gpus() == count
