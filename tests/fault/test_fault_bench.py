"""The fault bench, reduced: one fault of some kinds, found and located by full verification, and a clean run that is
clean.

All kinds, eight times: ``make faults-bench``.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path

from sessions import new_cache

KINDS = ("parameter", "event", "forged loss", "clean run")


def test_one_fault_of_each(tmp_path: Path) -> None:
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
            ",".join(KINDS),
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
    assert [row["kind"] for row in rows] == list(KINDS), done.stderr
    assert [(row["found"], row["located"]) for row in rows[:-1]] == [(True, True)] * 3, rows
    assert not rows[-1]["found"], rows[-1]
    assert done.returncode == 0
