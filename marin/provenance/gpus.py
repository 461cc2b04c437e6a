"""How busy NVIDIA's GPUs are and what memory is taken on them, as NVML says it (the library behind nvidia-smi): measurements
beside the evidence, of all that use a GPU. The names of the numbers are those of MLflow's own system metrics."""

from __future__ import annotations

import ctypes
import os
from typing import Any

LIBRARY = "libnvidia-ml.so.1"
_BUSY, _UNSIGNED_INT = 1, 1
"""NVML_GPU_UTILIZATION_SAMPLES, and NVML_VALUE_TYPE_UNSIGNED_INT, as which these come."""


class _Sample(ctypes.Structure):
    """nvmlSample_t. The value is a union of eight bytes."""

    _fields_ = (("microseconds", ctypes.c_ulonglong), ("value", ctypes.c_ulonglong))


class _Memory(ctypes.Structure):
    """nvmlMemory_t, in bytes."""

    _fields_ = (("total", ctypes.c_ulonglong), ("free", ctypes.c_ulonglong), ("used", ctypes.c_ulonglong))


class Gpus:
    """The GPUs of this machine that CUDA_VISIBLE_DEVICES leaves; none where the arithmetic contract computes on processors, or
    there is no driver."""

    def __init__(self, library: Any = None) -> None:
        self._library, self._handles, self._last = library, dict[int, Any](), dict[int, int]()
        if os.environ.get("JAX_PLATFORMS") == "cpu":
            return
        try:
            self._library = library or ctypes.CDLL(LIBRARY)
            self._find()
            self.lap()  # the first begins now; a library without one of the functions says so here, not in a training
        except (OSError, AttributeError):
            self._handles.clear()

    def _find(self) -> None:
        count, named = ctypes.c_uint(), os.environ.get("CUDA_VISIBLE_DEVICES")
        if self._library.nvmlInit_v2() or self._library.nvmlDeviceGetCount_v2(ctypes.byref(count)):
            return
        wanted = None
        if named is not None and "GPU-" not in named and "MIG-" not in named:  # by number; -1: not one of them
            wanted = {part.strip() for part in named.split(",")}
        for index in range(count.value):
            handle = ctypes.c_void_p()
            found = self._library.nvmlDeviceGetHandleByIndex_v2(ctypes.c_uint(index), ctypes.byref(handle)) == 0
            if found and (wanted is None or str(index) in wanted):
                self._handles[index], self._last[index] = handle, 0

    def lap(self) -> dict[str, float]:
        """Of each GPU the mean share of time since the last lap in which a kernel ran, as far as the driver still has it (seconds
        to a minute), and the memory that is taken now. What the driver does not say is left out."""
        found = {}
        for index, handle in self._handles.items():
            memory = _Memory()
            if (busy := self._busy(index)) is not None:
                found[f"system/gpu_{index}_utilization_percentage"] = busy
            if self._library.nvmlDeviceGetMemoryInfo(handle, ctypes.byref(memory)) == 0:
                found[f"system/gpu_{index}_memory_usage_megabytes"] = memory.used / 1e6
        return found

    def _busy(self, index: int) -> float | None:
        kind, count = ctypes.c_int(), ctypes.c_uint()
        asked = (self._handles[index], ctypes.c_int(_BUSY), ctypes.c_ulonglong(self._last[index]), ctypes.byref(kind))
        if self._library.nvmlDeviceGetSamples(*asked, ctypes.byref(count), None) or not count.value:
            return None
        samples = (_Sample * count.value)()
        if self._library.nvmlDeviceGetSamples(*asked, ctypes.byref(count), samples) or kind.value != _UNSIGNED_INT:
            return None
        new = [sample for sample in samples[: count.value] if sample.microseconds > self._last[index]]
        self._last[index] = max((sample.microseconds for sample in new), default=self._last[index])
        return sum(sample.value & 0xFFFFFFFF for sample in new) / len(new) if new else None
