"""The main job in a fresh clone: `dvc repro`, again with nothing to do, and the verification of the run."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

from bench.figure import Figure, seconds

PROJECT = Path(__file__).resolve().parent.parent
REPEATED = ("corpus", "tokenizer", "tokens", "train", "evaluate", "export")


def measure() -> Iterator[Figure]:
    """Seconds of the main job and of what follows it."""
    with tempfile.TemporaryDirectory(prefix="marin-bench-") as folder:
        clone = Path(folder) / "clone"
        subprocess.run(["git", "clone", "--quiet", str(PROJECT), str(clone)], check=True)
        beside = Path(sys.executable).parent
        # The clone's code under this environment: PYTHONPATH stands before the path entry of the installed project.
        variables = os.environ | {
            "PATH": f"{beside}{os.pathsep}{os.environ['PATH']}",
            "PYTHONPATH": str(clone),
            "XDG_CONFIG_HOME": f"{folder}/config",
        }
        variables.pop("MARIN_ROOT", None)

        def call(*command: str) -> str:
            return subprocess.run(command, cwd=clone, env=variables, check=True, capture_output=True, text=True).stdout

        call("marin", "init", "--quiet")
        yield Figure("dvc repro in a fresh clone", seconds(lambda: call("dvc", "repro")), "s")
        yield Figure("dvc repro again", seconds(lambda: call("dvc", "repro")), "s")
        changes = call("git", "status", "--porcelain").splitlines()
        yield Figure("files that differ from the commit afterwards (expected: 0)", len(changes), "files")
        run = json.loads(call("marin", "show", "latest", "--json"))
        stages = sum(run["steps"][step]["seconds"] for step in REPEATED)
        verify = seconds(lambda: call("marin", "verify", "latest", "--json"))
        yield Figure("marin verify latest", verify, "s")
        yield Figure("marin verify latest / the stages that it repeats", verify / stages, "")
