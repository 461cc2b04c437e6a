"""However Levanter's axis mappings lay parameters and batch over eight devices, tensor parallelism included, the exact
gradient is the reference's."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("shardings.py")


@pytest.mark.determinism
def test_every_sharding_gives_the_gradient_of_the_reference() -> None:
    done = subprocess.run([sys.executable, str(PROGRAM)], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-2000:]
    reference, *ways = [json.loads(line) for line in done.stdout.splitlines()]
    assert len(ways) == 7 and all(way["parts"] for way in ways)
    assert {way["way"]: way["digest"] for way in ways} == dict.fromkeys((w["way"] for w in ways), reference["digest"])
