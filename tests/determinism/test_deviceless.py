"""The exact gradient before the TPU's own compiler, where libtpu is at hand: it compiles, and no product loses its guard.

That is no promise of equal bits on a TPU: nothing is executed here (docs/exact.md).
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

PROGRAM = Path(__file__).with_name("deviceless.py")


@pytest.mark.determinism
@pytest.mark.skipif(
    "MARIN_LIBTPU" not in os.environ,
    reason="no libtpu: uv pip install --no-deps --target FOLDER -r docker/requirements-tpu.lock, and MARIN_LIBTPU=FOLDER",
)
@pytest.mark.parametrize("topology", ["v5e:2x2", "v5p:2x2x1"])
def test_products_of_bytes_compile_for_a_tpu_and_keep_their_guards(topology: str) -> None:
    done = subprocess.run(
        [sys.executable, str(PROGRAM), topology, "int8"], capture_output=True, text=True, check=False, timeout=1800
    )
    assert done.returncode == 0, done.stderr[-2000:]
    (told,) = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("{")]
    assert told["unguarded"] == [] and told["temporary"] > 0
