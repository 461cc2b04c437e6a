"""Tiny recipes and batches for tests that need one device and no particular flags.

What needs the arithmetic contract in force runs in processes of its own: tests/determinism. What is compiled is kept
in the user's cache of compiled programs, by content: most tests compile what another one, or the last run, compiled.
"""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import jax
import pytest
from jax.experimental.compilation_cache.compilation_cache import reset_cache

from marin.process.cache import compilation_cache
from marin.training.runtime.compilation import use_compilation_cache


@pytest.fixture(scope="session", autouse=True)
def compiled_once() -> None:
    """Programs that take long to compile, and small ones too: each operation outside of a program is one."""
    use_compilation_cache(compilation_cache())
    jax.config.update("jax_persistent_cache_min_compile_time_secs", 0.0)
    reset_cache()  # jax looks for the folder at its first compilation, which another folder's test may have made


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
