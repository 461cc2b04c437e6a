"""Programs of exact arithmetic are compiled once; the worker of tests/determinism, with its recipes and batches."""

from compiled_once import compiled_once

from tests.marin.training.conftest import on_two_devices, worker

__all__ = ["compiled_once", "on_two_devices", "worker"]
