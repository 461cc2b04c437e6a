"""tests/determinism/matrix.py as a module for the tests beside it."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest


@pytest.fixture(scope="session")
def matrix() -> ModuleType:
    """The program that executes rows of the matrix."""
    path = Path(__file__).with_name("matrix.py")
    spec = importlib.util.spec_from_file_location("determinism_matrix", path)
    assert spec is not None and spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["determinism_matrix"] = module
    spec.loader.exec_module(module)
    return module
