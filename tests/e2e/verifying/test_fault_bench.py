"""The fault bench, reduced: one fault of a kind, found and located by full verification, and a clean run that is clean.

Three kinds take turns; all of them at once in ``make faults``, all that there are, eight times, in ``make faults-bench``. The
bench is a fork of the process that has imported jax, for the one device that it asks for.
"""

from __future__ import annotations

import json
import os
from collections.abc import Callable
from pathlib import Path

import pytest
from drawn import Tenth
from sessions import new_cache
from warm import Warm

REPOSITORY = Path(__file__).resolve().parents[3]
BENCH = "import runpy; runpy.run_module('tests.adversary.faults', run_name='__main__', alter_sys=True)"
FAULTS = ("parameter", "event", "forged loss")


@pytest.mark.long(seconds=15)
def test_one_fault_of_each(tmp_path: Path, tenth: Tenth, warm: Callable[[], Warm]) -> None:
    kinds = [*(FAULTS[place] for place in tenth(range(len(FAULTS)))), "clean run"]
    kept = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("MARIN", "XLA", "JAX")) and name != "NPROC"
    }
    given = {"--seed": "5", "--per-kind": "1", "--kinds": ",".join(kinds), "--folder": str(tmp_path)}
    done = warm().run(
        BENCH,
        ["--json", *(word for option in given.items() for word in option)],
        cwd=REPOSITORY,
        environment=kept | {"MARIN_CACHE": str(new_cache(tmp_path / "cache"))},
        timeout=900,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    assert [row["kind"] for row in rows] == kinds, done.stderr
    assert [(row["found"], row["located"]) for row in rows[:-1]] == [(True, True)] * (len(kinds) - 1), rows
    assert not rows[-1]["found"], rows[-1]
    assert done.returncode == 0
