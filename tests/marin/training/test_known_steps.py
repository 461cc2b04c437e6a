"""Whole train steps give the pinned answer under the locked compiler."""

from __future__ import annotations

import subprocess
import sys

import pytest

from bench.compilers import PORTABLE
from marin.training.step.known import ANSWERS


@pytest.mark.long(seconds=20)
def test_the_locked_compiler_gives_the_pinned_steps() -> None:
    done = subprocess.run([sys.executable, "-c", PORTABLE], capture_output=True, text=True, check=False)
    assert done.stdout.strip() == ANSWERS["0.11.2"], done.stderr
