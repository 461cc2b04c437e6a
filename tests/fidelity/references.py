"""The interpreter of the references that are no dependency here (.ci/references makes it), or why a row is skipped."""

from __future__ import annotations

import json
import os
import subprocess
from pathlib import Path
from typing import Any

import pytest

PROJECT = Path(__file__).parents[2]
MADE = PROJECT / "build/references/bin/python"
QUIET = {"TRANSFORMERS_VERBOSITY": "error", "HF_HUB_OFFLINE": "1", "OMP_NUM_THREADS": "1", "OMP_WAIT_POLICY": "PASSIVE"}


def interpreter() -> str:
    """``MARIN_REFERENCES``, or the one that is made here; the test is skipped where there is none."""
    found = os.environ.get("MARIN_REFERENCES") or (str(MADE) if MADE.is_file() else None)
    if found is None:
        pytest.skip(
            "no references: `make references` installs them, MARIN_REFERENCES names an interpreter that has them"
        )
    return found


def asked(program: str, question: object) -> Any:
    """What ``program`` prints as JSON on its last line, given ``question`` as JSON on its standard input."""
    done = subprocess.run(
        [interpreter(), "-c", program],
        input=json.dumps(question),
        capture_output=True,
        text=True,
        env=os.environ | QUIET,
    )
    assert done.returncode == 0, done.stderr[-2000:]
    return json.loads(done.stdout.splitlines()[-1])


def package(name: str) -> Path:
    """What a package of packages.txt ships, or one that the references have; a test is skipped where it is not there."""
    base = Path(interpreter()).parent.parent
    for found in (base / "packages" / name, *base.glob(f"lib/python*/site-packages/{name}")):
        if found.is_dir():
            return found
    pytest.skip(f"no package {name} beside the references: `make references` unpacks it")
