"""The main job in a fresh clone: `dvc repro`, again with nothing to do, and the verification of the run.

    python -m bench.pipeline OLD NEW [--rounds 3]

`make repro` and `make repro` after it with nothing to do, in a clone of each of two checkouts by turns, with environments that
were made before: cold (no bytecode of the project, no compiled program, no answer of this machine) and warm (all that the cold
one left, but no ledger and no output). Seconds by the clock; the medians and their ratios.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
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


def repeated(clone: Path, variables: Mapping[str, str]) -> dict[str, float]:
    """Seconds of `make repro` in a clone that has an environment: cold, warm, and with nothing to do."""

    def call(*command: str) -> None:
        subprocess.run(command, cwd=clone, env=variables, check=True, capture_output=True)

    shutil.rmtree(variables["XDG_CACHE_HOME"], ignore_errors=True)
    call("git", "clean", "-xdffq", "-e", ".venv")
    found = {"cold": seconds(lambda: call("make", "repro"))}
    call("git", "clean", "-xdffq", "-e", ".venv", "-e", "__pycache__")
    found["warm"] = seconds(lambda: call("make", "repro"))
    return found | {"nothing to do": seconds(lambda: call("make", "repro"))}


def main() -> None:
    """Clone, measure by turns, and print."""
    parser = argparse.ArgumentParser(prog="python -m bench.pipeline", description=__doc__)
    parser.add_argument("old", type=Path)
    parser.add_argument("new", type=Path)
    parser.add_argument("--rounds", type=int, default=3)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory(prefix="marin-bench-") as folder:
        found: dict[str, list[dict[str, float]]] = {"old": [], "new": []}
        homes = {}
        for name, checkout in (("old", options.old), ("new", options.new)):
            subprocess.run(["git", "clone", "--quiet", str(checkout.resolve()), f"{folder}/{name}"], check=True)
            xdg = {f"XDG_{kind.upper()}_HOME": f"{folder}/home/{name}/{kind}" for kind in ("config", "state", "cache")}
            homes[name] = {key: value for key, value in os.environ.items() if key != "MARIN_ROOT"} | xdg
            subprocess.run(
                ["make", "environment"], cwd=f"{folder}/{name}", env=homes[name], check=True, capture_output=True
            )
        for _ in range(options.rounds):
            for name, rounds in found.items():
                rounds.append(repeated(Path(folder, name), homes[name]))
                sys.stderr.write(f"{name}: {json.dumps(rounds[-1])}\n")
        for what in ("cold", "warm", "nothing to do"):
            old, new = (statistics.median(one[what] for one in found[name]) for name in ("old", "new"))
            sys.stdout.write(f"make repro, {what}: {new:.1f} s beside {old:.1f}: {new / old:.2f}\n")


if __name__ == "__main__":
    main()
