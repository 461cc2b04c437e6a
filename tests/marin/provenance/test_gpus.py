"""NVML as its header has it: a call gives a code, its results by reference. No GPU is here; the library is played by functions
that take what a C function would get."""

from __future__ import annotations

import ctypes
from dataclasses import dataclass, field
from typing import Any

import pytest

from marin.provenance.gpus import Gpus
from marin.record.meter import Meter

NOT_SUPPORTED, NOT_FOUND = 3, 6


@dataclass
class Nvml:
    """``samples``: of each device time and busy share, the driver's buffer; None: it has no such counter."""

    samples: list[list[tuple[int, int]] | None]
    starts: int = 0
    asked_since: list[int] = field(default_factory=list)

    def nvmlInit_v2(self) -> int:
        return self.starts

    def nvmlDeviceGetCount_v2(self, count: Any) -> int:
        count._obj.value = len(self.samples)
        return 0

    def nvmlDeviceGetHandleByIndex_v2(self, index: ctypes.c_uint, handle: Any) -> int:
        handle._obj.value = 100 + index.value
        return 0

    def nvmlDeviceGetMemoryInfo(self, handle: ctypes.c_void_p, memory: Any) -> int:
        memory._obj.total, memory._obj.used = 80_000_000_000, 1_000_000_000 * (handle.value or 0)
        return 0

    def nvmlDeviceGetSamples(
        self, handle: ctypes.c_void_p, kind: Any, since: Any, type_: Any, count: Any, into: Any
    ) -> int:
        held = self.samples[(handle.value or 0) - 100]
        if held is None:
            return NOT_SUPPORTED
        assert kind.value == 1, "NVML_GPU_UTILIZATION_SAMPLES"
        self.asked_since.append(since.value)
        new = [one for one in held if one[0] > since.value]
        if not new:
            return NOT_FOUND
        type_._obj.value = 1
        if into is None:
            count._obj.value = len(new) + 3  # the size of the buffer, more than there is
            return 0
        count._obj.value = len(new)
        for place, (moment, busy) in enumerate(new):
            into[place].microseconds, into[place].value = moment, (0xDEAD << 32) | busy
        return 0


class WithoutMemory(Nvml):
    """As ctypes has a library that lacks a function."""

    @property
    def nvmlDeviceGetMemoryInfo(self) -> Any:
        raise AttributeError("undefined symbol: nvmlDeviceGetMemoryInfo")


@pytest.fixture(autouse=True)
def no_contract(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("JAX_PLATFORMS", "CUDA_VISIBLE_DEVICES"):
        monkeypatch.delenv(name, raising=False)


def test_the_mean_of_what_came_since_the_last_lap() -> None:
    nvml = Nvml([[(10, 90)], None])
    gpus = Gpus(nvml)
    assert nvml.samples[0] is not None
    nvml.samples[0] += [(20, 40), (30, 60)]
    assert gpus.lap() == {
        "system/gpu_0_utilization_percentage": 50.0,
        "system/gpu_0_memory_usage_megabytes": 100_000.0,
        "system/gpu_1_memory_usage_megabytes": 101_000.0,
    }
    assert "system/gpu_0_utilization_percentage" not in gpus.lap(), "nothing new, and no number made of it"
    assert set(nvml.asked_since) == {0, 10, 30}


@pytest.mark.parametrize(
    ("visible", "seen"), [("1", {"1"}), ("0,1", {"0", "1"}), ("", set()), ("-1", set()), ("GPU-5f1e", {"0", "1"})]
)
def test_gpus_that_cuda_may_not_use_are_left_out(monkeypatch: pytest.MonkeyPatch, visible: str, seen: set[str]) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", visible)
    assert {name.split("_")[1] for name in Gpus(Nvml([None, None])).lap()} == seen


def test_none_where_processors_compute_or_no_driver_answers(monkeypatch: pytest.MonkeyPatch) -> None:
    assert Gpus(Nvml([None], starts=9)).lap() == {}, "NVML_ERROR_DRIVER_NOT_LOADED"
    assert Gpus(object()).lap() == {}, "a library of another kind"
    assert Gpus(WithoutMemory([[(10, 90)]])).lap() == {}, (
        "a library that lacks a function measures nothing and ends no training"
    )
    monkeypatch.setenv("JAX_PLATFORMS", "cpu")
    assert Gpus(Nvml([None])).lap() == {}


def test_a_lap_of_training_has_them() -> None:
    assert Meter(_devices=[Gpus(Nvml([None]))]).lap(1, 1)["system/gpu_0_memory_usage_megabytes"] == 100_000.0
