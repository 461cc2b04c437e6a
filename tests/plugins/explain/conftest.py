"""The worker of tests/determinism, with its recipes and batches."""

from tests.marin.training.conftest import compiled_once, worker

__all__ = ["compiled_once", "worker"]
