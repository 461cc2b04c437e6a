"""Tiny recipes and batches for tests that need one device and no particular flags.

What needs the arithmetic contract in force runs in processes of its own: tests/determinism.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest
from compiled_once import compiled_once

__all__ = ["compiled_once"]


@pytest.fixture(scope="session")
def worker() -> ModuleType:
    """tests/determinism/worker.py as a module: its cases, recipes and batches."""
    path = Path(__file__).resolve().parents[2] / "determinism" / "worker.py"
    spec = importlib.util.spec_from_file_location("determinism_worker", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["determinism_worker"] = module
    spec.loader.exec_module(module)
    return module
