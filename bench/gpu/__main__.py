"""`make gpu`: does this machine's GPU give the bits of docs/exact.md, and if so, a run that is trained on it.

    python -m bench.gpu [--platform cuda] [--pairs N] [--steps N] [--out FOLDER]

1. The probes (bench/gpu/probes.py) in a process for each of :data:`SETTINGS`, until every needed one holds.
2. Under that setting a small run of profile ``exact`` is trained on the device.
3. The same log is verified here, on the processor. `run.tar.gz` holds it for another machine's.

Everything that came out is one JSON document, `gpu.json` in FOLDER and on stdout. Exit status 0 when the run was verified, 1
otherwise. Without a GPU: `--platform cpu` asks the processor the same, which is how the tests execute this. No network.
"""

from __future__ import annotations

import argparse
import json
import os
import subprocess
import sys
import tarfile
import time
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from bench.gpu.probes import PAIRS
from marin.provenance.code import lock_digest
from marin.provenance.environment import describe

PROJECT = Path(__file__).resolve().parents[2]
DIVISION = "--xla_backend_extra_options=-nvptx-prec-divf32=2"
"""XLA divides float32 on a GPU by an instruction that is one unit in the last place off; with this, LLVM's that is not."""
NO_TRITON = "--xla_gpu_enable_triton_gemm=false"
SETTINGS: Mapping[str, tuple[tuple[str, ...], ...]] = {
    "cuda": ((DIVISION, NO_TRITON), (DIVISION,), (NO_TRITON,), ()),
    "cpu": ((),),
}
"""What `XLA_FLAGS` a platform is asked with, in this order."""
MARIN = "import sys; from marin.cli.main import main; sys.argv[0] = 'marin'; main()"


@dataclass(frozen=True)
class Done:
    """How a process ended. ``output``: its stdout, ``messages``: the end of its stderr."""

    status: int
    output: str
    messages: str
    seconds: float


def environment(platform: str, flags: tuple[str, ...]) -> dict[str, str]:
    """Variables under which jax computes on ``platform``; nothing of the user's that reaches it."""
    kept = {name: value for name, value in os.environ.items() if not name.startswith(("JAX_", "XLA_", "MARIN_ARITH"))}
    paths = [str(PROJECT), *filter(None, [os.environ.get("PYTHONPATH", "")])]
    platforms = {
        "JAX_PLATFORMS": "cpu" if platform == "cpu" else f"{platform},cpu",
        "PYTHONPATH": os.pathsep.join(paths),
    }
    return kept | platforms | ({"XLA_FLAGS": " ".join(flags)} if flags else {})


def execute(arguments: list[str], variables: Mapping[str, str], folder: Path) -> Done:
    """A Python of this environment, in ``folder``; its messages go on to stderr."""
    started = time.perf_counter()
    done = subprocess.run(
        [sys.executable, *arguments], env=dict(variables), cwd=folder, capture_output=True, text=True, check=False
    )
    sys.stderr.write(done.stderr)
    return Done(done.returncode, done.stdout, done.stderr[-2000:], round(time.perf_counter() - started, 1))


def asked(platform: str, flags: tuple[str, ...], pairs: int, folder: Path) -> dict[str, Any]:
    """What the device answered under one setting."""
    done = execute(["-m", "bench.gpu.probes", "--pairs", str(pairs)], environment(platform, flags), folder)
    try:
        said: dict[str, Any] = json.loads(done.output)
    except ValueError:
        return {"flags": list(flags), "holds": False, "error": done.messages, "seconds": done.seconds}
    there = said["platform"] == ("gpu" if platform == "cuda" else platform)
    needed = [probe for probe in said["probes"] if probe["needed"]]
    holds = there and bool(needed) and all(probe["holds"] for probe in needed)
    return {"flags": list(flags), "holds": holds, "seconds": done.seconds, **said}


def trained(platform: str, flags: tuple[str, ...], steps: int, folder: Path) -> dict[str, Any]:
    """A run of the smallest model, trained on the device; then the same log, verified on this machine's processor."""
    project = folder / "run"
    project.mkdir()
    identity = {"XDG_CONFIG_HOME": str(folder / "key"), "XDG_STATE_HOME": str(folder / "state")}
    there, here = (environment(where, set_to) | identity for where, set_to in ((platform, flags), ("cpu", ())))
    made = execute(["-c", MARIN, "init", "--quiet"], here, project)
    small = ["model=nano", f"trainer.num_steps={steps}", f"trainer.steps_per_segment={max(1, steps // 4)}"]
    config = ["--config-json", json.dumps(SMALL)]
    run = execute(["-c", MARIN, "-q", "train", "profile=exact", *small, *config, "--json"], there, project)
    found: dict[str, Any] = {"seconds": run.seconds, "status": made.status or run.status}
    if found["status"]:
        return found | {"messages": made.messages + run.messages}
    judged = execute(["-c", MARIN, "verify", "latest", "--only", "training", "--no-record", "--json"], here, project)
    shown = execute(["-c", MARIN, "show", "latest", "--json"], here, project)
    with tarfile.open(folder / "run.tar.gz", "w:gz") as archive:
        archive.add(project, "run")
    verdict = json.loads(judged.output) if judged.output else {"messages": judged.messages}
    return found | {
        "train": json.loads(run.output),
        "recorded": json.loads(shown.output) if shown.output else None,
        "verified on the processor": {"status": judged.status, "seconds": judged.seconds, "report": verdict},
    }


SMALL = {
    "dataset": {"kind": "grammar", "train_bytes": 200_000, "validation_bytes": 20_000, "minimal_pairs": 20},
    "tokenizer": {"vocab_size": 512},
    "evaluation": {"max_sequences": 16, "minimal_pairs": 20},
}
"""As small as a run can be and still learn: what is shown is bits."""


def measure(platform: str, pairs: int, steps: int, folder: Path) -> dict[str, Any]:
    """The whole of it."""
    answered = []
    for flags in SETTINGS[platform]:
        answered.append(asked(platform, flags, pairs, folder))
        if answered[-1]["holds"]:
            break
    found: dict[str, Any] = {"asked of": platform, "machine": describe(lock_digest(PROJECT)), "settings": answered}
    if answered[-1]["holds"]:
        found["run"] = trained(platform, tuple(answered[-1]["flags"]), steps, folder)
    return found


def verified(found: Mapping[str, Any]) -> bool:
    """Whether a run came out and was verified."""
    return bool(found.get("run", {}).get("verified on the processor", {}).get("status", 1) == 0)


def main() -> int:
    """Ask, train, verify, write."""
    parser = argparse.ArgumentParser(prog="python -m bench.gpu", description=__doc__.partition("\n")[0])
    parser.add_argument("--platform", choices=sorted(SETTINGS), default="cuda")
    parser.add_argument("--pairs", type=int, default=PAIRS)
    parser.add_argument("--steps", type=int, default=20)
    parser.add_argument("--out", type=Path, default=PROJECT / "build" / "gpu", help="a new folder")
    options = parser.parse_args()
    folder = options.out.resolve()
    folder.mkdir(parents=True)
    found = measure(options.platform, options.pairs, options.steps, folder)
    text = json.dumps(found, indent=1)
    (folder / "gpu.json").write_text(text + "\n", encoding="utf-8")
    sys.stdout.write(text + "\n")
    return 0 if verified(found) else 1


if __name__ == "__main__":
    sys.exit(main())
