"""Tiny recipes and batches for tests that need one device and no particular flags.

What needs the arithmetic contract in force runs in processes of its own: tests/determinism.
"""

from __future__ import annotations

import importlib.util
import os
import subprocess
import sys
from collections.abc import Callable
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


@pytest.fixture
def on_two_devices(worker: ModuleType) -> Callable[[str], list[float]]:
    """Numbers that a program says, a line each, in a process with two virtual devices. It is told where the worker is."""

    def said(program: str) -> list[float]:
        devices = {"XLA_FLAGS": "--xla_force_host_platform_device_count=2", "JAX_PLATFORMS": "cpu"}
        command = [sys.executable, "-c", program, str(Path(worker.__file__).parent)]
        done = subprocess.run(command, env=os.environ | devices, capture_output=True, text=True, check=True)
        return [float(line) for line in done.stdout.split()]

    return said
