"""The fault bench, reduced: one fault of a kind, found and located by full verification, and a clean run that is clean.

Three kinds take turns; all of them at once in ``make faults``, all that there are, eight times, in ``make faults-bench``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from drawn import Tenth
from sessions import new_cache

FAULTS = ("parameter", "event", "forged loss")


def test_one_fault_of_each(tmp_path: Path, tenth: Tenth) -> None:
    kinds = [*(FAULTS[place] for place in tenth(range(len(FAULTS)))), "clean run"]
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MARIN", "XLA", "JAX")) and name != "NPROC"
    }
    done = subprocess.run(
        [
            sys.executable,
            "-m",
            "bench.faults",
            "--seed",
            "5",
            "--per-kind",
            "1",
            "--kinds",
            ",".join(kinds),
            "--json",
            "--folder",
            str(tmp_path),
        ],
        cwd=Path(__file__).resolve().parents[2],
        env=kept | {"MARIN_CACHE": str(new_cache(tmp_path / "cache"))},
        capture_output=True,
        text=True,
        timeout=900,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["kind"] for row in rows] == kinds, done.stderr
    assert [(row["found"], row["located"]) for row in rows[:-1]] == [(True, True)] * (len(kinds) - 1), rows
    assert not rows[-1]["found"], rows[-1]
    assert done.returncode == 0
